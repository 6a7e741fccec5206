// SPDX-License-Identifier: Apache-2.0
// CUDA core: what kernels found wrong with arrays whose values no host ever sees. They clamp such
// values and go on; the next synchronization of the Context says what was wrong.
#pragma once

#include <string>

#include "core/cuda/api.hpp"

namespace switchback::core::cuda {

/// The arrays that kernels check.
enum class ReportedArray : int { ends, used, index, slots };
inline constexpr int reported_arrays = 4;

/// A word of device memory for each of them: the first element that is wrong, as its position ·
/// 2^32 + the bits of its value; no_report: none is.
using Report = unsigned long long;
inline constexpr Report no_report = ~Report{0};

/// "groups.ends[2] = 1; …", of a report that there is.
std::string describe(ReportedArray array, Report report);

}  // namespace switchback::core::cuda
