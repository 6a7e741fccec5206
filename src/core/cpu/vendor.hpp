// SPDX-License-Identifier: Apache-2.0
// Core: who made the CPU and which one it is, for what its instruction set does not settle.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace switchback::core {

/// As CPUID spells it, "AuthenticAMD" for one; empty where there is no CPUID. Asked once.
std::string_view cpu_vendor();

/// "AMD family 26 model 2": CPUs of one design, whatever the name they are sold by, which may say
/// less on a virtual machine. Where there is no CPUID, cpu_model(). Asked once.
const std::string& cpu_design();
/// The same of a vendor as CPUID spells it and the signature of its first leaf.
std::string cpu_design(std::string_view vendor, std::uint32_t signature);

}  // namespace switchback::core
