// SPDX-License-Identifier: Apache-2.0
// Core: the capabilities of this CPU, which are queried once, and caps on them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/cpu/features.hpp"

namespace switchback::core {

/// "avx512_vnni"
std::string_view isa_name(Isa isa) noexcept;
/// Throws Error(invalid_argument) that lists the names.
Isa parse_isa(std::string_view name);
/// All levels; the levels of one architecture are in ascending order.
const std::vector<Isa>& all_isas();
/// Whether a Context capped at `cap` may run code for `isa`: `isa` belongs to the same architecture
/// and is not above the cap. Every cap covers scalar code.
bool covers(Isa cap, Isa isa) noexcept;

/// This machine's features.
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
/// Cores this process may run on.
int available_cores();

}  // namespace switchback::core
