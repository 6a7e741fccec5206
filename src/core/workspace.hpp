// SPDX-License-Identifier: Apache-2.0
// Core: a Context's scratch memory. Operations take pieces inside a Frame and give them all back
// when it ends; the memory stays for the next operation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/aligned_buffer.hpp"

namespace switchback::core {

class Workspace {
 public:
  /// A scope of allocations. Frames nest.
  class Frame {
   public:
    explicit Frame(Workspace& workspace) noexcept;
    ~Frame();
    Frame(const Frame&) = delete;
    Frame& operator=(const Frame&) = delete;

    /// Room for `count` elements, 64-byte aligned, uninitialised, until the Frame ends.
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

  [[nodiscard]] std::size_t capacity_bytes() const noexcept;

 private:
  void* take_bytes(std::int64_t count, std::size_t element_bytes);

  // Pieces are cut from blocks_[block_] at offset_. Needing more adds a block; when the outermost
  // Frame ends, several blocks are replaced by one of their total size, so that a repeated call
  // finds one block that fits.
  std::vector<AlignedBuffer> blocks_;
  std::size_t block_ = 0;
  std::size_t offset_ = 0;
  int depth_ = 0;
};

}  // namespace switchback::core
