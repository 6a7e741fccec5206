// SPDX-License-Identifier: Apache-2.0
// CUDA core: failed calls become Errors that name the call, the status and the request.
#pragma once

#include <string>
#include <string_view>

#include "core/check.hpp"
#include "core/cuda/api.hpp"

namespace switchback::core::cuda {

/// Throws Error(out_of_memory or device_error) with the message "CALL of PROBLEM: …".
[[noreturn]] void fail_status(cudaError_t status, std::string_view call,
                              std::string_view problem = {});

/// Throws Error(out_of_memory or device_error) unless the status is cudaSuccess.
inline void check(cudaError_t status, std::string_view call) {
  if (status != cudaSuccess) [[unlikely]]
    fail_status(status, call);
}

/// Like check(status, call), with a description of the problem, which is formatted only on failure.
template <class... Args>
requires(!(made_for_message<Args> || ...)) void check(cudaError_t status, std::string_view call,
                                                      fmt::format_string<Args...> problem,
                                                      Args&&... args) {
  if (status != cudaSuccess) [[unlikely]]
    fail_status(status, call, fmt::vformat(problem, fmt::make_format_args(args...)));
}

}  // namespace switchback::core::cuda
