// SPDX-License-Identifier: Apache-2.0
// Bench: `micro layer`: the int8 layer against the fastest floating point product of each pass.
#pragma once

#include <functional>
#include <memory>

#include "bench/micro/race_row.hpp"

namespace switchback::bench {

struct LayerRow : RaceRow {
  using RaceRow::RaceRow;
  double gop_s = 0;  ///< of its products, 2·M·N·K each, a second, in 1e9
};
Json to_json(const LayerRow& row);

void micro_layer(Context& context, const MicroOptions& options,
                 const std::function<void(const LayerRow&)>& sink);
std::unique_ptr<MicroBench> make_micro_layer(const MicroOptions& shared);

}  // namespace switchback::bench
