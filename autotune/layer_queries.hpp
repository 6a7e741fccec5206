// SPDX-License-Identifier: Apache-2.0
// Tuner: lists the problems that a layer of some shape runs, so that they can be measured before
// the layer runs.
#pragma once

#include <vector>

#include "core/config_source.hpp"
#include "switchback/context.hpp"
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

/// By a dry run of such layers, which takes the memory of their operands and computes nothing. In
/// the order in which they should be measured: the parts, then the passes made of them. Of a shape
/// that does not fit into memory only the step is listed, which cannot be measured either. Throws
/// Error(invalid_argument) for an invalid shape, and Error(out_of_memory).
std::vector<ConfigQuery> layer_queries(Context& context, const TuneShape& shape,
                                       Problems problems = Problems::layers);

}  // namespace switchback::autotune
