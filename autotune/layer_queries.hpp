// SPDX-License-Identifier: Apache-2.0
// Tuner: every problem that a layer of some shape comes to, so that all can be measured before the
// layer runs.
#pragma once

#include <vector>

#include "core/config_source.hpp"
#include "core/context_state.hpp"
#include "switchback/tuner.hpp"

namespace switchback::autotune {

/// In the order in which they are to be measured: the parts, then the passes made of them. Contains
/// what layers of all modes ask, with and without a gradient of the bias, and what the fields of a
/// timing record ask (whose weights are not packed). Throws Error(invalid_argument) for a shape
/// that is none.
std::vector<ConfigQuery> layer_queries(const ContextState& state, const TuneShape& shape);

}  // namespace switchback::autotune
