// SPDX-License-Identifier: Apache-2.0
// Bench: `micro sweep`: every configuration of a device's int8 product against the floating point
// product of the type that it writes.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "autotune/proof/prover.hpp"
#include "bench/micro/gemm.hpp"
#include "bench/micro/proven.hpp"

namespace switchback::bench {

struct SweepOptions : MicroOptions {
  DType output = DType::bf16;      ///< of the int8 product; the rival's only type
  autotune::ProverOptions prover;  ///< who proves a configuration before this process runs it
  std::function<bool()> interrupted = [] { return false; };
};

/// The shapes of the options, one after another; the rows of a shape from the fastest on.
LeftOut micro_sweep(Context& context, const SweepOptions& options,
                    const std::function<void(const GemmRow&)>& sink);
std::unique_ptr<MicroBench> make_micro_sweep(const MicroOptions& shared);

}  // namespace switchback::bench
