// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: what the libraries behind the engines say about themselves, for `info` and
// records.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/device_table.hpp"

namespace switchback {

/// Name and description of each library this build uses on a kind of device, for example {"oneDNN",
/// "2.6.3 …"}.
std::vector<std::pair<std::string, std::string>> library_versions(DeviceKind device);

/// The version of each kind of device's cuBLASLt; null where there is none.
core::DeviceTable<std::string (*)()>& cublaslt_versions() noexcept;

}  // namespace switchback
