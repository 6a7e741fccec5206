// SPDX-License-Identifier: Apache-2.0
// Tuner: lists the problems that a layer of a given shape runs, so that they can be measured before
// the layer runs.
#pragma once

#include <vector>

#include "core/config_source.hpp"
#include "switchback/context.hpp"
#include "switchback/tuner.hpp"

namespace switchback::autotune {

/// Which problems of a layer's shape are listed. Each value adds to the problems of the value
/// before it. On a CPU, where problems cost little time, all are listed.
enum class Problems {
  /// The problems of layers in each mode that quantizes, with a bias if the shape has one.
  layers,
  /// Also the problems that the benchmark's records time: layers without a bias, and int8 products
  /// of weights that are not packed.
  fields,
  /// Also forward and dX in floating point, and an int8 dW that is written in f32.
  all,
};

/// Lists the problems that layers of a shape run. It runs these layers as a dry run, which
/// allocates their operands and computes nothing. The order is the one in which to measure: first
/// single operations, then the passes that consist of them. If the operands do not fit into memory,
/// only the layer's training step (with groups: its forward) is listed, which cannot be measured
/// either. Throws Error(invalid_argument) for an invalid shape, and Error(out_of_memory).
std::vector<ConfigQuery> layer_queries(Context& context, const TuneShape& shape,
                                       Problems problems = Problems::layers);

}  // namespace switchback::autotune
