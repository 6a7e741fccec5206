// SPDX-License-Identifier: Apache-2.0
#include "bench/measure/visible_memory.hpp"

#include <cstdlib>
#include <new>

#include "core/context_state.hpp"

namespace switchback::bench {

namespace {

std::shared_ptr<core::MemorySource>& current() noexcept {
  static std::shared_ptr<core::MemorySource> source;
  return source;
}

}  // namespace

VisibleMemory::VisibleMemory(const Context& context) {
  const auto& runtime = context.state().runtime;
  if (runtime != nullptr) current() = runtime->visible_memory();
}

VisibleMemory::~VisibleMemory() {
  current() = nullptr;
}

const std::shared_ptr<core::MemorySource>& visible_source() noexcept {
  return current();
}

void* take_visible_bytes(std::size_t bytes) {
  const std::size_t some = bytes == 0 ? 1 : bytes;
  if (current() != nullptr) return current()->allocate(some);
  if (void* data = std::malloc(some)) return data;
  throw std::bad_alloc();
}

void give_visible_bytes(void* data, std::size_t bytes) noexcept {
  if (current() != nullptr)
    current()->release(data, bytes == 0 ? 1 : bytes);
  else
    std::free(data);
}

}  // namespace switchback::bench
