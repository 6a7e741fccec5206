// SPDX-License-Identifier: Apache-2.0
// Bench: which mode of a layer to use at each measured shape, and what it gains.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/compare/side.hpp"
#include "bench/grid/grid.hpp"
#include "switchback/types.hpp"

namespace switchback::bench {

/// The mode for one use of a layer of this shape.
struct Advice {
  Mode mode = Mode::standard;
  /// The fastest int8 mode's gain over standard (above 1: it is faster), with its 95 % interval;
  /// nothing: its times are missing.
  std::optional<double> gain;
  std::optional<double> low, high;  ///< nothing: no samples
  Mode fastest = Mode::standard;    ///< the int8 mode that `gain` is of
  /// The interval holds 1, or there is none: standard is kept, because its results are not rounded
  /// to int8.
  bool undecided = false;
  bool in_doubt = false;  ///< other programs disturbed its times
  bool withheld = false;  ///< and so nothing is advised: `mode` is standard whatever the gain is
};

struct Recommendation {
  Case shape;
  std::string dtype;  ///< empty: not known
  Advice training;    ///< a step: forward, dX and dW with a new W
  Advice inference;   ///< a forward with W's codes there
};

/// One for each case of `run` in the file, by work. An int8 mode is advised if its whole interval
/// is above 1; without samples, if its gain is above 1 + `margin`; never by times that other
/// programs disturbed, unless `trust_disturbed`.
std::vector<Recommendation> recommend(const Side& side, double margin,
                                      bool trust_disturbed = false);
/// The sentence on what is in doubt, with its newline; empty if nothing is.
std::string recommendation_doubt(const std::vector<Recommendation>& all);

std::string recommendation_table(const std::vector<Recommendation>& all, std::size_t columns);
std::string recommendation_json(const Side& side, const std::vector<Recommendation>& all);
/// A header with a function for each use: the mode measured for this dim_in and dim_out at the
/// largest measured batch that is not above the given one; standard for what was not measured or is
/// withheld.
std::string recommendation_cpp(const Side& side, const std::vector<Recommendation>& all);
/// The same as a module of Python; modes are their names.
std::string recommendation_python(const Side& side, const std::vector<Recommendation>& all);

}  // namespace switchback::bench
