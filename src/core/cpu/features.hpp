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
  bool sse4 = false;         ///< SSE4.2 and SSSE3 are usable
  bool avx2 = false;         ///< AVX2, FMA and F16C are usable
  bool avx_vnni = false;     ///< VEX-encoded vpdpbusd on 256-bit vectors is usable
  bool avx512 = false;       ///< AVX-512 F, BW, CD, DQ and VL are usable
  bool avx512_vnni = false;  ///< EVEX-encoded vpdpbusd on 512-bit vectors is usable
  bool avx512_bf16 = false;
  /// AMX int8, avx512_vnni and avx512_bf16 are usable; the system has granted the use of AMX tiles.
  bool amx_int8 = false;
  bool amx_bf16 = false;      ///< AMX bf16 and amx_int8 are usable
  bool neon = false;          ///< NEON is usable; every AArch64 CPU has it
  bool neon_dotprod = false;  ///< sdot is usable
  bool neon_i8mm = false;     ///< smmla and sdot are usable

  /// Whether code for instruction set `isa` can run with these features. Scalar code always can.
  [[nodiscard]] bool has(Isa isa) const noexcept;
  /// The highest instruction set level that these features allow.
  [[nodiscard]] Isa level() const noexcept;
  /// A copy without the features of levels that are above `cap`.
  [[nodiscard]] CpuFeatures capped(Isa cap) const noexcept;
};

}  // namespace switchback::core
