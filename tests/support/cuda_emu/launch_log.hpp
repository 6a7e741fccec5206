// SPDX-License-Identifier: Apache-2.0
// Test support, emulated CUDA: a log of a program's kernel launches. A test compares them with the
// registers and shared memory that the compiled kernels need.
#pragma once

#include <cstddef>

namespace switchback_cuda_emu {

struct LoggedLaunch {
  const void* function = nullptr;
  int compute_capability = 0;
  int threads = 0;  ///< of a block
  std::size_t shared_bytes = 0;
  std::size_t shared_limit = 0;  ///< limit of dynamic shared memory set for the kernel; 0: not set
};

/// Logs a launch. If the environment variable SWITCHBACK_CUDA_EMU_LAUNCHES names a file, the
/// program at its end adds a line to it for each kernel and compute capability. A line has the
/// capability, the most threads, the most dynamic shared memory, the limit of that memory, and the
/// kernel's mangled name.
void log_launch(const LoggedLaunch& launch);

}  // namespace switchback_cuda_emu
