// SPDX-License-Identifier: Apache-2.0
// Core: a Context's scratch memory. Operations allocate pieces inside a Frame, which returns all of
// them when it ends; the memory is kept for the next operation.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/aligned_buffer.hpp"
#include "switchback/matrix.hpp"

namespace switchback::core {

class Workspace {
 public:
  /// Alignment of every piece. Engines of a device need 256; on the host 64 would be enough.
  static constexpr std::size_t alignment_bytes = 256;

  Workspace() = default;
  /// Scratch memory that is allocated from `source`, or from the host if `source` is null.
  explicit Workspace(std::shared_ptr<MemorySource> source) noexcept : source_(std::move(source)) {}

  /// A scope of scratch allocations, which are returned when it ends. Frames nest.
  class Frame {
   public:
    explicit Frame(Workspace& workspace) noexcept;
    ~Frame();
    Frame(const Frame&) = delete;
    Frame& operator=(const Frame&) = delete;

    /// Room for `count` elements, aligned to alignment_bytes and uninitialised; valid until the
    /// Frame ends. Throws Error(out_of_memory).
    template <class T>
    [[nodiscard]] T* take(std::int64_t count) {
      return static_cast<T*>(workspace_.take_bytes(count, sizeof(T)));
    }

   private:
    Workspace& workspace_;
    std::size_t block_;
    std::size_t offset_;
  };

  /// While a Hold lives inside a Frame, pieces that inner Frames return are not reused before the
  /// outer Frame ends. It is for pieces that a second stream still uses after the call that
  /// allocated them has returned.
  class Hold {
   public:
    explicit Hold(Workspace& workspace) noexcept : workspace_(workspace) { ++workspace_.holds_; }
    ~Hold() { --workspace_.holds_; }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

   private:
    Workspace& workspace_;
  };

  [[nodiscard]] std::size_t capacity_bytes() const noexcept;

 private:
  void* take_bytes(std::int64_t count, std::size_t element_bytes);

  // Pieces are cut from blocks_[block_] at offset_. If that block is full, another one is added.
  // When the outermost Frame ends, several blocks are replaced by one of their total size, so that
  // the same call needs only one block next time. This does not happen after a capture, because the
  // graph holds the blocks' addresses.
  std::shared_ptr<MemorySource> source_;
  std::vector<AlignedBuffer> blocks_;
  std::size_t block_ = 0;
  std::size_t offset_ = 0;
  int depth_ = 0;
  int holds_ = 0;
  bool pinned_ = false;
};

/// Takes memory from the frame for a matrix without gaps between its rows. An empty matrix gets
/// memory too, because null data means that a matrix is absent.
inline AnyMatrix take_matrix(Workspace::Frame& frame, DType dtype, std::int64_t rows,
                             std::int64_t cols) {
  const auto bytes = rows * cols * static_cast<std::int64_t>(dtype_size_bytes(dtype));
  return {frame.take<std::byte>(std::max<std::int64_t>(bytes, 1)), dtype, rows, cols, cols};
}

}  // namespace switchback::core
