// SPDX-License-Identifier: Apache-2.0
// Test support, emulated CUDA: the location of the static shared memory of the program's kernels.
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
  std::size_t bytes = 0;  ///< of all of them
};

/// Every __shared__ variable of the modules that are loaded at the first call, if it has a symbol.
/// A stripped program has no symbols.
SharedVariables shared_variables();

}  // namespace switchback_cuda_emu
