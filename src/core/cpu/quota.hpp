// SPDX-License-Identifier: Apache-2.0
// CPU core: the CPU time that a container has.
#pragma once

#include <filesystem>
#include <optional>

namespace switchback::core {

/// The least quota of this process's control group and those around it (cgroup v1 and v2), in
/// cores; none: there is no limit. `root` holds proc/self/cgroup and sys/fs/cgroup. Where the
/// group's path is not visible, as in most containers, that of the mount counts.
std::optional<double> cpu_quota(const std::filesystem::path& root = "/");

/// The threads of a Context that names no number: every core this process may run on, but no more
/// than whole cores of its quota, which is read once.
int default_threads();

}  // namespace switchback::core
