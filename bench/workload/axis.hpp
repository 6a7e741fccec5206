// SPDX-License-Identifier: Apache-2.0
// Bench: --axis, which gives an option many values: lists and ranges instead of a single value.
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

/// Parses NAME=V,V,… where V is a number, FROM:TO:*FACTOR or FROM:TO:+STEP. FROM is included; TO is
/// included if it is reached. Throws Error(invalid_argument) that names text and rule.
ValueAxis parse_axis(std::string_view text);

/// A value for each of several options that have one value, by their names ("d-model").
using Combination = std::vector<std::pair<std::string, std::string>>;

/// Adds --axis, which may be repeated, and stores the axes in `axes`. `single`: options that have
/// one value but may be axes.
void add_axis_option(CLI::App& command, std::vector<std::string>& axes,
                     const std::vector<std::string>& single = {});

/// Adds the values of the axes to the options of the command that they name. Axes m, k and n of a
/// command with --shape become the shapes of their product. Values of options may also be words.
/// Returns the product of the axes over options of `single`; empty if there is none. Throws
/// Error(invalid_argument) for an axis that is not an option, or for an option that has only one
/// value.
std::vector<Combination> apply_axes(CLI::App& command, const std::vector<std::string>& axes,
                                    const std::vector<std::string>& single = {});

/// The names of the command's options with one value, without those that all workloads share.
std::vector<std::string> single_options(const CLI::App& command);

/// Workloads like this one (Workload::another()), each with the command's options and one of the
/// combinations. Their cases are concatenated; ids and records also contain the values. Throws
/// Error(invalid_argument) for a value that an option refuses.
std::shared_ptr<Workload> make_product(const Workload& like, const CLI::App& command,
                                       const std::vector<Combination>& combinations);

}  // namespace switchback::bench
