// SPDX-License-Identifier: Apache-2.0
// Models, engine zone: how operands go between memory and a core.
#pragma once

#include "switchback/matrix.hpp"

namespace switchback::models {

/// Whether a core's own prefetchers keep several streams ahead over the borders of pages, so that
/// asking for lines ahead only takes their room. So it is on AMD's Zen 4: a norm of a sum took 1.4
/// times as long with it. Intel's prefetchers start anew at each page.
bool follows_pages();

/// Whether a result goes past the caches: it is larger than a core's, and lines that are stored
/// whole need not be read first. Even where the next operation reads both results of a norm of a
/// sum at once, the two together take a tenth less time (1024 x 768, Zen 4). bf16 stay: a vector of
/// them is half a line. Rows of what goes are aligned to lines.
bool goes_past_caches(const AnyMatrix& m);

}  // namespace switchback::models
