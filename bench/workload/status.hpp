// SPDX-License-Identifier: Apache-2.0
// Bench: how a case of a workload ends.
#pragma once

#include <string_view>

#include "measure/rounds.hpp"

namespace switchback::bench {

enum class CaseStatus { ok, skipped, wrong, unsupported, oom, timeout };
std::string_view status_text(CaseStatus status) noexcept;

/// Thrown out of a measurement when the user asked to stop.
using measure::Interrupted;

}  // namespace switchback::bench
