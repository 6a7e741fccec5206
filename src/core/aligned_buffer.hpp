// SPDX-License-Identifier: Apache-2.0
// Core: owned host memory that only grows, aligned for vectors, on huge pages where it is large.
#pragma once

#include <cstddef>
#include <cstdint>

namespace switchback::core {

class AlignedBuffer {
 public:
  static constexpr std::size_t alignment_bytes = 64;

  AlignedBuffer() = default;
  ~AlignedBuffer();
  AlignedBuffer(AlignedBuffer&& other) noexcept;
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept;
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;

  /// At least `bytes` of memory. Contents are lost when it has to grow; a failure throws
  /// Error(out_of_memory) and leaves the buffer as it was.
  void reserve(std::size_t bytes);
  /// Gives the memory back.
  void release() noexcept;

  [[nodiscard]] std::size_t capacity_bytes() const noexcept { return capacity_; }
  template <class T>
  [[nodiscard]] T* as() const noexcept {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
  std::size_t capacity_ = 0;
};

}  // namespace switchback::core
