// SPDX-License-Identifier: Apache-2.0
// Bench: memory for operands that both this program and the device under test touch: the host's on
// the CPU, managed memory on a CUDA device.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "core/memory_source.hpp"
#include "switchback/context.hpp"

namespace switchback::bench {

/// While it lives, visible memory is of this Context's device. Whatever was taken meanwhile must be
/// given back by then.
class VisibleMemory {
 public:
  explicit VisibleMemory(const Context& context);
  ~VisibleMemory();
  VisibleMemory(const VisibleMemory&) = delete;
  VisibleMemory& operator=(const VisibleMemory&) = delete;
};
/// What HostMatrix takes its memory from; null: the host.
const std::shared_ptr<core::MemorySource>& visible_source() noexcept;

void* take_visible_bytes(std::size_t bytes);
void give_visible_bytes(void* data, std::size_t bytes) noexcept;

template <class T>
struct VisibleAllocator {
  using value_type = T;
  VisibleAllocator() = default;
  template <class U>
  VisibleAllocator(const VisibleAllocator<U>&) noexcept {}
  T* allocate(std::size_t count) { return static_cast<T*>(take_visible_bytes(count * sizeof(T))); }
  void deallocate(T* data, std::size_t count) noexcept {
    give_visible_bytes(data, count * sizeof(T));
  }
  friend bool operator==(const VisibleAllocator&, const VisibleAllocator&) { return true; }
};
/// A vector that operations of the device can be given.
template <class T>
using Visible = std::vector<T, VisibleAllocator<T>>;

}  // namespace switchback::bench
