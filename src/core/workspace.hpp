// SPDX-License-Identifier: Apache-2.0
// Core: a Context's scratch memory. Operations take pieces inside a Frame and give them all back
// when it ends; the memory stays for the next operation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/aligned_buffer.hpp"

namespace switchback::core {

class Workspace {
 public:
  /// Of every piece: what the engines of a device ask for; on the host 64 would do.
  static constexpr std::size_t alignment_bytes = 256;

  Workspace() = default;
  /// Memory of `source`; null: of the host.
  explicit Workspace(std::shared_ptr<MemorySource> source) noexcept : source_(std::move(source)) {}

  /// A scope of allocations. Frames nest.
  class Frame {
   public:
    explicit Frame(Workspace& workspace) noexcept;
    ~Frame();
    Frame(const Frame&) = delete;
    Frame& operator=(const Frame&) = delete;

    /// Room for `count` elements, aligned to alignment_bytes, uninitialised, until the Frame ends.
    /// Throws Error(out_of_memory).
    template <class T>
    [[nodiscard]] T* take(std::int64_t count) {
      return static_cast<T*>(workspace_.take_bytes(count, sizeof(T)));
    }

   private:
    Workspace& workspace_;
    std::size_t block_;
    std::size_t offset_;
  };

  /// Inside a Frame: while it lives, what Frames give back is not given out again before the Frame
  /// around it ends. For pieces that a second stream still uses when the call that took them is
  /// done.
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

  // Pieces are cut from blocks_[block_] at offset_. Needing more adds a block; when the outermost
  // Frame ends, several blocks are replaced by one of their total size, so that a repeated call
  // finds one block that fits. Not after a graph was captured: it holds addresses of the blocks.
  std::shared_ptr<MemorySource> source_;
  std::vector<AlignedBuffer> blocks_;
  std::size_t block_ = 0;
  std::size_t offset_ = 0;
  int depth_ = 0;
  int holds_ = 0;
  bool pinned_ = false;
};

}  // namespace switchback::core
