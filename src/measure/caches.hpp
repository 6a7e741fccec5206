// SPDX-License-Identifier: Apache-2.0
// Measure: controls what calls find in the caches: operands that take turns, and memory that is
// used between two calls.
#pragma once

#include <cstddef>

#include "core/aligned_buffer.hpp"
#include "core/device.hpp"
#include "switchback/context.hpp"

namespace switchback::measure {

/// The number of operand sets that a task of this many bytes takes turns with. A single set, used
/// again and again, would stay in the caches, which nothing does between two steps of a layer, and
/// the winner on it would lose there. With several sets, small operands are in the cache that suits
/// their size, and large ones in memory.
std::size_t rotation(Context& context, double bytes) noexcept;

/// Uses the caches as the other operations of a step do between two calls of one operation: each
/// thread reads and writes its own memory, several times as much as the task's operands, at least
/// enough to fill the caches of the cores and at most enough to fill the last one.
class CacheSweep {
 public:
  CacheSweep(Context& context, double task_bytes);
  /// Allocates its memory on the first run. If that fails, it does nothing.
  void run() noexcept;
  /// About how long it takes.
  [[nodiscard]] double seconds() const noexcept;

 private:
  Context& context_;
  std::size_t bytes_ = 0;
  bool failed_ = false;
  core::AlignedBuffer buffer_;
};

/// Evicts the contents of a device's L2 cache by writing twice its size.
class CacheFlush {
 public:
  /// The Context's device must not be the CPU.
  explicit CacheFlush(Context& context);
  void run();

 private:
  core::DeviceRuntime& runtime_;
  core::AlignedBuffer buffer_;
  std::size_t bytes_;
};

}  // namespace switchback::measure
