// SPDX-License-Identifier: Apache-2.0
// Measure: what calls find in the caches: operands that take turns, and memory that is used between
// two calls.
#pragma once

#include <cstddef>

#include "core/aligned_buffer.hpp"
#include "core/device.hpp"
#include "switchback/context.hpp"

namespace switchback::measure {

/// How many sets of operands a task of so many bytes takes turns with. One set, used again and
/// again, stays in the caches as nothing does between two steps of a layer, and what wins on it
/// loses there; with several, small operands are found where others of their size would be, and
/// large ones in memory.
std::size_t rotation(Context& context, double bytes) noexcept;

/// Uses the caches as the other operations of a step do between two calls of one: each thread reads
/// and writes memory of its own, several times as much as the task has operands, but no less than
/// fills the caches of the cores and no more than fills the last one.
class CacheSweep {
 public:
  CacheSweep(Context& context, double task_bytes);
  /// Takes its memory when it is first run. Without memory it does nothing.
  void run() noexcept;
  /// About how long it takes.
  [[nodiscard]] double seconds() const noexcept;

 private:
  Context& context_;
  std::size_t bytes_ = 0;
  bool failed_ = false;
  core::AlignedBuffer buffer_;
};

/// Leaves nothing in a device's L2 cache of what was there: writes twice its size.
class CacheFlush {
 public:
  /// The Context must be of a device beside the CPU.
  explicit CacheFlush(Context& context);
  void run();

 private:
  core::DeviceRuntime& runtime_;
  core::AlignedBuffer buffer_;
  std::size_t bytes_;
};

}  // namespace switchback::measure
