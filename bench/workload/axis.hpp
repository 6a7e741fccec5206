// SPDX-License-Identifier: Apache-2.0
// Bench: the option --axis, which gives another option many values: lists and ranges instead of a
// single value.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/workload/workload.hpp"

namespace CLI {
class App;
}  // namespace CLI

namespace switchback::bench {

struct ValueAxis {
  std::string name;
  std::vector<std::int64_t> values;
};

/// Parses the value of --axis: NAME=V,V,… where V is a number, FROM:TO:*FACTOR or FROM:TO:+STEP.
/// FROM is included; TO is included if it is reached. Throws Error(invalid_argument) that names
/// text and rule.
ValueAxis parse_axis(std::string_view text);

/// One value for each of several options, by the options' names ("d-model").
using Combination = std::vector<std::pair<std::string, std::string>>;

/// Adds the option --axis, which may be repeated, and stores its values in `axes`. `single`:
/// options that accept only one value, but may be axes nevertheless.
void add_axis_option(CLI::App& command, std::vector<std::string>& axes,
                     const std::vector<std::string>& single = {});

/// Adds the values of each axis to the option of the command that it names. If the command has
/// --shape, the axes m, k and n become the shapes of their product. Values of options may also be
/// words. Returns the combinations of the axes over options of `single`; empty if there are no such
/// axes. Throws Error(invalid_argument) for an axis that is not an option, or for an option that
/// has only one value.
std::vector<Combination> apply_axes(CLI::App& command, const std::vector<std::string>& axes,
                                    const std::vector<std::string>& single = {});

/// The names of the command's options that accept one value, without the options that all workloads
/// share.
std::vector<std::string> single_options(const CLI::App& command);

/// A workload that consists of one workload like `like` for each combination, with the command's
/// options and the combination's values. The cases are concatenated; ids and records also contain
/// the values. Throws Error(invalid_argument) for a value that an option refuses.
std::shared_ptr<Workload> make_product(const Workload& like, const CLI::App& command,
                                       const std::vector<Combination>& combinations);

}  // namespace switchback::bench
