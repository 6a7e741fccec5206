// SPDX-License-Identifier: Apache-2.0
// Tuner: whether an entry of a cache may be used here and now.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "autotune/store/record.hpp"
#include "core/config_source.hpp"
#include "core/context_state.hpp"

namespace switchback::autotune {

/// One check of an entry, and its result.
struct Verdict {
  std::string validator;  ///< "oneDNN version"
  std::string why;        ///< empty: it passed
};

/// Why a winner that is in_doubt() is not used.
inline constexpr std::string_view doubt_text = "in doubt: other programs disturbed the measurement";

/// Makes every check that a winner must pass before its configuration runs a problem in this
/// Context: that it was measured with the same software and hardware, that its words are known,
/// that the engine accepts it, and that the measurement is not in doubt. Stops at the first
/// refusal. `choice` is set if all checks pass.
std::vector<Verdict> judge(const Record& record, const ConfigQuery& query,
                           const ContextState& state, const Environment& now, bool strict,
                           std::optional<ConfigChoice>& choice);

/// Why a configuration cannot run a problem in this Context; empty if it can.
std::string refusal(const ConfigQuery& query, const ConfigChoice& choice,
                    const ContextState& state);

}  // namespace switchback::autotune
