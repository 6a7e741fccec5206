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
  /// The relative standard error to reach: rounds continue until the median of each field is known
  /// to this share of itself, for at most most_rounds_of_repeat. 0: no such rule.
  double max_noise = 0;
  std::uint64_t seed = 0;
  /// Names of forced engines; they must exist. Empty: for int8 products the library's choice, for
  /// floating point products the fastest engine.
  std::string int8_engine;
  std::string standard_engine;
  /// On a device: `graphs` captures the calls and replays them as CUDA graphs; `cold_cache` evicts
  /// the operands from the L2 cache before every timed call.
  bool graphs = false;
  bool cold_cache = false;
  /// On a CPU: calls rotate among copies of their operands, so that this many bytes are used
  /// between two uses of a copy. 0: each call uses the same operands.
  double cold_bytes = 0;
  /// The source of tuned configurations. If it is set, each field is also timed with its default
  /// configuration in the same rounds. A step of a layer in mode auto is then also compared with
  /// one in mode standard.
  std::shared_ptr<const ConfigSource> tuned;
  /// No round begins after this time, except the first three.
  std::optional<measure::Clock::time_point> deadline;
  /// Detects disturbed rounds, which are repeated; the disturbed ones are discarded. Null:
  /// disturbance is not detected.
  measure::DisturbanceWatch* watch = nullptr;
  /// Called before every call; if it returns true, Interrupted is thrown.
  std::function<bool()> interrupted = [] { return false; };
};

struct FieldResult {
  CaseStatus status = CaseStatus::skipped;  ///< skipped: was not requested
  std::string why;
  measure::Stats stats;
  std::vector<double> times_ms;  ///< of each timed round; stats summarise them
  std::string engine;  ///< the engine that ran, with its configuration if any; may be empty
  double error = 0;    ///< see SampleCheck::error
  measure::Stats
      default_stats;  ///< of the default configuration, where a tuned one is measured too
  measure::Middle tuned_speedup{};  ///< speed-up over the default, in the same rounds
  bool tuned = false;               ///< whether a configuration other than the default ran
};

/// The number of rounds after which tuned and default configurations have been at each other's
/// place equally often. Speed-ups are computed over whole cycles.
inline constexpr std::size_t tuned_cycle = 4;

/// With CaseOptions::max_noise, the number of rounds is at most this factor times `repeat`.
inline constexpr int most_rounds_of_repeat = 100;

/// Whole passes of a layer in mode auto compared with mode standard, both with tuned
/// configurations.
struct LayerResult {
  measure::Stats standard_step, auto_step;        ///< W updated, forward, dX and dW
  measure::Stats standard_forward, auto_forward;  ///< prepared for eval
  measure::Middle step_speedup{}, forward_speedup{};
  std::string forward_mode, dx_mode, eval_mode;  ///< the modes that mode auto chose
};

struct CaseResult {
  Case shape;
  CaseStatus status = CaseStatus::ok;  ///< the worst of its fields
  std::string why;
  int repeat = 0;  ///< requested timed calls
  int rounds = 0;  ///< timed calls of each field
  /// For each round: how often the system took a core from one of this process's threads. Empty if
  /// that was not watched.
  std::vector<std::int64_t> preemptions;
  double copied_bytes = 0;  ///< of the copies of operands
  double setup_s = 0;
  double wall_s = 0;
  std::array<FieldResult, all_fields> fields;
  std::optional<LayerResult> layer;

  [[nodiscard]] const FieldResult& field(Field f) const { return fields[index(f)]; }
  /// The median of a field, if the field was measured and is correct.
  [[nodiscard]] std::optional<double> median_ms(Field f) const;
  [[nodiscard]] Record record() const;
};

/// Wraps the timed call of a field. Null, except in a test program that makes a field slower, to
/// see whether that is found.
using CallWrapper = std::function<void()> (*)(Field field, std::function<void()> call);
inline CallWrapper wrap_timed_call = nullptr;

/// Measures the chosen fields. Each is run once and checked. Then all fields that passed are called
/// one after another in each round, with repeat/2 warm-up rounds and `repeat` timed rounds. A field
/// that fails its check has status wrong; one whose engine refuses the problem has status
/// unsupported. Neither is timed. If memory cannot be allocated, the whole case is oom. Throws
/// Interrupted, and Error for any other failure.
CaseResult run_case(Context& context, const Case& c, const CaseOptions& options);

}  // namespace switchback::bench
