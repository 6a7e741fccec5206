// SPDX-License-Identifier: Apache-2.0
// CUDA core: what the rest of core knows of the CUDA backend.
#pragma once

#include "core/device.hpp"

namespace switchback::core::cuda {

/// The kind of device that the linked backend runs on: cuda, or in tests emulated.
extern const DeviceKind kind;
/// The platform of the linked CUDA backend; null in a build without CUDA.
const DevicePlatform* platform() noexcept;

/// Makes a DeviceTable from the entry of the CPU and the entry of the linked backend.
template <class Table>
Table table_of(typename Table::Entry cpu, typename Table::Entry backend) noexcept {
  Table table;
  table.install(DeviceKind::cpu, cpu);
  table.install(kind, backend);
  return table;
}

}  // namespace switchback::core::cuda
