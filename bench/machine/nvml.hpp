// SPDX-License-Identifier: Apache-2.0
// Bench: the state of a GPU's clocks from the driver's management library, if that is installed.
#pragma once

#include <string>

namespace switchback::bench {

/// Why the GPU at this PCI address runs below its clocks now: "none", reasons separated by commas,
/// or "not known" if the library is missing or does not say.
std::string throttling(const std::string& pci_bus_id);

}  // namespace switchback::bench
