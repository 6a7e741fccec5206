// SPDX-License-Identifier: Apache-2.0
// CUDA core: the backend as core sees it.
#pragma once

#include "core/device.hpp"

namespace switchback::core::cuda {

/// The kind of device that the linked backend runs on: cuda, or in tests emulated.
extern const DeviceKind kind;
/// Null in a build without CUDA.
const DevicePlatform* platform() noexcept;

/// The table of the CPU's entry and the linked backend's.
template <class Table>
Table table_of(typename Table::Entry cpu, typename Table::Entry backend) noexcept {
  Table table;
  table.install(DeviceKind::cpu, cpu);
  table.install(kind, backend);
  return table;
}

}  // namespace switchback::core::cuda
