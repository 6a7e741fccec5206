// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "bench/cli/cli.hpp"
#include "bench/micro/benches.hpp"

// `micro call` reports what a call allocates, so this program counts. Only the plain form: the
// others of the standard library come down to it, and the aligned ones are not used here. (A
// sanitizer's do not, and do not like to be mixed: its builds do not count.)
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

// GCC sees through a replaced pair at -O3 and takes free() for the wrong partner of operator new.
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
