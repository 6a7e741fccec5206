// SPDX-License-Identifier: Apache-2.0
// Core: what this CPU can do, probed once, and caps on it.
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
/// All levels; those of one architecture in ascending order.
const std::vector<Isa>& all_isas();
/// Whether a Context capped at `cap` may run code for `isa`: it is of the same architecture and no
/// higher. Every cap covers scalar code.
bool covers(Isa cap, Isa isa) noexcept;

/// This machine's features.
const CpuFeatures& cpu_features();

/// Cache sizes in bytes of core 0, 0 where the system does not tell.
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
