// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: names and versions of the libraries behind the engines, for the `info` command and
// for records.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/device_table.hpp"

namespace switchback {

/// Name and description of each library this build uses on a kind of device, for example {"oneDNN",
/// "2.6.3 …"}.
std::vector<std::pair<std::string, std::string>> library_versions(DeviceKind device);

/// The version of each kind of device's cuBLASLt; null if there is none.
core::DeviceTable<std::string (*)()>& cublaslt_versions() noexcept;

}  // namespace switchback
