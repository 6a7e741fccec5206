// SPDX-License-Identifier: Apache-2.0
// Core: where a buffer's memory comes from, if not from the host's.
#pragma once

#include <cstddef>

namespace switchback::core {

class MemorySource {
 public:
  virtual ~MemorySource() = default;
  /// Throws Error(out_of_memory), or another status if memory cannot be asked for now.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void release(void* data, std::size_t bytes) noexcept = 0;
  /// Whether what uses the memory now will use it again, without asking (a graph being captured).
  [[nodiscard]] virtual bool pins() const { return false; }
};

}  // namespace switchback::core
