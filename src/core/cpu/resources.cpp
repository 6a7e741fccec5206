// SPDX-License-Identifier: Apache-2.0
#include "core/cpu/resources.hpp"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "core/cpu/isa.hpp"

namespace switchback::core {

namespace {

namespace fs = std::filesystem;

std::optional<double> number_in(const fs::path& file) {
  std::ifstream in(file);
  double value = 0;
  return in >> value ? std::optional(value) : std::nullopt;
}

// cpu.max of cgroup v2 is "QUOTA PERIOD" or "max PERIOD", in microseconds.
std::optional<double> quota_of_v2(const fs::path& group) {
  std::ifstream in(group / "cpu.max");
  double quota = 0;
  double period = 0;
  return in >> quota >> period && period > 0 ? std::optional(quota / period) : std::nullopt;
}

// In cgroup v1 a quota that is not positive means no limit.
std::optional<double> quota_of_v1(const fs::path& group) {
  const auto quota = number_in(group / "cpu.cfs_quota_us");
  const auto period = number_in(group / "cpu.cfs_period_us");
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return *quota / *period;
}

// Lowers `least` to the smallest CPU quota of a control group and its ancestors, up to the mount.
template <class QuotaOf>
void take_least(std::optional<double>& least, const fs::path& mount, const std::string& path,
                QuotaOf quota_of) {
  const auto take = [&](const fs::path& group) {
    const std::optional<double> quota = quota_of(group);
    if (quota && (!least || *quota < *least)) least = quota;
  };
  fs::path group;
  take(mount);
  for (const fs::path& name : fs::path(path).relative_path()) {
    if (name == "..") return;  // the group is not visible in this cgroup namespace
    group /= name;
    take(mount / group);
  }
}

bool names_cpu(const std::string& controllers) {
  return ("," + controllers + ",").find(",cpu,") != std::string::npos;
}

}  // namespace

std::optional<double> cpu_quota(const fs::path& root) {
  std::optional<double> least;
  const fs::path mounts = root / "sys/fs/cgroup";
  std::ifstream groups(root / "proc/self/cgroup");
  // A line of /proc/self/cgroup is ID:CONTROLLERS:PATH; the line of cgroup v2 has no controllers.
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty())
      take_least(least, mounts, path, quota_of_v2);
    else if (names_cpu(controllers))
      for (const fs::path& mount : {mounts / controllers, mounts / "cpu"})
        take_least(least, mount, path, quota_of_v1);
  }
  return least;
}

int default_threads() {
  static const std::optional<double> quota = [] {
    try {
      return cpu_quota();
    } catch (...) {  // no memory to build a path
      return std::optional<double>();
    }
  }();
  const int cores = available_cores();
  return quota && *quota < cores ? std::max(1, static_cast<int>(*quota)) : cores;
}

namespace {

std::size_t pages(int name) {
  const long count = sysconf(name);
  const long size = sysconf(_SC_PAGESIZE);
  return count > 0 && size > 0 ? static_cast<std::size_t>(count) * static_cast<std::size_t>(size)
                               : 0;
}

}  // namespace

std::size_t memory_bytes() {
  return pages(_SC_PHYS_PAGES);
}

std::size_t available_memory_bytes() {
  // MemAvailable includes page cache that the kernel can drop; MemFree does not.
  std::ifstream file("/proc/meminfo");
  std::string key;
  std::string rest;
  std::size_t kib = 0;
  while (file >> key) {
    if (key == "MemAvailable:" && file >> kib) return kib * 1024;
    std::getline(file, rest);
  }
#if defined(_SC_AVPHYS_PAGES)
  return pages(_SC_AVPHYS_PAGES);
#else
  return 0;
#endif
}

}  // namespace switchback::core
