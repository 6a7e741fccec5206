// SPDX-License-Identifier: Apache-2.0
// Bench: --axis, which gives an option many values: lists and ranges instead of one value a word.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace CLI {
class App;
}  // namespace CLI

namespace switchback::bench {

struct ValueAxis {
  std::string name;
  std::vector<std::int64_t> values;
};

/// NAME=V,V,… where V is a number, FROM:TO:*FACTOR or FROM:TO:+STEP, both ends included if they are
/// met. Throws Error(invalid_argument) that names text and rule.
ValueAxis parse_axis(std::string_view text);

/// A value for each of several options that take one value, by their names ("d-model").
using Combination = std::vector<std::pair<std::string, std::string>>;

/// --axis, may be given again; kept in `axes`. `single`: options that take one value and may be
/// axes all the same.
void add_axis_option(CLI::App& command, std::vector<std::string>& axes,
                     const std::vector<std::string>& single = {});

/// Adds the values of the axes to the options of the command that they name. Axes m, k and n of a
/// command with --shape become the shapes of their product. Values of options may also be words.
/// Returns the product of the axes over options of `single`; empty if there is none. Throws
/// Error(invalid_argument) for an axis that is no option, or one that takes one value only.
std::vector<Combination> apply_axes(CLI::App& command, const std::vector<std::string>& axes,
                                    const std::vector<std::string>& single = {});

}  // namespace switchback::bench
