// SPDX-License-Identifier: Apache-2.0
// Tuner: lists the problems that a layer of some shape runs, so that they can be measured before
// the layer runs.
#pragma once

#include <vector>

#include "core/config_source.hpp"
#include "core/context_state.hpp"
#include "switchback/tuner.hpp"

namespace switchback::autotune {

/// Which problems of a shape are listed. Each list contains the one before. On a CPU, where they
/// cost little time, all are.
enum class Problems {
  /// Those of a layer that quantizes, in each of its modes; with a bias if the shape has one.
  layers,
  /// Also those of timing records, whose layers have no bias and whose fields have weights that are
  /// not packed.
  fields,
  /// Also forward and dX in floating point, and an int8 dW of weights in f32.
  all,
};

/// In the order in which they should be measured: the parts, then the passes made of them. Throws
/// Error(invalid_argument) for an invalid shape.
std::vector<ConfigQuery> layer_queries(const ContextState& state, const TuneShape& shape,
                                       Problems problems = Problems::layers);

}  // namespace switchback::autotune
