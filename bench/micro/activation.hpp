// SPDX-License-Identifier: Apache-2.0
// Bench: `micro activation`: what fusing GELU with quantization saves.
#pragma once

#include <functional>
#include <memory>

#include "bench/micro/race_row.hpp"

namespace switchback::bench {

void micro_activation(Context& context, const MicroOptions& options,
                      const std::function<void(const RaceRow&)>& sink);
std::unique_ptr<MicroBench> make_micro_activation(const MicroOptions& shared);

}  // namespace switchback::bench
