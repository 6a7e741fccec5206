// SPDX-License-Identifier: Apache-2.0
// Test support, emulated CUDA: what a program has launched, for a test that compares it with what
// the compiler made of these kernels.
#pragma once

#include <cstddef>

namespace switchback_cuda_emu {

struct LoggedLaunch {
  const void* function = nullptr;
  int compute_capability = 0;
  int threads = 0;  ///< of a block
  std::size_t shared_bytes = 0;
  std::size_t shared_limit = 0;  ///< what the kernel was allowed; 0: nothing was said
};

/// If the environment has SWITCHBACK_CUDA_EMU_LAUNCHES, adds a line for each kernel and compute
/// capability to the file of that name when the program ends: the capability, the most threads, the
/// most dynamic shared memory and the limit of that, and the kernel's mangled name.
void log_launch(const LoggedLaunch& launch);

}  // namespace switchback_cuda_emu
