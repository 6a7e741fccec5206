// SPDX-License-Identifier: Apache-2.0
// Allocations of the library under test, made to fail. On top of allocation_hooks.cpp, for which
// failing_allocations.cpp defines may_allocate(): a program links both.
#pragma once

namespace switchback::test {

enum class Refuse {
  once,      ///< one allocation fails, those after it succeed
  from_then  ///< it and all after it fail
};

/// The step between the numbers of allocations that are tested. Sanitizers, which take ten times as
/// long, test a sample of the plain build's numbers.
#if defined(SWITCHBACK_TEST_SANITIZED)
inline constexpr long sample_step = 10;
#else
inline constexpr long sample_step = 1;
#endif

/// From here on in this thread: `allowed` allocations of the library succeed, then one fails.
void refuse_allocations(long allowed, Refuse how) noexcept;
/// Ends that. Returns whether an allocation was refused.
bool stop_refusing() noexcept;

/// The same for oneDNN's calls of posix_memalign, in all threads: `allowed` calls succeed, those
/// after them fail.
void refuse_allocations_of_onednn(long allowed) noexcept;
/// Whether there is a shared oneDNN, whose allocations can be refused.
bool has_shared_onednn() noexcept;
bool stop_refusing_onednn() noexcept;

}  // namespace switchback::test
