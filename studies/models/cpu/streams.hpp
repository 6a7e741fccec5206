// SPDX-License-Identifier: Apache-2.0
// Models, engine zone: when CPU kernels prefetch, when their stores bypass the caches, and how many
// rows a task has.
#pragma once

#include "core/context_state.hpp"
#include "switchback/matrix.hpp"

namespace switchback::models {

/// Whether a core's own prefetchers follow several streams across page borders, so that software
/// prefetches only use up resources. This is the case on AMD's Zen 4, where a norm of a sum took
/// 1.4 times as long with software prefetches. Intel's prefetchers start again at each page.
bool follows_pages();

/// How a kernel stores its results.
struct Stores {
  bool past_caches = false;
  bool avx512_bf16 = false;  ///< round to bf16 with vcvtne2ps2bf16; the bits are the same
};

/// Whether stores of a result bypass the caches: it is larger than a core's cache, and lines that
/// are stored whole need not be read first. Even if the next operation reads both results of a norm
/// of a sum at once, the two operations together take a tenth less time (1024 x 768, Zen 4). bf16
/// without AVX-512 BF16 does not bypass the caches, because a vector of it is half a line. Rows
/// whose stores bypass the caches are aligned to lines.
bool goes_past_caches(const core::CpuFeatures& features, const AnyMatrix& m);

/// The number of rows or elements of a task, from `least` to `most`, so that each thread gets
/// several tasks. Long runs let a core's prefetchers reach their full speed: on two cores of Zen 4,
/// norms and rotary positions gained a quarter with 32 rows instead of 8 or 16.
std::int64_t size_of_task(const ContextState& state, std::int64_t size, std::int64_t least,
                          std::int64_t most);

}  // namespace switchback::models
