// SPDX-License-Identifier: Apache-2.0
// Test support, emulated CUDA: runs the blocks of a kernel launch, with threads as fibers. Blocks
// run one after another, or interleaved in a cooperative launch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "switchback_cuda_emu/device.h"

namespace switchback_cuda_emu {

/// A kernel launch as the scheduler sees it.
struct Grid {
  const char* name = "";
  void (*run)(void*) = nullptr;  ///< runs one thread of the kernel
  void* arguments = nullptr;
  dim3 grid, block;
  std::size_t shared_bytes = 0;
  std::uint64_t seed = 0;    ///< seed for the order of blocks and threads; 0: ascending
  bool cooperative = false;  ///< all blocks exist at the same time and can wait for each other
  /// The kernel was launched to overlap with the kernel before it, and has to wait for that kernel.
  bool overlaps = false;
  /// Runs the kernel before this one if it has not run yet. False after a fault.
  bool (*before)(void*) = nullptr;
  void* before_arguments = nullptr;
};

/// Runs one launch to its end; only one can run at a time. False after a fault, which fault_text()
/// describes.
bool run_grid(const Grid& grid);
const char* fault_text();

/// One step of the random generator SplitMix64; advances `state`.
inline std::uint64_t next_random(std::uint64_t& state) {
  std::uint64_t z = (state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace switchback_cuda_emu
