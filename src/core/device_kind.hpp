// SPDX-License-Identifier: Apache-2.0
// Core: a device's kind and index, as a value.
#pragma once

#include <cstdint>
#include <string>

namespace switchback {

/// Kinds of devices. Caches of the tuner store the values.
enum class DeviceKind : std::int64_t {
  cpu = 0,
  cuda = 1,
  emulated = 2,  ///< the CUDA backend run on the CPU, in tests
};
inline constexpr std::size_t device_kinds = 3;

struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;
  friend bool operator==(const Device&, const Device&) = default;
};

/// Parses "cpu", "cuda", "cuda:N"; empty means the best device of this machine. Throws
/// Error(invalid_argument) for an unknown name, and Error(device_error) for a device that this
/// build or machine does not have.
Device parse_device(const std::string& name);
/// The name of a device, such as "cpu" or "cuda:0".
std::string device_name(Device device);

}  // namespace switchback
