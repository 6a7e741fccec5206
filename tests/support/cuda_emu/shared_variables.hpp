// SPDX-License-Identifier: Apache-2.0
// Test support, emulated CUDA: where the static shared memory of the program's kernels lies.
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

/// Every __shared__ variable of the modules that are loaded at the first call, as far as they have
/// symbols: of a stripped program, none.
SharedVariables shared_variables();

}  // namespace switchback_cuda_emu
