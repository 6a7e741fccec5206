// SPDX-License-Identifier: Apache-2.0
// Engine zone: which of Highway's targets are compiled, and which of them a Context uses. To be
// included before every other Highway header.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__x86_64__) || defined(__i386__)
// The Highway targets that are not compiled. One remains for each instruction set level that a
// Context can be capped at; others would only cost compile time. They are given by bit, because no
// version of Highway names them all: SPR, ZEN4, AVX3_DL, SSSE3, SSE2. Builds that search for races
// or fuzz the interface compile only SSE4, which every level includes: such faults do not depend on
// the length of a vector.
#if defined(SWITCHBACK_ONE_VECTOR_LENGTH)
#define HWY_DISABLED_TARGETS \
  ((1LL << 4) | (1LL << 6) | (1LL << 7) | (1LL << 8) | (1LL << 9) | (1LL << 12) | (1LL << 14))
#else
#define HWY_DISABLED_TARGETS ((1LL << 4) | (1LL << 6) | (1LL << 7) | (1LL << 12) | (1LL << 14))
#endif
#elif defined(__aarch64__)
// Only the vectors that every CPU has are compiled: arrays cannot hold vectors whose length is
// unknown. Where Highway could choose at run time, it would also require AES instructions;
// Highway's macro TOOLCHAIN_MISS_SYS_AUXV_H says that it cannot.
#define HWY_COMPILE_ONLY_STATIC
#define TOOLCHAIN_MISS_SYS_AUXV_H
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#endif

#include "hwy/targets.h"

#include "core/cpu/isa.hpp"

namespace switchback::quant::cpu {

/// The Highway targets that this machine supports, queried once: the query takes 20 µs in a virtual
/// machine.
inline std::int64_t supported_targets() {
  static const std::int64_t targets = hwy::SupportedTargets();
  return targets;
}

/// The Highway targets that these features allow.
inline std::int64_t allowed_targets(const core::CpuFeatures& features) {
#if HWY_ARCH_X86
  std::int64_t targets = 0;
  if (features.sse4) targets |= HWY_SSE4;
  if (features.avx2) targets |= HWY_AVX2;
  if (features.avx512) targets |= HWY_AVX3;
  return targets & supported_targets();
#elif defined(__aarch64__)
  return features.neon ? HWY_STATIC_TARGET : 0;
#else
  static_cast<void>(features);
  return supported_targets();
#endif
}

/// The entry of a HWY_DISPATCH_TABLE for the CPU features of a Context. Highway's own dispatch
/// makes one choice for the whole process.
inline std::size_t table_index(const core::CpuFeatures& features) {
#if (HWY_TARGETS & (HWY_TARGETS - 1)) == 0
  static_cast<void>(features);
  return 0;  // a single target was compiled, and the table holds nothing else
#else
  hwy::ChosenTarget chosen;
  chosen.Update(allowed_targets(features));
  return chosen.GetIndex();
#endif
}

}  // namespace switchback::quant::cpu
