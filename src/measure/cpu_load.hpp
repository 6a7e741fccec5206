// SPDX-License-Identifier: Apache-2.0
// Measure: how much of the machine others used while something was measured.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "measure/stopwatch.hpp"

namespace switchback::measure {

/// Cores' worth of processor time.
struct CpuShare {
  double others_cores = 0;  ///< of other programs and of the host
  double steal_cores = 0;   ///< the host's part of it: time taken from a virtual machine
};

/// Watches the processor time of the cores that this process may use, in /proc/stat, less its own.
/// What counts is what happens while it watches: unlike a load average it forgets a build that has
/// just ended, and it sees the time a host takes from a virtual machine.
class LoadMonitor {
 public:
  /// The system's counters need so long.
  static constexpr double shortest_window_s = 0.2;

  /// `threads`: how many of those cores the measurement itself keeps busy.
  explicit LoadMonitor(int threads);

  /// What others used since the last window ended, if that is long enough ago; else in that last
  /// window. Nothing until there has been one, and where the system does not count.
  std::optional<CpuShare> window();
  std::optional<double> others_cores();
  /// The same since this was made.
  [[nodiscard]] std::optional<double> others_cores_overall() const;
  /// Whether so much is in the way of the measurement's threads: idle cores are for everybody, and
  /// of the others a twentieth is what any system uses by itself.
  [[nodiscard]] bool disturbs(std::optional<double> others) const;
  [[nodiscard]] int cores() const noexcept { return cores_; }

 private:
  struct Sample {
    measure::Clock::time_point time;
    double busy_s = 0;   ///< of all programs and the host
    double steal_s = 0;  ///< of the host
    double own_s = 0;    ///< of this process
    bool counted = false;
  };
  static Sample take();
  [[nodiscard]] static std::optional<CpuShare> between(const Sample& from, const Sample& to);

  int cores_;
  int threads_;
  Sample first_, last_;
  std::optional<CpuShare> share_;
};

/// "other programs used 1.3 of the 2 cores"
std::string load_text(double others_cores, int cores);

/// Seconds of the given cores in the text of /proc/stat. Nothing if one of them is not there.
struct CpuSeconds {
  double busy_s = 0;   ///< user, nice, system, interrupts and steal
  double steal_s = 0;  ///< taken by the host
};
std::optional<CpuSeconds> cpu_seconds(std::string_view proc_stat, const std::vector<int>& cores,
                                      double ticks_per_s);

}  // namespace switchback::measure
