// SPDX-License-Identifier: Apache-2.0
// CUDA core: errors that kernels found in arrays whose values the host never sees. Kernels clamp
// invalid values and go on; the next synchronization of the Context reports them.
#pragma once

#include <string>

#include "core/cuda/api.hpp"

namespace switchback::core::cuda {

/// The arrays of a grouped operation whose values kernels check.
enum class ReportedArray : int { ends, used, index, slots };
inline constexpr int reported_arrays = 4;

/// What kernels report about one array: a word in device memory. It describes the first invalid
/// element as its position · 2^32 + the bits of its value; no_report: all elements are valid.
using Report = unsigned long long;
inline constexpr Report no_report = ~Report{0};

/// Describes a report other than no_report as a message, such as "groups.ends[2] = 1; …".
std::string describe(ReportedArray array, Report report);

}  // namespace switchback::core::cuda
