// SPDX-License-Identifier: Apache-2.0
// Core: the vendor and the design of the CPU, for decisions that depend on more than the
// instruction set.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace switchback::core {

/// The CPU's vendor as CPUID spells it, for example "AuthenticAMD", queried once. Empty if there is
/// no CPUID.
std::string_view cpu_vendor();

/// The family and model of the CPU, for example "AMD family 26 model 2", which identify CPUs of one
/// design. The name under which a CPU is sold may say less on a virtual machine. Without CPUID the
/// function returns cpu_model(). Queried once.
const std::string& cpu_design();
/// The text that describes a CPU's design, from the vendor as CPUID spells it and the signature
/// (EAX) of CPUID leaf 1.
std::string cpu_design(std::string_view vendor, std::uint32_t signature);

}  // namespace switchback::core
