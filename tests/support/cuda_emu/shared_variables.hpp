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

/// Fills a variable with 0xff. The variables are accessed unseen by AddressSanitizer, because their
/// sizes here may include its red zones.
void fill_variable(const SharedVariable& variable);
/// Whether a variable has bytes other than 0xff.
bool was_written(const SharedVariable& variable);

/// Saves all variables while another kernel runs.
unsigned char* kept_variables(const SharedVariables& variables);
/// Restores them, and frees the copy.
void put_back(const SharedVariables& variables, unsigned char* kept);

}  // namespace switchback_cuda_emu
