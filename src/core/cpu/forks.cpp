// SPDX-License-Identifier: Apache-2.0
#include "core/cpu/forks.hpp"

#include <pthread.h>

#include <atomic>

namespace switchback::core {

namespace {

std::atomic<unsigned> generation{0};

// The handler that counts fork()s is registered when the library is loaded, before a thread can use
// the library. pthread_atfork() fails only if memory runs out; then forks are not noticed. The C
// library removes the handler when the library is unloaded.
[[maybe_unused]] const int registered =
    pthread_atfork(nullptr, nullptr, [] { generation.fetch_add(1, std::memory_order_relaxed); });

}  // namespace

unsigned fork_generation() noexcept {
  return generation.load(std::memory_order_relaxed);
}

}  // namespace switchback::core
