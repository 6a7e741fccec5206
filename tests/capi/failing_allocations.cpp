// SPDX-License-Identifier: Apache-2.0
// Only the library's own allocations fail: what others (oneDNN, OpenMP) do without memory is up to
// them.
#include "capi/failing_allocations.hpp"

#include "capi/allocation_hooks.hpp"

namespace switchback::test {

namespace {

// Allocations that may still succeed; negative: all of them.
thread_local long allocations_left = -1;
thread_local Refuse refuse_how = Refuse::from_then;
thread_local bool refused = false;

}  // namespace

bool may_allocate(void* caller) {
  if (allocations_left < 0 || !is_of_library(caller)) return true;
  if (allocations_left == 0) {
    refused = true;
    if (refuse_how == Refuse::once) allocations_left = -1;
    return false;
  }
  --allocations_left;
  return true;
}

void refuse_allocations(long allowed, Refuse how) noexcept {
  allocations_left = allowed;
  refuse_how = how;
  refused = false;
}

bool stop_refusing() noexcept {
  allocations_left = -1;
  return refused;
}

}  // namespace switchback::test
