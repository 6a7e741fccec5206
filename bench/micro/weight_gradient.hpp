// SPDX-License-Identifier: Apache-2.0
// Bench: `micro dw`: the int8 weight gradient, its product alone and with its quantizes.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "autotune/proof/prover.hpp"
#include "bench/micro/proven.hpp"
#include "bench/micro/race_row.hpp"

namespace switchback::bench {

/// The target is of `share`, where there is one.
struct WeightGradientRow : RaceRow {
  using RaceRow::RaceRow;
  double gop_s = 0;                      ///< 2·M·N·K a second, in 1e9
  std::string ceiling;                   ///< the instruction whose rate in registers is the ceiling
  std::optional<measure::Middle> share;  ///< of that ceiling, in the same rounds: of products
};
Json to_json(const WeightGradientRow& row);

/// An engine that a tuner must prove takes part if another process found it right; the result says
/// which were left out, and why.
LeftOut micro_weight_gradient(Context& context, const MicroOptions& options,
                              const std::function<void(const WeightGradientRow&)>& sink,
                              const autotune::ProverOptions& prover = {});
std::unique_ptr<MicroBench> make_micro_weight_gradient(const MicroOptions& shared);

}  // namespace switchback::bench
