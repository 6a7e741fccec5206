// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: what the libraries behind the engines say about themselves, for `info` and
// records.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/device_kind.hpp"

namespace switchback {

/// Name and description of each library this build uses on a kind of device, for example {"oneDNN",
/// "2.6.3 …"}.
std::vector<std::pair<std::string, std::string>> library_versions(DeviceKind device);

/// Makes the library of a kind of device known; tests do it for the emulated one.
void install_cublaslt_version(DeviceKind device, std::string (*version)()) noexcept;

}  // namespace switchback
