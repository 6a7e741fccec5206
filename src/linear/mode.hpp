// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: chooses the mode of a pass of a layer in mode automatic: the fastest mode that the
// caller allows, according to the ConfigSource.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/check.hpp"
#include "core/modes.hpp"
#include "core/tunable.hpp"
#include "linear/slots.hpp"
#include "linear/weight_cache.hpp"
#include "switchback/linear.hpp"

namespace switchback::linear {

/// The passes for which mode auto chooses a mode. (How dw is computed is LinearOptions::dw.) The
/// values never change, because they are part of tuning records.
enum class Pass : std::int64_t {
  forward = 0,
  dx = 1,
  /// A training step: forward and dX in one mode, with a new W and a dw in floating point. One pass
  /// over W makes the codes for both, a saving that timing each pass alone does not show. Not for
  /// calls with groups.
  step = 2,
};

constexpr std::string_view pass_name(Pass pass) noexcept {
  return core::name_among({"forward", "dx", "step"}, pass);
}

/// Whether a pass quantizes the weight, as the first one after an update does, or finds its codes
/// in the cache.
enum class WeightCodes : std::int64_t { made = 0, cached = 1 };
constexpr std::string_view codes_name(WeightCodes codes) noexcept {
  return core::name_among({"made", "cached"}, codes);
}

/// What the tuner measures for mode auto: a whole pass of a layer, from float operands to the float
/// result (quantize, product and dequantize).
struct PassProblem : ConfigOrigin {
  Pass pass = Pass::forward;
  WeightCodes weight = WeightCodes::made;
  std::int64_t m = 0;
  std::int64_t n = 0;  ///< n and k are those of W[N,K], in every pass
  std::int64_t k = 0;
  DType dtype = DType::f32;
  DType output = DType::f32;
  /// In a forward: a bias is added. In dX: the gradient of the bias is computed too. In a step:
  /// both.
  bool bias = false;

  friend bool operator==(const PassProblem&, const PassProblem&) = default;
};

/// Describes a pass over `rows` rows to the tuner. Two parts are still to be set: the ConfigOrigin
/// (device, threads, instruction set), and whether the weight's codes are cached.
template <class Options>
PassProblem problem_of(const Options& options, Pass pass, std::int64_t rows, DType output,
                       bool bias) {
  PassProblem problem;
  problem.pass = pass;
  problem.m = rows;
  problem.n = options.out_features;
  problem.k = options.in_features;
  problem.dtype = options.dtype;
  problem.output = output;
  problem.bias = bias;
  return problem;
}

std::string describe(const PassProblem& problem);
core::ProblemSize size_of(const PassProblem& problem) noexcept;

constexpr std::string_view layout_name(RowsLayout layout) noexcept {
  return core::name_among({"packed", "strided", "gathered", "columns"}, layout);
}

/// A whole pass of a layer with groups, as the tuner measures it. m counts the slots of all groups.
/// Queries to the tuner have the bucket of m, a rounded number.
struct GroupedPassProblem : PassProblem {
  std::int64_t groups = 0;
  RowsLayout layout = RowsLayout::packed;

  friend bool operator==(const GroupedPassProblem&, const GroupedPassProblem&) = default;
};
std::string describe(const GroupedPassProblem& problem);
core::ProblemSize size_of(const GroupedPassProblem& problem) noexcept;

/// A bit mask, as in LinearOptions::allow, of the modes that have a property.
template <class Property>
constexpr std::uint32_t bits_of_modes(const Property& property) noexcept {
  std::uint32_t bits = 0;
  for (const ModeTraits& each : mode_table)
    if (property(each)) bits |= allow_mode(each.mode);
  return bits;
}
/// The modes that mode auto may choose from.
inline constexpr std::uint32_t all_choosable =
    bits_of_modes([](const ModeTraits& mode) { return mode.may_be_chosen; });
inline constexpr auto choosable_modes = [] {
  std::array<Mode, std::popcount(all_choosable)> modes{};
  std::size_t count = 0;
  for (const ModeTraits& each : mode_table)
    if (each.may_be_chosen) modes[count++] = each.mode;
  return modes;
}();

/// The modes that mode auto may choose from, the fastest first. A mode is ranked before `standard`
/// only if it is clearly faster. So if `standard` is allowed, the first allowed mode is never
/// slower than it.
struct ModeRanking {
  std::array<Mode, choosable_modes.size()> modes = choosable_modes;
  friend bool operator==(const ModeRanking&, const ModeRanking&) = default;
};
std::string describe(const ModeRanking& ranking);

// What core/tunable.hpp requires of a tunable operation; the tables are in tunable.cpp. The tuner
// measures candidates, each of which has one mode, and makes a ranking of modes from them.
extern const core::Tunable tunable;
ConfigQuery to_query(const PassProblem& problem) noexcept;
bool from_query(const ConfigQuery& query, PassProblem& problem) noexcept;
extern const core::Tunable grouped_tunable;
ConfigQuery to_query(const GroupedPassProblem& problem) noexcept;
bool from_query(const ConfigQuery& query, GroupedPassProblem& problem) noexcept;
ConfigChoice to_choice(const ModeRanking& ranking) noexcept;
bool from_choice(const ConfigChoice& choice, ModeRanking& ranking) noexcept;
ModeRanking default_config(const PassProblem& problem, const ContextState& state);
std::string check_config(const PassProblem& problem, const ModeRanking& ranking,
                         const ContextState& state);
std::vector<Mode> candidates(const PassProblem& problem, const ContextState& state);
ConfigChoice to_choice(Mode candidate) noexcept;
/// Reads the mode from a stored choice: the mode of a candidate, or the fastest mode of a ranking.
bool from_choice(const ConfigChoice& choice, Mode& candidate) noexcept;

/// The mode in which a pass of the layer runs: the layer's own mode. In mode auto it is the best
/// allowed mode for `rows` rows and this output type, by the ranking of the Context's ConfigSource.
/// Without a ranking it is `standard`, if that is allowed. A forward in training whose W has no
/// codes yet runs as mode_of_step() says. `slots`: the groups of the rows, or null.
Mode mode_of_pass(const LinearState& layer, Pass pass, std::int64_t rows, DType output, bool bias,
                  bool trains, const Slots* slots = nullptr);
/// In mode auto, the int8 mode in which a step with a new W is the fastest. Empty if W has codes,
/// if mode standard is as fast, or if nothing is known about steps. Then the mode of each pass is
/// chosen separately. Not for calls with groups.
std::optional<Mode> mode_of_step(const LinearState& layer, std::int64_t rows, DType output,
                                 bool bias);
/// In mode auto, dw over fewer rows than this is computed in floating point. Fewer rows fill at
/// most half of a usual block: codes padded to blocks would take more memory than x, and most time
/// goes into storing dw. (Zen 4, two threads, 1024 x 4096: with 64 rows, a step with an int8 dw
/// takes 1.25 times as long as one with a floating point dw for bf16, and as long for f32. With 128
/// rows it takes 0.9 and 0.7 of the time.)
inline constexpr std::int64_t least_rows_of_int8_dw = 128;
/// Whether the layer computes dw over `rows` rows from blockwise int8 codes, if the caller has not
/// kept such codes already. With groups, the mean number of rows per group counts.
bool computes_dw_in_int8(const LinearState& layer, std::int64_t rows, const Slots* slots = nullptr);
/// The mode that mode auto chooses if the options allow the modes `allow` (0: all). `problem`
/// describes the pass, except where it runs and whether the weight has codes; the function adds
/// these.
Mode fastest_mode(ContextState& state, PassProblem problem, std::uint32_t allow,
                  const WeightCache& cache, bool trains);

}  // namespace switchback::linear
