// SPDX-License-Identifier: Apache-2.0
// Bench: what the driver's management library says of a GPU's clocks, where it is installed.
#pragma once

#include <string>

namespace switchback::bench {

/// Why the GPU at this PCI address runs below its clocks now: "none", reasons with commas between,
/// or "not known" where the library is missing or does not tell.
std::string throttling(const std::string& pci_bus_id);

}  // namespace switchback::bench
