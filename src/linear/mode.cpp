// SPDX-License-Identifier: Apache-2.0
#include "linear/mode.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/device.hpp"
#include "linear/linear_state.hpp"

namespace switchback::linear {

std::string describe(const PassProblem& p) {
  return fmt::format("{} of a layer, M {} N {} K {} {} -> {}{}, W's codes {}",
                     p.pass == Pass::dx ? "dX" : "forward", p.m, p.n, p.k, dtype_name(p.dtype),
                     dtype_name(p.output), p.bias ? ", bias" : "",
                     p.weight == WeightCodes::cached ? "cached" : "made");
}

core::ProblemSize size_of(const PassProblem& p) noexcept {
  core::ProblemSize size = core::product_size(p.m, p.n, p.k);
  // A search holds the operands of each mode, and what layers choose matters most.
  size.copies = 3;
  size.importance = 4;
  return size;
}

namespace {

std::string_view layout_text(RowsLayout layout) {
  switch (layout) {
    case RowsLayout::packed:
      return "packed";
    case RowsLayout::strided:
      return "strided";
    case RowsLayout::gathered:
      return "gathered";
    case RowsLayout::columns:
      return "side by side";
  }
  return "unknown";
}

}  // namespace

std::string describe(const GroupedPassProblem& p) {
  return fmt::format("{}, of {} groups, rows {}", describe(static_cast<const PassProblem&>(p)),
                     p.groups, layout_text(p.layout));
}

core::ProblemSize size_of(const GroupedPassProblem& p) noexcept {
  core::ProblemSize size = size_of(static_cast<const PassProblem&>(p));
  size.is_empty = size.is_empty || p.groups == 0;
  size.elements += static_cast<double>(std::max<std::int64_t>(0, p.groups - 1)) *
                   static_cast<double>(p.n) * static_cast<double>(p.k);
  return size;
}

std::string describe(const ModeRanking& ranking) {
  return fmt::format("{} before {} before {}", mode_name(ranking.modes[0]),
                     mode_name(ranking.modes[1]), mode_name(ranking.modes[2]));
}

ModeRanking default_config(const PassProblem&, const ContextState&) {
  return {};
}

std::string check_config(const PassProblem&, const ModeRanking&, const ContextState&) {
  return {};  // every ranking names a mode for every layer
}

std::vector<Mode> candidates(const PassProblem& p, const ContextState& state) {
  if (!core::why_no_int8(state).empty()) return {Mode::standard};
  const std::int64_t inner = p.pass == Pass::forward ? p.k : p.n;
  std::vector<Mode> modes;
  for (const Mode mode : choosable_modes)
    if (mode == Mode::standard || inner <= max_exact_k) modes.push_back(mode);
  return modes;
}

namespace {

// The tuned ranking if there is one, else the default; the source is told of one that cannot be
// used.
template <class Problem>
ModeRanking ranking_of(ContextState& state, const Problem& problem) {
  const ConfigQuery query = to_query(problem);
  ConfigChoice choice;
  ModeRanking ranking;
  if (!state.find_config(query, choice) || from_choice(choice, ranking)) return ranking;
  state.refuse_config(query, choice, core::no_configuration(tunable.config, choice));
  return default_config(problem, state);
}

Mode first_allowed(const ModeRanking& ranking, std::uint32_t allowed) {
  for (const Mode mode : ranking.modes)
    if ((allowed & allow_mode(mode)) != 0) return mode;
  return Mode::standard;
}

}  // namespace

Mode mode_of_pass(const LinearState& layer, Pass pass, std::int64_t rows, DType output, bool bias,
                  bool trains) {
  if (layer.options.mode != Mode::automatic) return layer.options.mode;
  PassProblem problem;
  problem.pass = pass;
  problem.m = rows;
  problem.n = layer.options.out_features;
  problem.k = layer.options.in_features;
  problem.dtype = layer.options.dtype;
  problem.output = output;
  problem.bias = bias;
  return fastest_mode(*layer.context, problem, layer.options.allow, layer.cache, trains);
}

bool computes_dw_in_int8(const LinearState& layer, std::int64_t rows) {
  if (layer.options.dw != WeightGradient::int8_block) return false;
  if (layer.options.mode == Mode::automatic && rows < least_rows_of_int8_dw) return false;
  // As an inference without a bias, so that forward and backward decide alike, whatever codes of
  // the weight there are by then.
  return mode_of_pass(layer, Pass::forward, rows, layer.options.dtype, false, false) !=
         Mode::standard;
}

namespace {

template <class Problem>
Mode fastest(ContextState& state, Problem problem, std::uint32_t allow, const WeightCache& cache,
             bool trains) {
  // Sums of more products are not exact; only a layer that may use mode standard can have them.
  const bool forward = problem.pass == Pass::forward;
  if ((forward ? problem.k : problem.n) > max_exact_k) return Mode::standard;
  const std::uint32_t allowed = allow == 0 ? all_choosable : allow;
  if ((allowed & allow_mode(Mode::standard)) != 0 && !core::why_no_int8(state).empty())
    return Mode::standard;
  const QuantizedWeight& codes = forward ? cache.forward_codes() : cache.backward_codes();
  // A pass that saves nothing is inference: the codes of the weight are used again.
  problem.weight = codes.valid() || !trains ? WeightCodes::cached : WeightCodes::made;
  problem.device = state.device.kind;
  if (state.on_cpu()) {
    problem.threads = state.threads.count();
    problem.isa = state.features.level();
  }
  const Mode first = first_allowed(ranking_of(state, problem), allowed);
  if (first == Mode::standard || !codes.valid() || codes.scales() == scales_of(first)) return first;
  // If codes with the other kind of scales exist, that mode is as fast, and making new codes is
  // not.
  const Mode other = first == Mode::rowwise ? Mode::global : Mode::rowwise;
  return (allowed & allow_mode(other)) != 0 ? other : first;
}

}  // namespace

Mode fastest_mode(ContextState& state, PassProblem problem, std::uint32_t allow,
                  const WeightCache& cache, bool trains) {
  return fastest(state, problem, allow, cache, trains);
}

Mode fastest_mode(ContextState& state, GroupedPassProblem problem, std::uint32_t allow,
                  const WeightCache& cache, bool trains) {
  return fastest(state, problem, allow, cache, trains);
}

}  // namespace switchback::linear
