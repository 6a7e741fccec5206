// SPDX-License-Identifier: Apache-2.0
// Core: the vendor and the design of the CPU, for decisions that depend on more than the
// instruction set.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace switchback::core {

/// The vendor as CPUID spells it, for example "AuthenticAMD"; empty if there is no CPUID. Queried
/// once.
std::string_view cpu_vendor();

/// For example "AMD family 26 model 2": it identifies CPUs of one design. The name under which a
/// CPU is sold may say less on a virtual machine. Without CPUID it is cpu_model(). Queried once.
const std::string& cpu_design();
/// The design for a vendor as CPUID spells it and the signature in CPUID's first leaf.
std::string cpu_design(std::string_view vendor, std::uint32_t signature);

}  // namespace switchback::core
