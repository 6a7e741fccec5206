// SPDX-License-Identifier: Apache-2.0
// Bench: measures one case (layer shape): makes its operands, checks the results, chooses the
// floating point engines, and times rounds.
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
  /// The relative standard error to reach. Rounds continue until the error of each field's median
  /// is at most this share of the median; there are at most most_rounds_of_repeat · repeat rounds.
  /// 0: no such rule.
  double max_noise = 0;
  std::uint64_t seed = 0;
  /// Names of engines to force; they must exist. Empty: int8 products use the library's choice, and
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
  /// configuration in the same rounds. A step of a layer in mode auto is then also compared with a
  /// step of a layer in mode standard.
  std::shared_ptr<const ConfigSource> tuned;
  /// A round that would probably end after this time is not begun, except for the first three
  /// rounds.
  std::optional<measure::Clock::time_point> deadline;
  /// Detects rounds that other programs disturb. Disturbed rounds are repeated and discarded. Null:
  /// disturbance is not detected.
  measure::DisturbanceWatch* watch = nullptr;
  /// Called before every call; if it returns true, Interrupted is thrown.
  std::function<bool()> interrupted = [] { return false; };
};

struct FieldResult {
  CaseStatus status = CaseStatus::skipped;  ///< `skipped` means that the field was not requested
  std::string why;
  measure::Stats stats;
  std::vector<double> times_ms;  ///< the time of each timed round; `stats` summarises them
  std::string engine;  ///< the engine that ran, with its configuration if any; may be empty
  double error = 0;    ///< error of the results, see SampleCheck::error
  /// The times with the default configuration, if a tuned one is measured too.
  measure::Stats default_stats;
  measure::Middle tuned_speedup{};  ///< speed-up over the default configuration, in the same rounds
  bool tuned = false;               ///< whether a configuration other than the default ran
};

/// A cycle of rounds. In it, a field's tuned and its default configuration are timed in each
/// other's place equally often. Speed-ups are computed over whole cycles.
inline constexpr std::size_t tuned_cycle = 4;

/// With CaseOptions::max_noise, the number of rounds is at most this factor times `repeat`.
inline constexpr int most_rounds_of_repeat = 100;

/// Whole passes of a layer in mode auto compared with a layer in mode standard, both with tuned
/// configurations.
struct LayerResult {
  /// Times of a training step: W updated, forward, dX and dW.
  measure::Stats standard_step, auto_step;
  /// Times of the forward of a layer prepared for eval.
  measure::Stats standard_forward, auto_forward;
  measure::Middle step_speedup{}, forward_speedup{};
  std::string forward_mode, dx_mode, eval_mode;  ///< the modes that mode auto chose
};

struct CaseResult {
  Case shape;
  CaseStatus status = CaseStatus::ok;  ///< the worst status of the case's fields
  std::string why;
  int repeat = 0;  ///< the number of timed calls that were requested
  int rounds = 0;  ///< the number of timed calls of each field that were kept
  /// For each round: how often the system took a core from one of this process's threads. Empty if
  /// the rounds were not watched.
  std::vector<std::int64_t> preemptions;
  double copied_bytes = 0;  ///< the bytes of the operands' copies, if caches are cold
  double setup_s = 0;
  double wall_s = 0;
  std::array<FieldResult, all_fields> fields;
  std::optional<LayerResult> layer;

  [[nodiscard]] const FieldResult& field(Field f) const { return fields[index(f)]; }
  /// The median time of a field in ms; empty if the field was not measured or is wrong.
  [[nodiscard]] std::optional<double> median_ms(Field f) const;
  [[nodiscard]] Record record() const;
};

/// Wraps the timed call of a field. It is null, except in a test program that makes a field slower
/// to see whether the comparison finds that.
using CallWrapper = std::function<void()> (*)(Field field, std::function<void()> call);
inline CallWrapper wrap_timed_call = nullptr;

/// Measures the chosen fields of a case. Each field is run once and checked. Then all fields that
/// passed are called one after another in each round, with repeat/2 warm-up rounds and `repeat`
/// timed rounds. A field that fails its check has status wrong; one whose engine refuses the
/// problem has status unsupported. Neither is timed. If memory cannot be allocated, the whole case
/// has status oom. Throws Interrupted, and Error for any other failure.
CaseResult run_case(Context& context, const Case& c, const CaseOptions& options);

}  // namespace switchback::bench
