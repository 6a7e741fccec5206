// SPDX-License-Identifier: Apache-2.0
// Studies: the bench `micro models`.
#pragma once

#include "bench/micro/race.hpp"

namespace switchback::bench {

/// Each operation of models/ compared with its lower bound. Shapes are those of a decoder's MLP,
/// tokens x width x hidden; without shapes, the smallest published one.
void micro_models(Context& context, const MicroOptions& options, const RaceSink& sink);

}  // namespace switchback::bench
