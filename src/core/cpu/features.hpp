// SPDX-License-Identifier: Apache-2.0
// Core: the instruction sets that the library has code for, and which of them a process can use.
// This header includes no standard header and has no inline code, so that kernel files, each
// compiled for its own instruction set, may include it.
#pragma once

namespace switchback::core {

/// Named levels of instruction sets; a Context may be capped at one (ContextOptions::isa). The
/// values are stored in caches: append a new level at the end, whatever its rank. The table in
/// isa.cpp holds the other properties of a level.
enum class Isa {
  scalar,
  sse4,
  avx2,
  avx_vnni,
  avx512,
  avx512_vnni,
  amx,
  neon,
  neon_dotprod,
  neon_i8mm
};
inline constexpr int isa_count = 10;

/// Features usable by this process: the CPU has them and the operating system saves their state.
struct CpuFeatures {
  bool sse4 = false;         ///< SSE4.2 and SSSE3
  bool avx2 = false;         ///< AVX2, FMA and F16C
  bool avx_vnni = false;     ///< VEX-encoded vpdpbusd, 256 bit
  bool avx512 = false;       ///< AVX-512 F, BW, CD, DQ, VL
  bool avx512_vnni = false;  ///< EVEX vpdpbusd, 512 bit
  bool avx512_bf16 = false;
  bool amx_int8 = false;  ///< AMX tiles and int8, with the above; permission granted by the system
  bool amx_bf16 = false;  ///< AMX bf16, with amx_int8
  bool neon = false;      ///< the vectors of AArch64, which every such CPU has
  bool neon_dotprod = false;  ///< sdot
  bool neon_i8mm = false;     ///< smmla, with sdot

  /// Whether code for this level can run. Scalar code always can.
  [[nodiscard]] bool has(Isa isa) const noexcept;
  /// The highest level these features reach.
  [[nodiscard]] Isa level() const noexcept;
  /// These features without those above the cap.
  [[nodiscard]] CpuFeatures capped(Isa cap) const noexcept;
};

}  // namespace switchback::core
