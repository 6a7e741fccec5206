// SPDX-License-Identifier: Apache-2.0
// Studies: the bench `micro models`.
#pragma once

#include "bench/micro/race.hpp"

namespace switchback::bench {

/// Each operation of models/ against its floor. Shapes are those of a decoder's MLP, tokens x width
/// x hidden; none: the smallest published one.
void micro_models(Context& context, const MicroOptions& options, const RaceSink& sink);

}  // namespace switchback::bench
