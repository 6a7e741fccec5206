// SPDX-License-Identifier: Apache-2.0
// Bench: the benches of `micro` whose rows are races. Each takes the shapes of the options, one
// after another; without any, those of its claims.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "autotune/proof/prover.hpp"
#include "bench/micro/proven.hpp"
#include "bench/micro/race_row.hpp"

namespace switchback::bench {

/// What fusing GELU with quantization saves.
void micro_activation(Context& context, const MicroOptions& options, const RaceSink& sink);

/// The int8 product of a mixture of experts in one call, against a loop of products and against
/// what bounds it. Each shape as the experts' own, with `batch` tokens in all.
void micro_experts(Context& context, const MicroOptions& options, const RaceSink& sink);

struct GemmOptions : MicroOptions {
  std::vector<DType> outputs = {DType::f32};  ///< of int8 products
};
/// Every int8 engine and every f32 engine on the same product.
void micro_gemm(Context& context, const GemmOptions& options, const RaceSink& sink);

/// The int8 layer against the fastest floating point product of each pass.
void micro_layer(Context& context, const MicroOptions& options, const RaceSink& sink);

struct QuantizeOptions : MicroOptions {
  std::int64_t quantize_bytes = 0;  ///< read and written past the caches; 0: enough
};
/// Each operation against a copy that reads and writes as many bytes.
void micro_quantize(Context& context, const QuantizeOptions& options, const RaceSink& sink);

/// The int8 weight gradient, its product alone and with its quantizes. An engine that a tuner must
/// prove takes part if another process found it right; the result says which were left out, and
/// why.
LeftOut micro_weight_gradient(Context& context, const MicroOptions& options, const RaceSink& sink,
                              const autotune::ProverOptions& prover = {});

struct SweepOptions : MicroOptions {
  DType output = DType::bf16;      ///< of the int8 product; the rival's only type
  autotune::ProverOptions prover;  ///< who proves a configuration before this process runs it
  std::function<bool()> interrupted = [] { return false; };
};
/// Every configuration of a device's int8 product against the floating point product of the type
/// that it writes. The rows of a shape from the fastest on.
LeftOut micro_sweep(Context& context, const SweepOptions& options, const RaceSink& sink);

}  // namespace switchback::bench
