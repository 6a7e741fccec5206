// SPDX-License-Identifier: Apache-2.0
// Core: who made the CPU, for choices that its instruction set does not settle.
#pragma once

#include <string_view>

namespace switchback::core {

/// As CPUID spells it, "AuthenticAMD" for one; empty where there is no CPUID. Asked once.
std::string_view cpu_vendor();

}  // namespace switchback::core
