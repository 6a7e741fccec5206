// SPDX-License-Identifier: Apache-2.0
// Tuner: configurations as a cache stores them (an engine's name, attribute names and values), and
// the checks that decide whether this Context may use them.
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
/// The inverse of to_text(). On failure `why` says which engine, name or value is unknown here.
std::optional<ConfigChoice> to_choice(ConfigOp op, const CandidateText& text, std::string& why);

/// Compares the environment of a measurement, `then`, with the current one, in the hard members
/// that this engine depends on. Returns a message about the first that differs; empty if all are
/// equal.
std::string mismatch(ConfigOp op, std::string_view engine, const Environment& then,
                     const Environment& now);

/// One check of an entry, and its result.
struct Verdict {
  std::string validator;  ///< the name of the check, such as "libraries and kernels"
  std::string why;        ///< why the check failed; empty if it passed
};

/// The reason why a winner that is in_doubt() is not used.
inline constexpr std::string_view doubt_text = "in doubt: other programs disturbed the measurement";

/// Makes every check that the winner of an entry must pass before this Context runs its
/// configuration: it was measured with the same software and hardware, its engine and attributes
/// are known here, the engine accepts it, and the measurement is not in doubt. Stops at the first
/// refusal. Sets `choice` if all checks pass.
std::vector<Verdict> judge(const Entry& entry, const ConfigQuery& query, const ContextState& state,
                           const Environment& now, bool strict,
                           std::optional<ConfigChoice>& choice);

/// Why a configuration cannot run a problem in this Context; empty if it can.
std::string refusal(const ConfigQuery& query, const ConfigChoice& choice,
                    const ContextState& state);

}  // namespace switchback::autotune
