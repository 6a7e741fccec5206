// SPDX-License-Identifier: Apache-2.0
// Tuner: lists the problems that a layer of a given shape runs, so that they can be measured before
// the layer runs.
#pragma once

#include <vector>

#include "core/config_source.hpp"
#include "switchback/context.hpp"
#include "switchback/tuner.hpp"

namespace switchback::autotune {

/// Which problems of a shape are listed. Each list contains the previous one. On a CPU, where they
/// cost little time, all are listed.
enum class Problems {
  /// The problems of a layer that quantizes, in each of its modes; with a bias if the shape has
  /// one.
  layers,
  /// Also the problems of timing records: their layers have no bias, and the weights of their
  /// fields are not packed.
  fields,
  /// Also forward and dX in floating point, and an int8 dW with f32 weights.
  all,
};

/// Lists the problems by a dry run of such layers, which allocates their operands and computes
/// nothing. The order is the order in which to measure them: first the parts, then the passes that
/// consist of them. If a shape does not fit into memory, only its step is listed, and that step
/// cannot be measured either. Throws Error(invalid_argument) for an invalid shape, and
/// Error(out_of_memory).
std::vector<ConfigQuery> layer_queries(Context& context, const TuneShape& shape,
                                       Problems problems = Problems::layers);

}  // namespace switchback::autotune
