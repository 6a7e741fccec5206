// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/status.hpp"

namespace switchback::core::cuda {

void fail_status(cudaError_t status, std::string_view call, std::string_view problem) {
  // Clears an error that is reported here, so that other code's cudaGetLastError does not return
  // it.
  (void)cudaGetLastError();
  const bool memory = status == cudaErrorMemoryAllocation;
  fail(memory ? Status::out_of_memory : Status::device_error, "{}{}{}: {} ({}): {}", call,
       problem.empty() ? "" : " of ", problem, cudaGetErrorName(status), static_cast<int>(status),
       cudaGetErrorString(status));
}

}  // namespace switchback::core::cuda
