// SPDX-License-Identifier: Apache-2.0
// Tuner: lists every problem that a layer of some shape runs, so that all can be measured before
// the layer does.
#pragma once

#include <vector>

#include "core/config_source.hpp"
#include "core/context_state.hpp"
#include "switchback/tuner.hpp"

namespace switchback::autotune {

/// In the order in which they should be measured: the parts, then the passes made of them. Contains
/// the problems of layers in all modes, with and without a gradient of the bias, and those of the
/// fields of a timing record (whose weights are not packed). Throws Error(invalid_argument) for an
/// invalid shape.
std::vector<ConfigQuery> layer_queries(const ContextState& state, const TuneShape& shape);

}  // namespace switchback::autotune
