// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "bench/cli/cli.hpp"
#include "bench/micro/benches.hpp"

// `micro call` reports the allocations of a call, so this program counts the calls of operator new.
// Only the plain form is replaced: the other forms of the standard library call it, and the aligned
// ones are not used here. (The forms of a sanitizer do not call it, and must not be mixed with it;
// sanitized builds do not count.)
#if defined(SWITCHBACK_COUNT_ALLOCATIONS)
namespace {
std::atomic<std::int64_t> allocations{0};
}

void* operator new(std::size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  for (;;) {
    if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr) throw std::bad_alloc();
    handler();
  }
}

// At -O3 GCC inlines the replaced operators new and delete. Then it warns that free() does not
// match operator new.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
#endif

void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

#endif

int main(int argc, char** argv) {
#if defined(SWITCHBACK_COUNT_ALLOCATIONS)
  switchback::bench::allocations_so_far = []() noexcept { return allocations.load(); };
#endif
  return switchback::bench::run_cli(argc, argv);
}
