// SPDX-License-Identifier: Apache-2.0
#include "bench/workload/axis.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>

#include "bench/cli/cli.hpp"
#include "bench/grid/grid.hpp"
#include "core/check.hpp"

namespace switchback::bench {

namespace {

constexpr std::int64_t most = std::int64_t{1} << 40;

std::int64_t parse_value(std::string_view option, std::string_view text) {
  return static_cast<std::int64_t>(parse_integer(option, text, 1, most));
}

void add_range(std::vector<std::int64_t>& values, std::string_view option,
               const std::string& part) {
  const std::vector<std::string> ends = split_list(part, ':');
  if (ends.size() == 1 && part.find(':') == std::string::npos) {
    values.push_back(parse_value(option, ends[0]));
    return;
  }
  core::require(ends.size() == 3 && ends[2].size() >= 2 && (ends[2][0] == '*' || ends[2][0] == '+'),
                "{}: '{}' is neither a number nor a range FROM:TO:*FACTOR or FROM:TO:+STEP", option,
                part);
  const std::int64_t from = parse_value(option, ends[0]), to = parse_value(option, ends[1]),
                     step = parse_value(option, std::string_view(ends[2]).substr(1));
  const bool factor = ends[2][0] == '*';
  core::require(from <= to, "{}: the range {} is empty", option, part);
  core::require(!factor || step >= 2, "{}: '{}': a factor must be at least 2", option, part);
  for (std::int64_t v = from; v <= to; v = factor ? v * step : v + step) {
    values.push_back(v);
    core::require(values.size() <= grid_limits::cases, "{}: more than {} values", option,
                  grid_limits::cases);
  }
}

bool takes_many(const CLI::Option& option) {
  return option.get_items_expected_max() > 1;
}

std::string names_of_axes(const CLI::App& command, const std::vector<std::string>& single) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options())
    if (takes_many(*option) && option->get_name() != "--axis" && option->get_name() != "--shape")
      names.push_back(option->get_name().substr(2));
  names.insert(names.end(), single.begin(), single.end());
  return fmt::format("{}", fmt::join(names, ", "));
}

// Numbers, ranges, and words that the option itself understands or refuses.
std::vector<std::string> option_values(std::string_view text, const std::string& name) {
  const std::string option = fmt::format("--axis {}", name);
  std::vector<std::string> values;
  for (const std::string& part : split_list(text.substr(text.find('=') + 1))) {
    if (part.find(':') == std::string::npos) {
      values.push_back(part);
      continue;
    }
    std::vector<std::int64_t> range;
    add_range(range, option, part);
    for (const std::int64_t v : range)
      values.push_back(std::to_string(v));
  }
  core::require(!values.empty(), "--axis '{}': no value", text);
  return values;
}

std::string axis_name(std::string_view text) {
  const std::size_t equals = text.find('=');
  core::require(equals != std::string_view::npos && equals > 0,
                "--axis '{}': it must be NAME=VALUES, such as m=16:4096:*2", text);
  return std::string(text.substr(0, equals));
}

void give(CLI::Option& option, const std::vector<std::string>& values) {
  for (const std::string& value : values)
    option.add_result(value);
  option.run_callback();
}

}  // namespace

ValueAxis parse_axis(std::string_view text) {
  ValueAxis axis;
  axis.name = axis_name(text);
  const std::string option = fmt::format("--axis {}", axis.name);
  for (const std::string& part : split_list(text.substr(axis.name.size() + 1)))
    add_range(axis.values, option, part);
  core::require(!axis.values.empty(), "--axis '{}': no value", text);
  return axis;
}

void add_axis_option(CLI::App& command, std::vector<std::string>& axes,
                     const std::vector<std::string>& single) {
  const bool shapes = command.get_option_no_throw("--shape") != nullptr;
  const std::string names = names_of_axes(command, single);
  if (!shapes && names.empty()) return;
  command
      .add_option(
          "--axis", axes,
          fmt::format(
              "NAME=V,V,… with numbers and ranges FROM:TO:*FACTOR or FROM:TO:+STEP: {}; given "
              "again: every combination",
              shapes ? "m, k and n of shapes (batch, dim_in, dim_out)"
                     : "all of them for the option NAME, one of " + names))
      ->type_name("NAME=LIST")
      ->allow_extra_args(false);
}

std::vector<Combination> apply_axes(CLI::App& command, const std::vector<std::string>& axes,
                                    const std::vector<std::string>& single) {
  CLI::Option* const shape = command.get_option_no_throw("--shape");
  std::array<std::vector<std::int64_t>, 3> sides;
  constexpr std::string_view side_names = "mkn";
  bool any_side = false;
  std::vector<std::pair<std::string, std::vector<std::string>>> products;
  for (const std::string& text : axes) {
    const std::string name = axis_name(text);
    const std::size_t side = name.size() == 1 ? side_names.find(name) : std::string_view::npos;
    if (shape != nullptr && side != std::string_view::npos) {
      const ValueAxis axis = parse_axis(text);
      sides[side].insert(sides[side].end(), axis.values.begin(), axis.values.end());
      any_side = true;
      continue;
    }
    CLI::Option* const option = command.get_option_no_throw("--" + name);
    const bool one = std::find(single.begin(), single.end(), name) != single.end();
    if (option == nullptr || (!one && !takes_many(*option)) || option == shape || name == "axis")
      core::fail(Status::invalid_argument, "--axis {}: it is not one of {}{}", name,
                 shape != nullptr ? "m, k, n" : "",
                 shape != nullptr ? "" : names_of_axes(command, single));
    const std::vector<std::string> values = option_values(text, name);
    if (!one) {
      give(*option, values);
      continue;
    }
    core::require(option->count() == 0, "--axis {}: --{} is given too; leave out one of them", name,
                  name);
    const auto known = std::find_if(products.begin(), products.end(),
                                    [&](const auto& p) { return p.first == name; });
    auto& all = known != products.end()
                    ? known->second
                    : products.emplace_back(name, std::vector<std::string>()).second;
    for (const std::string& value : values)
      if (std::find(all.begin(), all.end(), value) == all.end()) all.push_back(value);
  }
  std::vector<Combination> combinations;
  if (!products.empty()) combinations.emplace_back();
  for (const auto& [name, values] : products) {
    core::require(combinations.size() * values.size() <= grid_limits::cases,
                  "--axis: more than {} combinations", grid_limits::cases);
    std::vector<Combination> longer;
    for (const Combination& start : combinations)
      for (const std::string& value : values) {
        longer.push_back(start);
        longer.back().emplace_back(name, value);
      }
    combinations = std::move(longer);
  }
  if (!any_side) return combinations;
  for (std::size_t i = 0; i < sides.size(); ++i)
    core::require(!sides[i].empty(), "--axis: m, k and n make a shape together; {} is missing",
                  side_names.substr(i, 1));
  core::require(sides[0].size() * sides[1].size() * sides[2].size() <= grid_limits::cases,
                "--axis: m, k and n make {} shapes; at most {} are allowed",
                sides[0].size() * sides[1].size() * sides[2].size(), grid_limits::cases);
  std::vector<std::string> shapes;
  for (const std::int64_t m : sides[0])
    for (const std::int64_t k : sides[1])
      for (const std::int64_t n : sides[2])
        shapes.push_back(fmt::format("{},{},{}", m, k, n));
  give(*shape, shapes);
  return combinations;
}

}  // namespace switchback::bench
