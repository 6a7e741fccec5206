// SPDX-License-Identifier: Apache-2.0
// Test support: every way in which this machine can run an operation: each instruction set, with
// one thread and with several.
#pragma once

#include <string>
#include <vector>

#include "core/cpu/isa.hpp"
#include "support/device.hpp"
#include "switchback/context.hpp"

namespace switchback::test {

/// Whether the build detects data races (ThreadSanitizer). One thread cannot race, so tests can
/// leave out runs with one thread.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool under_thread_sanitizer = true;
#else
inline constexpr bool under_thread_sanitizer = false;
#endif
/// Whether the build detects accesses out of bounds (AddressSanitizer). These happen at the edges
/// of a matrix, whatever its values are, so tests can use fewer cases.
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool under_address_sanitizer = true;
#else
inline constexpr bool under_address_sanitizer = false;
#endif
/// Either of them.
inline constexpr bool sanitized = under_thread_sanitizer || under_address_sanitizer;

/// Options for one Context at each instruction set level that this CPU distinguishes, with
/// `threads` threads.
inline std::vector<ContextOptions> isa_contexts(int threads = 1) {
  std::vector<ContextOptions> options;
  std::vector<core::Isa> reached;
  for (const core::Isa cap : core::all_isas()) {
    const core::Isa level = core::cpu_features().capped(cap).level();
    bool seen = false;
    for (const core::Isa other : reached)
      seen = seen || other == level;
    if (seen) continue;
    reached.push_back(level);
    ContextOptions option;
    option.device = "cpu";
    option.threads = threads;
    option.isa = std::string(core::isa_name(level));
    options.push_back(option);
  }
  return options;
}

/// Options for every Context to test. On the CPU: isa_contexts() with 1 thread and with 3 (more
/// than the cores of a small machine, and odd). On another device: one Context. ThreadSanitizer
/// builds have the lowest and the highest instruction set: those between divide work among threads
/// as these do.
inline std::vector<ContextOptions> all_contexts() {
  if (!on_cpu()) return {device_options()};
  if (under_thread_sanitizer) {
    const std::vector<ContextOptions> all = isa_contexts(3);
    return all.size() < 2 ? all : std::vector{all.front(), all.back()};
  }
  std::vector<ContextOptions> options = isa_contexts(1);
  for (auto& option : isa_contexts(3))
    options.push_back(option);
  return options;
}

inline std::string describe(const ContextOptions& o) {
  return o.device + " isa " + (o.isa.empty() ? "best" : o.isa) + " threads " +
         std::to_string(o.threads);
}

}  // namespace switchback::test
