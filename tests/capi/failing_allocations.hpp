// SPDX-License-Identifier: Apache-2.0
// Test support: makes allocations of the library under test fail. A program links
// failing_allocations.cpp, which defines may_allocate(), and allocation_hooks.cpp, which calls it.
#pragma once

namespace switchback::test {

enum class Refuse {
  once,      ///< one allocation fails, later ones succeed
  from_then  ///< one allocation and all later ones fail
};

/// The step between the tested numbers of allocations that succeed. Sanitizers take ten times as
/// long, so they test a sample of the plain build's numbers.
#if defined(SWITCHBACK_TEST_SANITIZED)
inline constexpr long sample_step = 10;
#else
inline constexpr long sample_step = 1;
#endif

/// From this call on, in this thread: `allowed` allocations of the library succeed, then one fails.
void refuse_allocations(long allowed, Refuse how) noexcept;
/// Ends refuse_allocations(). Returns whether an allocation was refused.
bool stop_refusing() noexcept;

/// From this call on, in all threads: `allowed` calls of posix_memalign by oneDNN succeed, all
/// later ones fail.
void refuse_allocations_of_onednn(long allowed) noexcept;
/// Whether oneDNN is a shared library in this process, so that its allocations can be refused.
bool has_shared_onednn() noexcept;
bool stop_refusing_onednn() noexcept;

}  // namespace switchback::test
