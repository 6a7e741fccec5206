// SPDX-License-Identifier: Apache-2.0
// Tuner: configurations as a cache holds them: an engine's name, names and values.
#pragma once

#include <optional>
#include <string>

#include "autotune/store/record.hpp"
#include "core/config_source.hpp"

namespace switchback::autotune {

CandidateText to_text(ConfigOp op, const ConfigChoice& choice);
/// The inverse. On failure `why` says which engine, name or value is unknown here.
std::optional<ConfigChoice> to_choice(ConfigOp op, const CandidateText& text, std::string& why);

}  // namespace switchback::autotune
