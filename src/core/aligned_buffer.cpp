// SPDX-License-Identifier: Apache-2.0
#include "core/aligned_buffer.hpp"

#include <cstdlib>
#include <limits>
#include <utility>

#include "core/check.hpp"

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace switchback::core {

namespace {
constexpr std::size_t huge_page_bytes = std::size_t{2} << 20;
}

AlignedBuffer::~AlignedBuffer() {
  release();
}

AlignedBuffer::AlignedBuffer(AlignedBuffer&& other) noexcept
    : source_(other.source_),
      data_(std::exchange(other.data_, nullptr)),
      capacity_(std::exchange(other.capacity_, 0)) {}

AlignedBuffer& AlignedBuffer::operator=(AlignedBuffer&& other) noexcept {
  if (this != &other) {
    release();
    source_ = other.source_;
    data_ = std::exchange(other.data_, nullptr);
    capacity_ = std::exchange(other.capacity_, 0);
  }
  return *this;
}

void AlignedBuffer::reserve(std::size_t bytes) {
  if (bytes <= capacity_) return;
  // The old memory is freed before the new memory is allocated, so both need not exist at once.
  release();
  if (source_ != nullptr) {
    data_ = source_->allocate(bytes);
    capacity_ = bytes;
    return;
  }
  // Large buffers start on a huge page: packed weights are read in strides that miss the TLB
  // otherwise.
  const std::size_t align = bytes >= huge_page_bytes ? huge_page_bytes : alignment_bytes;
  void* fresh = nullptr;
  if (bytes <= std::numeric_limits<std::size_t>::max() - align) {
    const std::size_t rounded = (bytes + align - 1) / align * align;
    fresh = std::aligned_alloc(align, rounded);
    if (fresh != nullptr) {
#if defined(__linux__)
      // madvise() is only advice: without huge pages the memory is the same, but a little slower.
      // The last, incomplete huge page consists of small pages, so only pages that are used cost
      // memory.
      if (align == huge_page_bytes)
        (void)madvise(fresh, bytes / huge_page_bytes * huge_page_bytes, MADV_HUGEPAGE);
#endif
      data_ = fresh;
      capacity_ = (bytes + alignment_bytes - 1) / alignment_bytes * alignment_bytes;
      return;
    }
  }
  fail(Status::out_of_memory, "could not allocate {} bytes of host memory", bytes);
}

void AlignedBuffer::reserve(std::size_t bytes, const std::shared_ptr<MemorySource>& source) {
  if (source == source_ && bytes <= capacity_) return;
  AlignedBuffer fresh(source);
  fresh.reserve(bytes);
  *this = std::move(fresh);
}

void AlignedBuffer::release() noexcept {
  if (source_ == nullptr)
    std::free(data_);
  else if (data_ != nullptr)
    source_->release(data_, capacity_);
  data_ = nullptr;
  capacity_ = 0;
}

void AlignedBuffer::release_shared() noexcept {
  if (source_ == nullptr || data_ == nullptr) return release();
  source_->release_shared(std::exchange(data_, nullptr), std::exchange(capacity_, 0));
}

}  // namespace switchback::core
