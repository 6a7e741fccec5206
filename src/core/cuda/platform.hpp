// SPDX-License-Identifier: Apache-2.0
// CUDA core: the backend as core sees it.
#pragma once

#include <span>

#include "core/device.hpp"

namespace switchback::core::cuda {

/// The kind of device that the linked backend runs on: cuda, or in tests emulated.
extern const DeviceKind kind;
/// Null in a build without CUDA.
const DevicePlatform* platform() noexcept;

/// The table of the CPU's entry and the linked backend's.
template <class Table, class Entry>
Table table_of(Entry cpu, Entry backend) noexcept {
  Table table;
  table.install(DeviceKind::cpu, cpu);
  table.install(kind, backend);
  return table;
}
template <class Entry>
DeviceTable<const Entry*> device_table(const Entry* cpu, const Entry* backend) noexcept {
  return table_of<DeviceTable<const Entry*>>(cpu, backend);
}
template <class Engine>
EngineTable<Engine> engine_table(std::span<const Engine* const> cpu,
                                 std::span<const Engine* const> backend) noexcept {
  return table_of<EngineTable<Engine>>(cpu, backend);
}

}  // namespace switchback::core::cuda
