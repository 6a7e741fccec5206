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

std::string many_valued(const CLI::App& command) {
  std::string names;
  for (const CLI::Option* option : command.get_options())
    if (takes_many(*option) && option->get_name() != "--axis" && option->get_name() != "--shape")
      names += (names.empty() ? "" : ", ") + option->get_name().substr(2);
  return names;
}

void give(CLI::Option& option, const std::vector<std::string>& values) {
  for (const std::string& value : values)
    option.add_result(value);
  option.run_callback();
}

}  // namespace

ValueAxis parse_axis(std::string_view text) {
  const std::size_t equals = text.find('=');
  core::require(equals != std::string_view::npos && equals > 0,
                "--axis '{}': it must be NAME=VALUES, such as m=16:4096:*2", text);
  ValueAxis axis;
  axis.name = text.substr(0, equals);
  const std::string option = fmt::format("--axis {}", axis.name);
  for (const std::string& part : split_list(text.substr(equals + 1)))
    add_range(axis.values, option, part);
  core::require(!axis.values.empty(), "--axis '{}': no value", text);
  return axis;
}

void add_axis_option(CLI::App& command, std::vector<std::string>& axes) {
  const bool shapes = command.get_option_no_throw("--shape") != nullptr;
  const std::string names = many_valued(command);
  if (!shapes && names.empty()) return;
  command
      .add_option(
          "--axis", axes,
          fmt::format(
              "NAME=V,V,… with numbers and ranges FROM:TO:*FACTOR or FROM:TO:+STEP: {}; given "
              "again: every combination",
              shapes ? "m, k and n of shapes (batch, dim_in, dim_out)"
                     : "all of them to the option NAME, one of " + names))
      ->type_name("NAME=LIST")
      ->allow_extra_args(false);
}

void apply_axes(CLI::App& command, const std::vector<std::string>& axes) {
  CLI::Option* const shape = command.get_option_no_throw("--shape");
  std::array<std::vector<std::int64_t>, 3> sides;
  constexpr std::string_view side_names = "mkn";
  bool any_side = false;
  for (const std::string& text : axes) {
    const ValueAxis axis = parse_axis(text);
    const std::size_t side =
        axis.name.size() == 1 ? side_names.find(axis.name) : std::string_view::npos;
    if (shape != nullptr && side != std::string_view::npos) {
      sides[side].insert(sides[side].end(), axis.values.begin(), axis.values.end());
      any_side = true;
      continue;
    }
    CLI::Option* const option = command.get_option_no_throw("--" + axis.name);
    if (option == nullptr || !takes_many(*option) || option == shape || axis.name == "axis")
      core::fail(Status::invalid_argument, "--axis {}: it is not one of {}{}", axis.name,
                 shape != nullptr ? "m, k, n" : "", shape != nullptr ? "" : many_valued(command));
    std::vector<std::string> values;
    for (const std::int64_t v : axis.values)
      values.push_back(std::to_string(v));
    give(*option, values);
  }
  if (!any_side) return;
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
}

}  // namespace switchback::bench
