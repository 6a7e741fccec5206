// SPDX-License-Identifier: Apache-2.0
// Core: the interface of an allocator for buffers whose memory is not plain host memory.
#pragma once

#include <cstddef>

namespace switchback::core {

class MemorySource {
 public:
  virtual ~MemorySource() = default;
  /// Throws Error(out_of_memory), or another status if allocating is not possible now.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void release(void* data, std::size_t bytes) noexcept = 0;
  /// Whether memory that is in use now will be used again later, because a graph is being captured.
  [[nodiscard]] virtual bool pins() const { return false; }
  /// release() for memory that several streams have used; may be called from any thread.
  virtual void release_shared(void* data, std::size_t bytes) noexcept { release(data, bytes); }
};

}  // namespace switchback::core
