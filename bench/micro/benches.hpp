// SPDX-License-Identifier: Apache-2.0
// Bench: benches of `micro` as functions. Each takes the shapes of the options, one after another;
// without any, those of its claims.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autotune/proof/prover.hpp"
#include "bench/micro/micro.hpp"
#include "bench/micro/race.hpp"
#include "measure/disturbance.hpp"
#include "measure/statistics.hpp"

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

/// How often this program called operator new so far; null where that is not counted (main.cpp
/// does).
extern std::int64_t (*allocations_so_far)() noexcept;

struct CallRow {
  std::string what;    ///< "forward, W codes cached" or "training step, W new"
  std::string how;     ///< "C++", "C" or, on the CPU, "plain loops"
  measure::Middle ns;  ///< of one call; a step is weight_updated, forward and backward
  std::optional<double> allocations;  ///< of one call, once its buffers have grown
  measure::Disturbance disturbance;
};
/// Mode rowwise, f32, a bias, no tuner. Takes a second or two. On a device a time is of calls
/// queued one after the other, the last of which is waited for.
void micro_call(Context& context, const MicroOptions& options,
                const std::function<void(const CallRow&)>& sink);

}  // namespace switchback::bench
