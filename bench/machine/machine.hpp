// SPDX-License-Identifier: Apache-2.0
// Bench: describes where a number was measured: the machine, its system, this build and its
// libraries.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "core/cpu/resources.hpp"
#include "switchback/context.hpp"

namespace switchback::bench {

/// The machine as a JSON object with these keys: device, cpu, isa, features, cores, threads,
/// threads_backend, l1d_bytes, l2_bytes, l3_bytes, memory_bytes, os, kernel, hypervisor (null if
/// none is detected), compiler, build_type, assertions, sanitizer, libraries, tool_version,
/// tool_commit. On a CUDA device also gpu, an object of texts.
nlohmann::ordered_json machine_json(const Context& context);

/// This program's name, version and commit: "switchback-bench 0.1.0 (3f2a91c)".
std::string tool_name();
/// The version of this build and the hash of its commit. The hash ends with "-dirty" if tracked
/// files were modified; it is "unknown" if the sources had no git history.
std::string tool_version();
std::string tool_commit();

/// A warning if other programs keep the cores busy, because measured rates are then not those of
/// the machine; else empty. Watches the load for a fifth of a second, during which the caller is
/// idle. Work that ended before, such as a build, does not count.
std::string busy_warning();

using core::available_memory_bytes;
using core::memory_bytes;

/// This build, from the build system. The variables are defined in a generated file
/// (cmake/write_build_info.cmake), which is rewritten only when its contents change.
namespace build_info {
extern const char* const version;
extern const char* const commit;
extern const char* const build_type;
extern const char* const sanitizer;
extern const bool assertions;
}  // namespace build_info

}  // namespace switchback::bench
