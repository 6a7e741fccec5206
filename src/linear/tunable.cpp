// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: describes the mode of a layer's pass to the tuner: the names of the members of a
// PassProblem, a GroupedPassProblem and a ModeRanking in caches, and the values that they may have.
#include "core/tunable.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/rows_bucket.hpp"
#include "linear/mode.hpp"

namespace switchback::linear {

namespace {

using core::number;
using core::row;
using core::value_name;
using core::Word;

constexpr Word float_type(std::string_view name) {
  return {.name = name, .most = number(DType::bf16), .value_name = value_name<dtype_name, DType>};
}

constexpr Word pass_word(Pass last) {
  return {.name = "pass", .most = number(last), .value_name = value_name<pass_name, Pass>};
}
constexpr Word codes_word = {.name = "weight_codes",
                             .most = number(WeightCodes::cached),
                             .value_name = value_name<codes_name, WeightCodes>};

constexpr core::WordTable problem_table(row<&PassProblem::pass>(pass_word(Pass::step)),
                                        row<&PassProblem::weight>(codes_word),
                                        row<&PassProblem::m>({.name = "m"}),
                                        row<&PassProblem::n>({.name = "n"}),
                                        row<&PassProblem::k>({.name = "k"}),
                                        row<&PassProblem::dtype>(float_type("dtype")),
                                        row<&PassProblem::output>(float_type("output")),
                                        row<&PassProblem::bias>({.name = "bias", .most = 1}));

constexpr core::WordTable grouped_table(
    row<&GroupedPassProblem::pass>(pass_word(Pass::dx)),
    row<&GroupedPassProblem::weight>(codes_word),
    row(
        {.name = "m"}, [](const GroupedPassProblem& p) { return core::rows_bucket(p.m); },
        [](GroupedPassProblem& p, std::int64_t slots) { p.m = slots; }),
    row<&GroupedPassProblem::groups>({.name = "groups"}),
    row<&GroupedPassProblem::layout>({.name = "layout",
                                      .most = number(RowsLayout::columns),
                                      .value_name = value_name<layout_name, RowsLayout>}),
    row<&GroupedPassProblem::n>({.name = "n"}), row<&GroupedPassProblem::k>({.name = "k"}),
    row<&GroupedPassProblem::dtype>(float_type("dtype")),
    row<&GroupedPassProblem::output>(float_type("output")),
    row<&GroupedPassProblem::bias>({.name = "bias", .most = 1}));

// Describes one place of a ranking of modes to the tuner. The fastest mode is stored where other
// operations store their engine. The last mode is not stored: it is the one that remains.
template <std::size_t Place>
constexpr auto place(std::string_view name,
                     std::string_view (*value_name)(std::int64_t) noexcept = nullptr) {
  return row(
      {.name = name, .most = mode_count - 1, .value_name = value_name},
      [](const ModeRanking& ranking) { return number(ranking.modes[Place]); },
      [](ModeRanking& ranking, std::int64_t mode) {
        ranking.modes[Place] = static_cast<Mode>(mode);
      });
}

constexpr std::array<std::string_view, 5> place_names = {"", "second", "third", "fourth", "fifth"};
template <std::size_t... Later>
constexpr auto places(std::index_sequence<Later...>) {
  return core::WordTable(place<0>("engine", value_name<mode_name, Mode>),
                         place<Later + 1>(place_names.at(Later + 1))...);
}
constexpr auto config_table = places(std::make_index_sequence<choosable_modes.size() - 2>());

ConfigChoice rank(std::span<const ConfigChoice> fastest_first) {
  std::vector<Mode> order;
  const auto add = [&](Mode mode) {
    if (std::find(order.begin(), order.end(), mode) == order.end()) order.push_back(mode);
  };
  for (const ConfigChoice& choice : fastest_first)
    if (Mode mode{}; from_choice(choice, mode)) add(mode);
  // Modes that were not measured follow in the fixed order.
  for (const Mode mode : choosable_modes)
    add(mode);
  ModeRanking ranking;
  std::copy_n(order.begin(), ranking.modes.size(), ranking.modes.begin());
  return to_choice(ranking);
}

template <class Problem, const auto& Table>
constexpr core::Tunable make(ConfigOp op, std::string_view name) {
  core::Tunable made = core::make_tunable<Problem, ModeRanking, Table, config_table>(op, name, "");
  made.rank = rank;
  return made;
}

}  // namespace

constinit const core::Tunable tunable =
    make<PassProblem, problem_table>(ConfigOp::layer_mode, "layer_mode");
constinit const core::Tunable grouped_tunable =
    make<GroupedPassProblem, grouped_table>(ConfigOp::grouped_layer_mode, "grouped_layer_mode");

ConfigQuery to_query(const PassProblem& problem) noexcept {
  return core::make_query(ConfigOp::layer_mode, problem, problem_table, problem);
}

bool from_query(const ConfigQuery& query, PassProblem& problem) noexcept {
  return core::read_query(ConfigOp::layer_mode, problem_table, query, problem);
}

ConfigQuery to_query(const GroupedPassProblem& problem) noexcept {
  return core::make_query(ConfigOp::grouped_layer_mode, problem, grouped_table, problem);
}

bool from_query(const ConfigQuery& query, GroupedPassProblem& problem) noexcept {
  GroupedPassProblem found;
  if (!core::read_query(ConfigOp::grouped_layer_mode, grouped_table, query, found)) return false;
  // Strided groups all have the same number of rows, so m must be a multiple of their number.
  const bool strided = found.layout == RowsLayout::strided || found.layout == RowsLayout::columns;
  if (strided && found.groups > 0) found.m = found.m / found.groups * found.groups;
  // The ends of packed groups are 32-bit numbers, so m must fit into 32 bits.
  if (!strided) found.m = std::min<std::int64_t>(found.m, std::numeric_limits<std::int32_t>::max());
  problem = found;
  return true;
}

ConfigChoice to_choice(const ModeRanking& ranking) noexcept {
  return core::make_choice(config_table, ranking);
}

bool from_choice(const ConfigChoice& choice, ModeRanking& ranking) noexcept {
  ModeRanking found;
  if (!config_table.read(choice.words, found)) return false;
  for (const Mode mode : choosable_modes)
    if (std::find(found.modes.begin(), found.modes.end() - 1, mode) == found.modes.end() - 1)
      found.modes.back() = mode;
  if (!std::is_permutation(found.modes.begin(), found.modes.end(), choosable_modes.begin()))
    return false;
  ranking = found;
  return true;
}

ConfigChoice to_choice(Mode candidate) noexcept {
  ModeRanking ranking;
  ranking.modes.fill(Mode{});
  ranking.modes.front() = candidate;
  return to_choice(ranking);
}

bool from_choice(const ConfigChoice& choice, Mode& candidate) noexcept {
  ModeRanking found;
  if (!config_table.read(choice.words, found)) return false;
  candidate = found.modes.front();
  return true;
}

}  // namespace switchback::linear
