// SPDX-License-Identifier: Apache-2.0
#include "bench/machine/cpu_load.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>

#include "core/cpu/isa.hpp"

namespace switchback::bench {

namespace {

constexpr double shortest_window_s = 0.2;

std::vector<int> allowed_cores() {
  std::vector<int> cores;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) return cores;
  for (int i = 0; i < CPU_SETSIZE; ++i)
    if (CPU_ISSET(i, &set)) cores.push_back(i);
  return cores;
}

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

}  // namespace

std::optional<double> busy_seconds(std::string_view proc_stat, const std::vector<int>& cores,
                                   double ticks_per_s) {
  std::map<std::string, double> busy_of;
  std::istringstream text{std::string(proc_stat)};
  for (std::string line; std::getline(text, line);) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    if (!name.starts_with("cpu")) continue;
    // user nice system idle iowait irq softirq steal; guests are part of user.
    double ticks[8] = {};
    for (double& value : ticks)
      words >> value;
    busy_of[name] = (ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6] + ticks[7]) / ticks_per_s;
  }
  double busy_s = 0;
  for (const int core : cores) {
    const auto found = busy_of.find("cpu" + std::to_string(core));
    if (found == busy_of.end()) return std::nullopt;
    busy_s += found->second;
  }
  return cores.empty() ? std::nullopt : std::optional(busy_s);
}

LoadMonitor::Sample LoadMonitor::take() {
  static const std::vector<int> cores = allowed_cores();
  Sample sample;
  sample.time = measure::Clock::now();
  std::ifstream file("/proc/stat");
  std::stringstream text;
  text << file.rdbuf();
  const auto busy = busy_seconds(text.str(), cores, static_cast<double>(::sysconf(_SC_CLK_TCK)));
  rusage own{};
  if (!busy || ::getrusage(RUSAGE_SELF, &own) != 0) return sample;
  sample.busy_s = *busy;
  sample.own_s = seconds(own.ru_utime) + seconds(own.ru_stime);
  sample.counted = true;
  return sample;
}

std::optional<double> LoadMonitor::between(const Sample& from, const Sample& to) {
  const double window_s = std::chrono::duration<double>(to.time - from.time).count();
  if (!from.counted || !to.counted || window_s < shortest_window_s) return std::nullopt;
  // Some sandboxes show counters that stand still.
  if (to.busy_s <= from.busy_s && to.own_s > from.own_s + 0.1) return std::nullopt;
  return std::max(0.0, (to.busy_s - from.busy_s - (to.own_s - from.own_s)) / window_s);
}

LoadMonitor::LoadMonitor(int threads)
    : cores_(core::available_cores()), threads_(threads), first_(take()), last_(first_) {}

std::optional<double> LoadMonitor::others_cores() {
  const Sample now = take();
  if (const auto others = between(last_, now)) {
    others_ = others;
    last_ = now;
  }
  return others_;
}

std::optional<double> LoadMonitor::others_cores_overall() const {
  return between(first_, take());
}

bool LoadMonitor::disturbs(std::optional<double> others) const {
  if (!others) return false;
  const double in_the_way = *others - std::max(0, cores_ - threads_);
  return in_the_way > std::max(0.15, 0.05 * threads_);
}

std::string load_text(double others_cores, int cores) {
  return fmt::format("other programs used {:.1f} of the {} cores", others_cores, cores);
}

}  // namespace switchback::bench
