// SPDX-License-Identifier: Apache-2.0
// Core: the capabilities of this CPU, which are queried once, and caps on them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/cpu/features.hpp"

namespace switchback::core {

/// The name of an instruction set level, such as "avx512_vnni".
std::string_view isa_name(Isa isa) noexcept;
/// The level with this name. Without one, throws Error(invalid_argument) that lists the valid
/// names.
Isa parse_isa(std::string_view name);
/// All instruction set levels; those of one architecture are in ascending order.
const std::vector<Isa>& all_isas();
/// Whether a Context capped at `cap` may run code for `isa`: `isa` belongs to the same architecture
/// and is not above the cap. Every cap covers scalar code.
bool covers(Isa cap, Isa isa) noexcept;

/// The features of this machine's CPU that this process can use.
const CpuFeatures& cpu_features();

/// Cache sizes in bytes, as core 0 sees them; 0 if the system does not report them.
struct CpuCaches {
  std::size_t l1d_bytes = 0;
  std::size_t l2_bytes = 0;
  std::size_t l3_bytes = 0;
};
const CpuCaches& cpu_caches();

/// The marketing name of the CPU, or "unknown".
std::string cpu_model();
/// The number of cores that this process may run on.
int available_cores();

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
