// SPDX-License-Identifier: Apache-2.0
// Core: how much CPU time the container of this process may use.
#pragma once

#include <filesystem>
#include <optional>

namespace switchback::core {

/// The least quota of this process's control group and its ancestors (cgroup v1 and v2), in cores;
/// empty if there is no limit. `root` holds proc/self/cgroup and sys/fs/cgroup. If the group's path
/// is not visible, as in most containers, the quota of the mount is used.
std::optional<double> cpu_quota(const std::filesystem::path& root = "/");

/// The number of threads of a Context that specifies none: one for every core that this process may
/// run on, but at most the number of whole cores of its quota. The quota is read once.
int default_threads();

}  // namespace switchback::core
