// SPDX-License-Identifier: Apache-2.0
// Test support, emulated CUDA: a log of the launches of a program, for a test that compares them
// with what the compiler made of these kernels.
#pragma once

#include <cstddef>

namespace switchback_cuda_emu {

struct LoggedLaunch {
  const void* function = nullptr;
  int compute_capability = 0;
  int threads = 0;  ///< of a block
  std::size_t shared_bytes = 0;
  std::size_t shared_limit = 0;  ///< the limit set for the kernel; 0: not set
};

/// If the environment variable SWITCHBACK_CUDA_EMU_LAUNCHES names a file, adds a line to it for
/// each kernel and compute capability when the program ends. A line has the capability, the most
/// threads, the most dynamic shared memory, the limit of that memory, and the kernel's mangled
/// name.
void log_launch(const LoggedLaunch& launch);

}  // namespace switchback_cuda_emu
