// SPDX-License-Identifier: Apache-2.0
// Bench: `micro experts`: the int8 product of a mixture of experts in one call, against a loop of
// products and against what bounds it.
#pragma once

#include <functional>
#include <memory>

#include "bench/micro/race_row.hpp"

namespace switchback::bench {

/// Each shape as the experts' own, with `batch` tokens in all; none: those of the claims.
void micro_experts(Context& context, const MicroOptions& options,
                   const std::function<void(const RaceRow&)>& sink);
std::unique_ptr<MicroBench> make_micro_experts(const MicroOptions& shared);

}  // namespace switchback::bench
