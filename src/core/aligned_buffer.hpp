// SPDX-License-Identifier: Apache-2.0
// Core: owned memory that only grows: of the host, aligned for vectors and on huge pages where it
// is large, or of a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "core/memory_source.hpp"

namespace switchback::core {

class AlignedBuffer {
 public:
  static constexpr std::size_t alignment_bytes = 64;

  AlignedBuffer() = default;
  /// Memory of `source`; null: of the host.
  explicit AlignedBuffer(std::shared_ptr<MemorySource> source) noexcept
      : source_(std::move(source)) {}
  ~AlignedBuffer();
  AlignedBuffer(AlignedBuffer&& other) noexcept;
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept;
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;

  /// At least `bytes` of memory. To grow, the buffer first gives back what it has, with its
  /// contents: there is never both. A failure throws Error(out_of_memory) and leaves it empty.
  void reserve(std::size_t bytes);
  /// At least `bytes` of memory of this source, perhaps another one than before, for what must not
  /// be lost to a failure: what there was is given back once there is enough, and a failure leaves
  /// the buffer as it was.
  void reserve(std::size_t bytes, const std::shared_ptr<MemorySource>& source);
  /// Gives the memory back.
  void release() noexcept;

  [[nodiscard]] std::size_t capacity_bytes() const noexcept { return capacity_; }
  template <class T>
  [[nodiscard]] T* as() const noexcept {
    return static_cast<T*>(data_);
  }

 private:
  std::shared_ptr<MemorySource> source_;
  void* data_ = nullptr;
  std::size_t capacity_ = 0;
};

}  // namespace switchback::core
