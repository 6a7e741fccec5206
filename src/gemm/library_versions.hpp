// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: names and versions of the libraries that the engines use, for the `info` command
// and for records.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/device_kind.hpp"

namespace switchback {

/// Name and description of each library this build uses on a kind of device, for example {"oneDNN",
/// "2.6.3 …"}.
std::vector<std::pair<std::string, std::string>> library_versions(DeviceKind device);

}  // namespace switchback
