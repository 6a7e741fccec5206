// SPDX-License-Identifier: Apache-2.0
// Studies: the benchmark `switchback-bench micro models`.
#pragma once

#include "bench/micro/race.hpp"

namespace switchback::bench {

/// Times each operation of studies/models, such as norms or attention, and its lower bound. Shapes
/// are tokens x width x hidden of a decoder's MLP; without shapes, the smallest published decoder.
void micro_models(Context& context, const MicroOptions& options, const RaceSink& sink);

}  // namespace switchback::bench
