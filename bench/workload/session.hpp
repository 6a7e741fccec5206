// SPDX-License-Identifier: Apache-2.0
// Bench: what a workload runs in: the Context with its tuner, the limits of time and memory, and
// messages to the user.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include <nlohmann/json.hpp>

#include "bench/cli/terminal.hpp"
#include "measure/cpu_load.hpp"
#include "measure/disturbance.hpp"
#include "measure/stopwatch.hpp"
#include "switchback/context.hpp"
#include "switchback/tuner.hpp"

namespace CLI {
class App;
}

namespace switchback::bench {

/// The options that all workloads share.
struct SessionOptions {
  ContextOptions context;
  std::uint64_t seed = 1;
  std::optional<double> deadline_s;  ///< seconds for the whole run, from its start
  std::string out = "-";             ///< path of the record file, see RunOutput
  bool append = false;
  bool resume = false;
  bool dry_run = false;
  bool quiet = false;
  /// One part of a run that is divided among machines: every shard_count-th case, starting with
  /// case number `shard` (from 1).
  std::uint64_t shard = 1, shard_count = 1;
  std::string arguments;  ///< the command line, which is noted in the run file
};

class Session {
 public:
  /// Opens the device that the options name. Throws Error.
  Session(const SessionOptions& options, measure::Clock::time_point start);

  [[nodiscard]] const SessionOptions& options() const noexcept { return options_; }
  [[nodiscard]] Context& context() noexcept { return context_; }
  /// The description of the machine, from machine_json().
  [[nodiscard]] const nlohmann::ordered_json& machine() const noexcept { return machine_; }
  [[nodiscard]] bool on_cpu() const noexcept;
  /// Bytes of memory that are available for operands; 0 if the system does not say.
  [[nodiscard]] std::size_t free_bytes() const;

  [[nodiscard]] double elapsed_s() const;
  [[nodiscard]] std::optional<measure::Clock::time_point> deadline() const;
  /// Whether the user has asked to stop. Check it before every call that takes time, and throw
  /// Interrupted if it is true.
  [[nodiscard]] static bool interrupted() noexcept;

  /// note() and warning() print a line to stderr; note() does not if the run is quiet.
  void note(const std::string& text) { out_.note(text); }
  void warning(const std::string& text) { out_.warning(text); }
  [[nodiscard]] StatusLine& status_line() noexcept { return out_; }
  /// Measures how much of the machine other programs use.
  [[nodiscard]] measure::LoadMonitor& load() noexcept { return load_; }
  /// Notices measured rounds that other programs disturb. Its total() is that of the current case.
  [[nodiscard]] measure::DisturbanceWatch& disturbance() noexcept { return disturbance_; }

 private:
  const SessionOptions& options_;
  measure::Clock::time_point start_;
  Context context_;
  nlohmann::ordered_json machine_;
  StatusLine out_;
  measure::LoadMonitor load_;
  measure::DisturbanceWatch disturbance_;
};

/// Tunes layers in mode auto before a workload times them, with the options --tune and --cache.
class AutoTuning {
 public:
  /// `seconds`: the default of --tune, the time that the tuner may spend on each size.
  explicit AutoTuning(double seconds) noexcept : seconds_(seconds) {}

  void add_options(CLI::App& command);
  /// Throws Error(invalid_argument) if the value of --tune is negative.
  void check_options() const;
  /// Attaches a tuner to the session's Context. It uses the cache that --cache names, or the
  /// default one.
  void open(Session& session);
  /// Whether the value of --tune gives the tuner any time.
  [[nodiscard]] bool wanted() const noexcept { return seconds_ > 0; }
  /// Whether layers in mode auto ask a tuner. Then each kind of layer may use another mode.
  [[nodiscard]] bool attached() const noexcept { return tuner_ != nullptr; }
  /// Measures the problems of layers of these shapes that are not in the cache, within the time of
  /// --tune. Ends early if the program is interrupted.
  void tune(Context& context, std::span<const TuneShape> shapes) const;

 private:
  double seconds_;
  std::string cache_;
  std::shared_ptr<Tuner> tuner_;
};

}  // namespace switchback::bench
