// SPDX-License-Identifier: Apache-2.0
// Core: the CPU time and the memory that this process may use.
#pragma once

#include <cstddef>
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

/// Bytes of host memory, and bytes that are available now; 0 if the system does not report them.
std::size_t memory_bytes();
std::size_t available_memory_bytes();

}  // namespace switchback::core
