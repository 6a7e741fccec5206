// SPDX-License-Identifier: Apache-2.0
// Test support: the device this program tests, chosen by its flag --device, and memory that both
// the device and the test can read.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "switchback/context.hpp"

namespace switchback::test {

/// The tested device: "cpu" (the default), "emulated:0" or "cuda:0".
const std::string& device();
inline bool on_cpu() {
  return device() == "cpu";
}
/// Whether the tested device is the emulated one: the CUDA backend on the CPU. That is hundreds of
/// times slower than a GPU, so suites may use fewer cases.
inline bool on_emulated() {
  return device().starts_with("emulated");
}

/// Functions that allocate and release memory of the tested device. Set by main() before any test
/// runs.
struct DeviceMemory {
  void* (*allocate)(std::size_t bytes) = nullptr;
  void (*release)(void* data) = nullptr;
};
/// Allocates memory of the tested device. Throws std::bad_alloc.
void* allocate_bytes(std::size_t bytes);
void release_bytes(void* data) noexcept;

/// Sets the tested device, and the memory of operands if that is not the host's heap.
void set_device(const std::string& name, DeviceMemory memory);

/// An allocator of memory that both the tested device and the host can access.
template <class T>
struct Allocator {
  using value_type = T;
  Allocator() = default;
  template <class U>
  Allocator(const Allocator<U>&) noexcept {}
  T* allocate(std::size_t count) { return static_cast<T*>(allocate_bytes(count * sizeof(T))); }
  void deallocate(T* data, std::size_t) noexcept { release_bytes(data); }
  friend bool operator==(const Allocator&, const Allocator&) { return true; }
};
template <class T>
using Vector = std::vector<T, Allocator<T>>;

inline ContextOptions cpu_options() {
  ContextOptions options;
  options.device = "cpu";
  return options;
}
inline ContextOptions device_options() {
  ContextOptions options;
  options.device = device();
  return options;
}

}  // namespace switchback::test
