// SPDX-License-Identifier: Apache-2.0
// Bench: measures one case: operands, checks, choice of the floating point engines, timed rounds.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/grid/grid.hpp"
#include "bench/run/fields.hpp"
#include "bench/run/record.hpp"
#include "bench/workload/workload.hpp"
#include "measure/rounds.hpp"
#include "measure/statistics.hpp"
#include "switchback/context.hpp"
#include "switchback/types.hpp"

namespace switchback::bench {

struct CaseOptions {
  DType dtype = DType::f32;
  FieldSet fields = every_field();
  int repeat = 10;
  double min_time_s = 0;
  /// Rounds go on until the median of each field is known to this share of itself (one standard
  /// error), for at most most_rounds_of_repeat. 0: no such rule.
  double max_noise = 0;
  std::uint64_t seed = 0;
  /// Forced engines by name, checked to exist; empty = the library's choice for int8 products, the
  /// fastest for floating point ones.
  std::string int8_engine;
  std::string standard_engine;
  /// On a device: calls are captured and replayed as CUDA graphs; the L2 cache is emptied of the
  /// operands before every timed call.
  bool graphs = false;
  bool cold_cache = false;
  /// On a CPU: calls take turns with copies of their operands, so that so many bytes lie between
  /// two uses of one. 0: each call uses the same operands.
  double cold_bytes = 0;
  /// The source of tuned configurations. If it is set, each field is also timed with its default
  /// configuration in the same rounds, and a step of a layer in mode auto beside one in mode
  /// standard.
  std::shared_ptr<const ConfigSource> tuned;
  /// After this time no round begins, except the first three.
  std::optional<measure::Clock::time_point> deadline;
  /// Notices disturbed rounds, which are made again and discarded; null: nobody does.
  measure::DisturbanceWatch* watch = nullptr;
  /// Called before every call; if it returns true, Interrupted is thrown.
  std::function<bool()> interrupted = [] { return false; };
};

struct FieldResult {
  CaseStatus status = CaseStatus::skipped;  ///< skipped: was not asked for
  std::string why;
  measure::Stats stats;
  std::vector<double> times_ms;  ///< of each timed round, which stats sum up
  std::string engine;  ///< that ran, with its configuration where it has one; may be empty
  double error = 0;    ///< see SampleCheck::error
  measure::Stats
      default_stats;  ///< of the default configuration, where a tuned one is measured too
  measure::Middle tuned_speedup{};  ///< over it, in the same rounds
  bool tuned = false;               ///< whether another configuration than the default ran
};

/// The number of rounds after which tuned and default configurations have had each other's places.
/// Speed-ups are computed over whole cycles.
inline constexpr std::size_t tuned_cycle = 4;

/// With CaseOptions::max_noise, so many times `repeat` rounds at most.
inline constexpr int most_rounds_of_repeat = 100;

/// Whole passes of a layer, in mode auto beside mode standard, both with what was tuned.
struct LayerResult {
  measure::Stats standard_step, auto_step;        ///< W updated, forward, dX and dW
  measure::Stats standard_forward, auto_forward;  ///< prepared for eval
  measure::Middle step_speedup{}, forward_speedup{};
  std::string forward_mode, dx_mode, eval_mode;  ///< that mode auto took
};

struct CaseResult {
  Case shape;
  CaseStatus status = CaseStatus::ok;  ///< the worst of its fields'
  std::string why;
  int repeat = 0;  ///< timed calls asked for
  int rounds = 0;  ///< timed calls made of each field
  /// By round: how often the system took a core from one of this process's threads in it; empty if
  /// nobody watched.
  std::vector<std::int64_t> preemptions;
  double copied_bytes = 0;  ///< of the operands that took turns
  double setup_s = 0;
  double wall_s = 0;
  std::array<FieldResult, all_fields> fields;
  std::optional<LayerResult> layer;

  [[nodiscard]] const FieldResult& field(Field f) const { return fields[index(f)]; }
  /// The median of a field that was measured and is right.
  [[nodiscard]] std::optional<double> median_ms(Field f) const;
  [[nodiscard]] Record record() const;
};

/// Wraps the timed call of a field. Null, except in a program of the tests that slows a field down
/// to see whether that is found.
using CallWrapper = std::function<void()> (*)(Field field, std::function<void()> call);
inline CallWrapper wrap_timed_call = nullptr;

/// Measures the chosen fields: each is run once and checked, then all that passed are called in
/// turns, repeat/2 rounds to warm up and `repeat` timed ones. A field that fails its check has
/// status wrong, one whose engine refuses the problem unsupported; neither is timed. If memory
/// cannot be allocated, the whole case is oom. Throws Interrupted, and Error for any other failure.
CaseResult run_case(Context& context, const Case& c, const CaseOptions& options);

}  // namespace switchback::bench
