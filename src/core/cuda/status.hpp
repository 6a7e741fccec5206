// SPDX-License-Identifier: Apache-2.0
// CUDA core: failed calls become Errors that name the call, the status and what was asked for.
#pragma once

#include <string>
#include <string_view>

#include "core/check.hpp"
#include "core/cuda/api.hpp"

namespace switchback::core::SWITCHBACK_CUDA_NS {

/// Throws Error(out_of_memory or device_error) unless the status is cudaSuccess.
void check(cudaError_t status, std::string_view call, std::string_view problem = {});

}  // namespace switchback::core::SWITCHBACK_CUDA_NS
