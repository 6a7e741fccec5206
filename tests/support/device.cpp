// SPDX-License-Identifier: Apache-2.0
#include "support/device.hpp"

#include <cstdlib>
#include <new>

namespace switchback::test {

namespace {

struct Tested {
  std::string name = "cpu";
  DeviceMemory memory;
};
Tested& tested() {
  static Tested one;
  return one;
}

}  // namespace

const std::string& device() {
  return tested().name;
}

void set_device(const std::string& name, DeviceMemory memory) {
  tested() = {name, memory};
}

void* allocate_bytes(std::size_t bytes) {
  const auto allocate = tested().memory.allocate;
  void* data = allocate != nullptr ? allocate(bytes) : std::malloc(bytes == 0 ? 1 : bytes);
  if (data == nullptr) throw std::bad_alloc();
  return data;
}

void release_bytes(void* data) noexcept {
  const auto release = tested().memory.release;
  if (release != nullptr)
    release(data);
  else
    std::free(data);
}

}  // namespace switchback::test
