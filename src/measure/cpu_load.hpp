// SPDX-License-Identifier: Apache-2.0
// Measure: how much of the machine other programs used during a measurement.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "measure/stopwatch.hpp"

namespace switchback::measure {

/// Processor time, as the number of cores that would be busy all the time.
struct CpuShare {
  double others_cores = 0;  ///< cores that other programs and the host used
  double steal_cores = 0;   ///< the host's part of them: time taken from a virtual machine
};

/// Watches the processor time of the cores that this process may use, in /proc/stat, minus the time
/// of this process. It counts only what happens while it watches. Unlike a load average it forgets
/// a build that has just ended, and it sees the time that a host takes from a virtual machine.
class LoadMonitor {
 public:
  /// The shortest window of time for which the system's counters can tell the load.
  static constexpr double shortest_window_s = 0.2;

  /// `threads`: how many cores the measurement itself keeps busy.
  explicit LoadMonitor(int threads);

  /// What other programs and the host used since the last window ended, if that is long enough ago;
  /// otherwise what they used in the last window. Empty before the first window has ended, and
  /// where the system does not count processor time.
  std::optional<CpuShare> window();
  std::optional<double> others_cores();
  /// The cores that other programs and the host used since this object was made.
  [[nodiscard]] std::optional<double> others_cores_overall() const;
  /// Whether a load of `others` cores disturbs the measurement's threads. Load on idle cores does
  /// not. A load of up to a twentieth of the threads' cores does not count either, because any
  /// system uses that much by itself.
  [[nodiscard]] bool disturbs(std::optional<double> others) const;
  [[nodiscard]] int cores() const noexcept { return cores_; }

 private:
  struct Sample {
    measure::Clock::time_point time;
    double busy_s = 0;   ///< time of all programs and the host
    double steal_s = 0;  ///< time of the host
    double own_s = 0;    ///< time of this process
    bool counted = false;
  };
  static Sample take();
  [[nodiscard]] static std::optional<CpuShare> between(const Sample& from, const Sample& to);

  int cores_;
  int threads_;
  Sample first_, last_;
  std::optional<CpuShare> share_;
};

/// Describes a load, as in "other programs used 1.3 of the 2 cores".
std::string load_text(double others_cores, int cores);

/// Processor seconds of the given cores, from the text of /proc/stat. Empty if one of the cores is
/// missing there.
struct CpuSeconds {
  double busy_s = 0;   ///< user, nice, system, interrupt and steal time
  double steal_s = 0;  ///< time that the host took
};
std::optional<CpuSeconds> cpu_seconds(std::string_view proc_stat, const std::vector<int>& cores,
                                      double ticks_per_s);

}  // namespace switchback::measure
