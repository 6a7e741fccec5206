// SPDX-License-Identifier: Apache-2.0
// Makes allocations of the switchback library fail, or those of oneDNN. How other libraries behave
// without memory is not tested.
#include "capi/failing_allocations.hpp"

#include <dlfcn.h>
#include <malloc.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <limits>

#include "capi/allocation_hooks.hpp"

namespace switchback::test {

namespace {

// The number of allocations of the library that may still succeed in this thread; negative: all.
thread_local long allocations_left = -1;
thread_local Refuse refuse_how = Refuse::from_then;
thread_local bool refused = false;
// The number of allocations of oneDNN that may still succeed, in any thread.
constexpr long no_limit = std::numeric_limits<long>::max();
std::atomic<long> left_to_onednn = no_limit;
std::atomic<bool> onednn_was_refused = false;

bool is_of_onednn(void* code) {
  Dl_info there = {};
  Dl_info onednn = {};
  return dladdr(code, &there) != 0 && dladdr(dlsym(RTLD_DEFAULT, "dnnl_sgemm"), &onednn) != 0 &&
         there.dli_fbase == onednn.dli_fbase;
}

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

void refuse_allocations_of_onednn(long allowed) noexcept {
  onednn_was_refused = false;
  left_to_onednn = allowed;
}

bool has_shared_onednn() noexcept {
  return dlsym(RTLD_DEFAULT, "dnnl_sgemm") != nullptr;
}

bool stop_refusing_onednn() noexcept {
  left_to_onednn = no_limit;
  return onednn_was_refused;
}

bool stop_refusing() noexcept {
  allocations_left = -1;
  return refused;
}

}  // namespace switchback::test

// Replaces posix_memalign, from which oneDNN's products get memory.
extern "C" __attribute__((visibility("default"))) int posix_memalign(void** memory,
                                                                     std::size_t align,
                                                                     std::size_t bytes) noexcept {
  using namespace switchback::test;
  if (left_to_onednn != no_limit && is_of_onednn(__builtin_return_address(0)) &&
      --left_to_onednn < 0) {
    onednn_was_refused = true;
    return ENOMEM;
  }
  void* const found = memalign(align, bytes);
  if (found == nullptr) return ENOMEM;
  *memory = found;
  return 0;
}
