// SPDX-License-Identifier: Apache-2.0
// Bench: the environment of a workload: the Context, the limits of time and memory, and messages to
// the user.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "bench/cli/status_line.hpp"
#include "measure/cpu_load.hpp"
#include "measure/disturbance.hpp"
#include "measure/stopwatch.hpp"
#include "switchback/context.hpp"

namespace switchback::bench {

/// The options that all workloads share.
struct SessionOptions {
  ContextOptions context;
  std::uint64_t seed = 1;
  std::optional<double> deadline_s;  ///< for the whole run, from its start
  std::string out = "-";             ///< see RunOutput
  bool append = false;
  bool resume = false;
  bool dry_run = false;
  bool quiet = false;
  /// Only the first, the (1 + count)th, … of the cases in their order: one part of a run that is
  /// divided among many machines.
  std::uint64_t shard = 1, shard_count = 1;
  std::string arguments;  ///< the command line, for the run file
};

class Session {
 public:
  /// Opens the device. Throws Error.
  Session(const SessionOptions& options, measure::Clock::time_point start);

  [[nodiscard]] const SessionOptions& options() const noexcept { return options_; }
  [[nodiscard]] Context& context() noexcept { return context_; }
  /// From machine_json().
  [[nodiscard]] const nlohmann::ordered_json& machine() const noexcept { return machine_; }
  [[nodiscard]] bool on_cpu() const noexcept;
  /// Available bytes in the memory of operands; 0 if the system does not say.
  [[nodiscard]] std::size_t free_bytes() const;

  [[nodiscard]] double elapsed_s() const;
  [[nodiscard]] std::optional<measure::Clock::time_point> deadline() const;
  /// Whether the user has asked to stop. Check it before every call that takes time, and throw
  /// Interrupted if it is true.
  [[nodiscard]] static bool interrupted() noexcept;

  /// Prints to stderr: a note unless the run is quiet, a warning always.
  void note(const std::string& text) { out_.note(text); }
  void warning(const std::string& text) { out_.warning(text); }
  [[nodiscard]] StatusLine& status_line() noexcept { return out_; }
  /// Measures the load from other programs.
  [[nodiscard]] measure::LoadMonitor& load() noexcept { return load_; }
  /// Watches the rounds of measurements; its total is that of the current case.
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

}  // namespace switchback::bench
