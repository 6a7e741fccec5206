// SPDX-License-Identifier: Apache-2.0
// Models, engine zone: how operands go between memory and a core.
#pragma once

#include "core/context_state.hpp"
#include "switchback/matrix.hpp"

namespace switchback::models {

/// Whether a core's own prefetchers keep several streams ahead over the borders of pages, so that
/// asking for lines ahead only takes their room. So it is on AMD's Zen 4: a norm of a sum took 1.4
/// times as long with it. Intel's prefetchers start anew at each page.
bool follows_pages();

/// How a kernel stores its results.
struct Stores {
  bool past_caches = false;
  bool avx512_bf16 = false;  ///< its vcvtne2ps2bf16 rounds bf16, with the same bits as without it
};

/// Whether a result goes past the caches: it is larger than a core's, and lines that are stored
/// whole need not be read first. Even where the next operation reads both results of a norm of a
/// sum at once, the two together take a tenth less time (1024 x 768, Zen 4). bf16 stay without
/// AVX-512 BF16: a vector of them is half a line. Rows of what goes are aligned to lines.
bool goes_past_caches(const core::CpuFeatures& features, const AnyMatrix& m);

/// Of rows or elements: a task's are as many as that a thread has several tasks, within bounds.
/// Long runs let a core's prefetchers get going: on two cores of Zen 4 norms and rotary positions
/// gained a quarter from 32 rows in place of 8 or 16.
std::int64_t size_of_task(const ContextState& state, std::int64_t size, std::int64_t least,
                          std::int64_t most);

}  // namespace switchback::models
