// SPDX-License-Identifier: Apache-2.0
// Core: owned memory that only grows. Host memory is aligned for vectors, and starts on a huge page
// if it is large; a buffer may also own device memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace switchback::core {

/// The interface of an allocator for buffers whose memory is not plain host memory.
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

class AlignedBuffer {
 public:
  static constexpr std::size_t alignment_bytes = 64;

  AlignedBuffer() = default;
  /// A buffer that allocates its memory from `source`, or from the host if `source` is null.
  explicit AlignedBuffer(std::shared_ptr<MemorySource> source) noexcept
      : source_(std::move(source)) {}
  ~AlignedBuffer();
  AlignedBuffer(AlignedBuffer&& other) noexcept;
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept;
  AlignedBuffer(const AlignedBuffer&) = delete;
  AlignedBuffer& operator=(const AlignedBuffer&) = delete;

  /// Makes room for at least `bytes`. To grow, the buffer first frees its memory, contents
  /// included, so that old and new memory never exist together. A failure throws
  /// Error(out_of_memory) and leaves the buffer empty.
  void reserve(std::size_t bytes);
  /// Makes room for at least `bytes` of memory from `source`, which may differ from the previous
  /// source. For contents that must survive a failure: the old memory is freed only after the new
  /// memory was allocated, and a failure leaves the buffer unchanged.
  void reserve(std::size_t bytes, const std::shared_ptr<MemorySource>& source);
  /// Frees the memory.
  void release() noexcept;
  /// Frees memory that several CUDA streams may have used. May be called from any thread.
  void release_shared() noexcept;

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
