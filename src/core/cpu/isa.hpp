// SPDX-License-Identifier: Apache-2.0
// Core: what this CPU can do, probed once, and caps on it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace switchback::core {

/// Named levels in ascending order; a Context may be capped at one (ContextOptions::isa).
enum class Isa { scalar, sse4, avx2, avx_vnni, avx512, avx512_vnni, amx };

std::string_view isa_name(Isa isa) noexcept;
/// Throws Error(invalid_argument) that lists the names.
Isa parse_isa(std::string_view name);
/// All levels in ascending order.
const std::vector<Isa>& all_isas();

/// Features usable by this process: the CPU has them and the operating system saves their state.
struct CpuFeatures {
  bool sse4 = false;         ///< SSE4.2 and SSSE3
  bool avx2 = false;         ///< AVX2, FMA and F16C
  bool avx_vnni = false;     ///< VEX-encoded vpdpbusd, 256 bit
  bool avx512 = false;       ///< AVX-512 F, BW, CD, DQ, VL
  bool avx512_vnni = false;  ///< EVEX vpdpbusd, 512 bit
  bool avx512_bf16 = false;
  bool amx_int8 = false;  ///< AMX tiles and int8, permission granted by the system

  /// The highest level these features reach.
  [[nodiscard]] Isa level() const noexcept;
  /// These features without those above the cap.
  [[nodiscard]] CpuFeatures capped(Isa cap) const noexcept;
};

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
