// SPDX-License-Identifier: Apache-2.0
#include "linear/mode.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "core/device.hpp"
#include "linear/linear_state.hpp"

namespace switchback::linear {

std::string describe(const PassProblem& p) {
  return fmt::format("{} of a layer, M {} N {} K {} {} -> {}{}, W's codes {}",
                     p.pass == Pass::dx ? "dX" : pass_name(p.pass), p.m, p.n, p.k,
                     dtype_name(p.dtype), dtype_name(p.output), p.bias ? ", bias" : "",
                     codes_name(p.weight));
}

core::ProblemSize size_of(const PassProblem& p) noexcept {
  core::ProblemSize size = core::product_size(p.m, p.n, p.k);
  // A search holds the operands of each mode. Shapes for which layers choose a mode matter most, so
  // they get a larger share of the tuning time.
  size.copies = p.pass == Pass::step ? 5 : 3;
  size.importance = 4;
  return size;
}

std::string describe(const GroupedPassProblem& p) {
  return fmt::format("{}, of {} groups, rows {}", describe(static_cast<const PassProblem&>(p)),
                     p.groups,
                     p.layout == RowsLayout::columns ? "side by side" : layout_name(p.layout));
}

core::ProblemSize size_of(const GroupedPassProblem& p) noexcept {
  core::ProblemSize size = size_of(static_cast<const PassProblem&>(p));
  size.is_empty = size.is_empty || p.groups == 0;
  size.elements += static_cast<double>(std::max<std::int64_t>(0, p.groups - 1)) *
                   static_cast<double>(p.n) * static_cast<double>(p.k);
  return size;
}

std::string describe(const ModeRanking& ranking) {
  std::string text;
  for (const Mode mode : ranking.modes)
    text.append(text.empty() ? "" : " before ").append(mode_name(mode));
  return text;
}

ModeRanking default_config(const PassProblem&, const ContextState&) {
  return {};
}

std::string check_config(const PassProblem&, const ModeRanking&, const ContextState&) {
  return {};  // every order of the modes is valid: a layer takes the first one that it allows
}

namespace {

// Whether the int32 sums of a pass are exact: they have at most max_exact_k products. Only a layer
// that may use mode standard can have longer sums.
bool has_exact_sums(const PassProblem& p) {
  return (p.pass == Pass::dx || p.k <= max_exact_k) &&
         (p.pass == Pass::forward || p.n <= max_exact_k);
}

}  // namespace

std::vector<Mode> candidates(const PassProblem& p, const ContextState& state) {
  if (!core::why_no_int8(state).empty()) return {Mode::standard};
  std::vector<Mode> modes;
  for (const Mode mode : choosable_modes) {
    // A mode that shares the codes of W between forward and dX is measured only in a step. Its
    // forward is the same as that of another mode, and its dX needs the codes of a forward.
    if (traits_of(mode).weight.shared && p.pass != Pass::step) continue;
    if (mode == Mode::standard || has_exact_sums(p)) modes.push_back(mode);
  }
  return modes;
}

namespace {

// The ranking of modes that the ConfigSource has for a problem, or nothing. If the ranking cannot
// be used, the source is told so.
template <class Problem>
std::optional<ModeRanking> tuned_ranking(ContextState& state, const Problem& problem) {
  const ConfigQuery query = to_query(problem);
  ConfigChoice choice;
  ModeRanking ranking;
  if (!state.find_config(query, choice)) return std::nullopt;
  if (from_choice(choice, ranking)) return ranking;
  state.refuse_config(query, choice, core::no_configuration(tunable.config, choice));
  return std::nullopt;
}

constexpr bool has(std::uint32_t modes, Mode mode) {
  return (modes & allow_mode(mode)) != 0;
}

// Returns the allowed mode that has the same scales as `mode` and whose dX shares the forward's
// codes of W; `mode` itself if no such mode is allowed.
Mode sharing(Mode mode, std::uint32_t allowed) {
  const ModeTraits& of = traits_of(mode);
  for (const Mode each : choosable_modes)
    if (const WeightForm form = traits_of(each).weight;
        of.is_int8() && has(allowed, each) && form.shared && form.scales == of.weight.scales)
      return each;
  return mode;
}

// The first allowed mode of a ranking. `shares_alike`: a mode whose dX shares the forward's codes
// of W is as fast as the mode that does not.
Mode first_allowed(const ModeRanking& ranking, std::uint32_t allowed, bool shares_alike) {
  for (const Mode mode : ranking.modes)
    for (const Mode each : {mode, shares_alike ? sharing(mode, allowed) : mode})
      if (has(allowed, each)) return each;
  return Mode::standard;
}

void run_in(const ContextState& state, PassProblem& problem) {
  problem.device = state.device.kind;
  if (!state.on_cpu()) return;
  problem.threads = state.threads.count();
  problem.isa = state.features.level();
}

// Whether codes of W in this form are the codes that a pass reads in a mode. All modes with the
// same scales read the same codes in the forward.
bool are_codes_of(WeightForm form, Mode mode, Pass pass) {
  const WeightForm wanted = traits_of(mode).weight;
  return pass == Pass::forward ? form.scales == wanted.scales : have_same_codes(form, wanted);
}

// Whether this pass can only run in mode standard: its sums may not be exact, or the device cannot
// multiply int8.
bool must_be_standard(const ContextState& state, std::uint32_t allowed, const PassProblem& p) {
  return !has_exact_sums(p) || (has(allowed, Mode::standard) && !core::why_no_int8(state).empty());
}

template <class Problem>
Mode fastest(ContextState& state, Problem problem, std::uint32_t allowed, const WeightCache& cache,
             bool trains) {
  const bool forward = problem.pass == Pass::forward;
  if (must_be_standard(state, allowed, problem)) return Mode::standard;
  const QuantizedWeight& codes = forward ? cache.forward_codes() : cache.backward_codes();
  // A pass that saves nothing is inference. Its codes of the weight will be used again, so they
  // count as cached.
  problem.weight = codes.valid() || !trains ? WeightCodes::cached : WeightCodes::made;
  run_in(state, problem);
  const ModeRanking ranking =
      tuned_ranking(state, problem).value_or(default_config(problem, state));
  // Modes that share W's codes are as fast as those that do not if codes exist, and in every
  // forward.
  const bool shares_alike = forward || problem.weight == WeightCodes::cached;
  const Mode first = first_allowed(ranking, allowed, shares_alike);
  if (first == Mode::standard) return first;
  // If W already has codes with other scales, a mode that reads them is as fast, and making new
  // codes is slower.
  const auto finds_codes = [&](Mode mode) {
    return has(allowed, mode) && are_codes_of(codes.form(), mode, problem.pass);
  };
  if (codes.valid() && !finds_codes(first))
    for (const Mode mode : choosable_modes)
      if (mode != Mode::standard && finds_codes(mode)) return mode;
  return first;
}

constexpr std::uint32_t or_all(std::uint32_t allow) {
  return allow == 0 ? all_choosable : allow;
}

}  // namespace

std::optional<Mode> mode_of_step(const LinearState& layer, std::int64_t rows, DType output,
                                 bool bias) {
  if (layer.options.mode != Mode::automatic) return std::nullopt;
  if (layer.cache.forward_codes().valid() || layer.cache.backward_codes().valid())
    return std::nullopt;
  ContextState& state = *layer.context;
  PassProblem problem = problem_of(layer.options, Pass::step, rows, output, bias);
  const std::uint32_t allowed = or_all(layer.options.allow);
  if (must_be_standard(state, allowed, problem)) return std::nullopt;
  run_in(state, problem);
  const std::optional<ModeRanking> ranking = tuned_ranking(state, problem);
  if (!ranking) return std::nullopt;
  const Mode first = first_allowed(*ranking, allowed, false);
  return first == Mode::standard ? std::nullopt : std::optional(first);
}

Mode mode_of_pass(const LinearState& layer, Pass pass, std::int64_t rows, DType output, bool bias,
                  bool trains, const Slots* slots) {
  const LinearOptions& options = layer.options;
  if (options.mode != Mode::automatic) return options.mode;
  if (slots == nullptr && pass == Pass::forward && trains)
    if (const std::optional<Mode> step = mode_of_step(layer, rows, output, bias)) return *step;
  const PassProblem problem = problem_of(options, pass, rows, output, bias);
  if (slots == nullptr)
    return fastest_mode(*layer.context, problem, options.allow, layer.cache, trains);
  return fastest(*layer.context, GroupedPassProblem{problem, slots->groups.count, slots->layout()},
                 or_all(options.allow), layer.cache, trains);
}

bool computes_dw_in_int8(const LinearState& layer, std::int64_t rows, const Slots* slots) {
  if (layer.options.dw != WeightGradient::int8_block) return false;
  const std::int64_t groups = slots == nullptr ? 1 : std::max<std::int64_t>(1, slots->groups.count);
  if (layer.options.mode == Mode::automatic && rows / groups < least_rows_of_int8_dw) return false;
  // Mode auto decides about dw as it does for inference without a bias. So forward and backward
  // decide alike, whatever codes of the weight exist by then.
  return mode_of_pass(layer, Pass::forward, rows, layer.options.dtype, false, false, slots) !=
         Mode::standard;
}

Mode fastest_mode(ContextState& state, PassProblem problem, std::uint32_t allow,
                  const WeightCache& cache, bool trains) {
  return fastest(state, problem, or_all(allow), cache, trains);
}

}  // namespace switchback::linear
