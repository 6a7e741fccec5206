// SPDX-License-Identifier: Apache-2.0
// Bench: what a workload is measured in: the Context, the limits of time and memory, and whom to
// tell.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "bench/cli/status_line.hpp"
#include "bench/machine/cpu_load.hpp"
#include "measure/stopwatch.hpp"
#include "switchback/context.hpp"

namespace switchback::bench {

/// The options that all workloads share.
struct SessionOptions {
  ContextOptions context;
  std::uint64_t seed = 1;
  std::optional<double> deadline_s;  ///< of the whole run, from its start
  std::string out = "-";
  bool append = false;
  bool resume = false;
  bool dry_run = false;
  bool quiet = false;
  std::string arguments;  ///< the command line in words, for the run file
};

class Session {
 public:
  /// Opens the device. Throws Error.
  Session(const SessionOptions& options, measure::Clock::time_point start);

  [[nodiscard]] const SessionOptions& options() const noexcept { return options_; }
  [[nodiscard]] Context& context() noexcept { return context_; }
  /// Of machine_json().
  [[nodiscard]] const nlohmann::ordered_json& machine() const noexcept { return machine_; }
  [[nodiscard]] bool on_cpu() const noexcept;
  /// Of the memory that operands lie in; 0 where the system does not tell.
  [[nodiscard]] std::size_t free_bytes() const;

  [[nodiscard]] double elapsed_s() const;
  [[nodiscard]] std::optional<measure::Clock::time_point> deadline() const;
  /// Whether the user asked to stop: to be asked before every call that takes time, and answered
  /// by throwing Interrupted.
  [[nodiscard]] static bool interrupted() noexcept;

  /// On stderr: a note unless the run is quiet, a warning in any case.
  void note(const std::string& text) { out_.note(text); }
  void warning(const std::string& text) { out_.warning(text); }
  [[nodiscard]] StatusLine& status_line() noexcept { return out_; }
  /// Watches what other programs use.
  [[nodiscard]] LoadMonitor& load() noexcept { return load_; }

 private:
  const SessionOptions& options_;
  measure::Clock::time_point start_;
  Context context_;
  nlohmann::ordered_json machine_;
  StatusLine out_;
  LoadMonitor load_;
};

}  // namespace switchback::bench
