// SPDX-License-Identifier: Apache-2.0
#include "measure/cpu_load.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>

#include "core/cpu/isa.hpp"

namespace switchback::measure {

namespace {

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

std::optional<CpuSeconds> cpu_seconds(std::string_view proc_stat, const std::vector<int>& cores,
                                      double ticks_per_s) {
  std::map<std::string, CpuSeconds> seconds_of;
  std::istringstream text{std::string(proc_stat)};
  for (std::string line; std::getline(text, line);) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    if (!name.starts_with("cpu")) continue;
    // The columns of /proc/stat: user nice system idle iowait irq softirq steal. Guests are part of
    // user.
    double ticks[8] = {};
    for (double& value : ticks)
      words >> value;
    const double busy = ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6] + ticks[7];
    seconds_of[name] = {busy / ticks_per_s, ticks[7] / ticks_per_s};
  }
  CpuSeconds sum;
  for (const int core : cores) {
    const auto found = seconds_of.find("cpu" + std::to_string(core));
    if (found == seconds_of.end()) return std::nullopt;
    sum.busy_s += found->second.busy_s;
    sum.steal_s += found->second.steal_s;
  }
  return cores.empty() ? std::nullopt : std::optional(sum);
}

LoadMonitor::Sample LoadMonitor::take() {
  static const std::vector<int> cores = allowed_cores();
  Sample sample;
  sample.time = measure::Clock::now();
  std::ifstream file("/proc/stat");
  std::stringstream text;
  text << file.rdbuf();
  const auto counted = cpu_seconds(text.str(), cores, static_cast<double>(::sysconf(_SC_CLK_TCK)));
  rusage own{};
  if (!counted || ::getrusage(RUSAGE_SELF, &own) != 0) return sample;
  sample.busy_s = counted->busy_s;
  sample.steal_s = counted->steal_s;
  sample.own_s = seconds(own.ru_utime) + seconds(own.ru_stime);
  sample.counted = true;
  return sample;
}

std::optional<CpuShare> LoadMonitor::between(const Sample& from, const Sample& to) {
  const double window_s = std::chrono::duration<double>(to.time - from.time).count();
  if (!from.counted || !to.counted || window_s < shortest_window_s) return std::nullopt;
  // In some sandboxes the counters of /proc/stat do not advance.
  if (to.busy_s <= from.busy_s && to.own_s > from.own_s + 0.1) return std::nullopt;
  const double others_s = to.busy_s - from.busy_s - (to.own_s - from.own_s);
  return CpuShare{std::max(0.0, others_s / window_s),
                  std::max(0.0, (to.steal_s - from.steal_s) / window_s)};
}

LoadMonitor::LoadMonitor(int threads)
    : cores_(core::available_cores()), threads_(threads), first_(take()), last_(first_) {}

std::optional<CpuShare> LoadMonitor::window() {
  const Sample now = take();
  if (const auto share = between(last_, now)) {
    share_ = share;
    last_ = now;
  }
  return share_;
}

std::optional<double> LoadMonitor::others_cores() {
  const std::optional<CpuShare> share = window();
  return share ? std::optional(share->others_cores) : std::nullopt;
}

std::optional<double> LoadMonitor::others_cores_overall() const {
  const std::optional<CpuShare> share = between(first_, take());
  return share ? std::optional(share->others_cores) : std::nullopt;
}

bool LoadMonitor::disturbs(std::optional<double> others) const {
  if (!others) return false;
  const double in_the_way = *others - std::max(0, cores_ - threads_);
  return in_the_way > std::max(0.15, 0.05 * threads_);
}

std::string load_text(double others_cores, int cores) {
  return fmt::format("other programs used {:.1f} of the {} cores", others_cores, cores);
}

}  // namespace switchback::measure
