// SPDX-License-Identifier: Apache-2.0
// Tuner: configurations as a cache holds them (an engine's name, names and values), and whether
// they may be used here and now.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "autotune/store/entry.hpp"
#include "core/config_source.hpp"
#include "core/context_state.hpp"

namespace switchback::autotune {

CandidateText to_text(ConfigOp op, const ConfigChoice& choice);
/// The inverse. On failure `why` says which engine, name or value is unknown here.
std::optional<ConfigChoice> to_choice(ConfigOp op, const CandidateText& text, std::string& why);

/// Which hard parts of `then` differ from `now`, as far as this engine depends on them; empty:
/// none.
std::string mismatch(ConfigOp op, std::string_view engine, const Environment& then,
                     const Environment& now);

/// One check of an entry, and its result.
struct Verdict {
  std::string validator;  ///< "oneDNN version"
  std::string why;        ///< empty: it passed
};

/// Why a winner that is in_doubt() is not used.
inline constexpr std::string_view doubt_text = "in doubt: other programs disturbed the measurement";

/// Makes every check that the winner of an entry must pass before its configuration runs a problem
/// in this Context: that it was measured with the same software and hardware, that its words are
/// known, that the engine accepts it, and that the measurement is not in doubt. Stops at the first
/// refusal. `choice` is set if all checks pass.
std::vector<Verdict> judge(const Entry& entry, const ConfigQuery& query, const ContextState& state,
                           const Environment& now, bool strict,
                           std::optional<ConfigChoice>& choice);

/// Why a configuration cannot run a problem in this Context; empty if it can.
std::string refusal(const ConfigQuery& query, const ConfigChoice& choice,
                    const ContextState& state);

}  // namespace switchback::autotune
