// SPDX-License-Identifier: Apache-2.0
// Test support, emulated CUDA: finds the static shared memory (__shared__ variables) of the
// program's kernels.
#pragma once

#include <cstddef>

namespace switchback_cuda_emu {

struct SharedVariable {
  void* at = nullptr;
  std::size_t bytes = 0;
};

struct SharedVariables {
  const SharedVariable* first = nullptr;
  std::size_t count = 0;
  std::size_t bytes = 0;  ///< the bytes of all variables together
};

/// Every __shared__ variable that has a symbol, in the program and the libraries that are loaded at
/// the first call. A stripped program has no symbols.
SharedVariables shared_variables();

}  // namespace switchback_cuda_emu
