// SPDX-License-Identifier: Apache-2.0
// Core: scratch memory of which every worker of a thread pool has its own piece.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/workspace.hpp"

namespace switchback::core {

/// Bytes between the scratch memory of two workers: one page. If a worker writes to the end of its
/// piece, the hardware prefetches the following lines, up to the end of the page. If another
/// worker's piece begins with these lines, that worker waits for them, row after row. Measured on
/// Zen 4, two threads, rows of 4096 that are rotated in groups of 256: 1.1 to 1.3 times as fast
/// with this gap.
inline constexpr std::int64_t worker_gap_bytes = 4096;

/// A piece of scratch memory for each worker: `count` elements, aligned to 64 bytes, valid until
/// the Frame ends.
template <class T>
class PerWorker {
 public:
  PerWorker() = default;  ///< no pieces
  PerWorker(Workspace::Frame& frame, int workers, std::int64_t count) {
    if (count == 0) return;
    constexpr std::int64_t line = 64;
    const std::int64_t bytes = (count * std::int64_t{sizeof(T)} + line - 1) / line * line;
    step_ = workers == 1 ? bytes : bytes + worker_gap_bytes;
    data_ = frame.take<std::byte>(workers * step_);
  }

  /// The piece of scratch memory of this worker; null if the object has no pieces.
  [[nodiscard]] T* of(int worker) const {
    return reinterpret_cast<T*>(data_ == nullptr ? nullptr : data_ + worker * step_);
  }
  explicit operator bool() const { return data_ != nullptr; }

 private:
  std::byte* data_ = nullptr;
  std::int64_t step_ = 0;
};

}  // namespace switchback::core
