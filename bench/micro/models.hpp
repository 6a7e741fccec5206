// SPDX-License-Identifier: Apache-2.0
// Bench: `micro models`: each operation of models/ against its floor.
#pragma once

#include <functional>
#include <memory>

#include "bench/micro/race_row.hpp"

namespace switchback::bench {

/// Shapes are those of a decoder's MLP, tokens x width x hidden; none: the smallest published one.
void micro_models(Context& context, const MicroOptions& options,
                  const std::function<void(const RaceRow&)>& sink);
std::unique_ptr<MicroBench> make_micro_models(const MicroOptions& shared);

}  // namespace switchback::bench
