// SPDX-License-Identifier: Apache-2.0
// Bench: the benches of `micro` as functions. Each measures the shapes of the options, one after
// another; without any, the shapes of its claims.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "autotune/validation/validator.hpp"
#include "bench/micro/micro.hpp"
#include "bench/micro/race.hpp"
#include "measure/disturbance.hpp"
#include "measure/statistics.hpp"

namespace switchback::bench {

/// How much time the fusion of GELU with quantization saves.
void micro_activation(Context& context, const MicroOptions& options, const RaceSink& sink);

/// The int8 product of a mixture of experts in one call, compared with a loop of products and with
/// its lower bounds. Each shape is that of one expert; `batch` is the number of tokens of all
/// experts.
void micro_experts(Context& context, const MicroOptions& options, const RaceSink& sink);

struct GemmOptions : MicroOptions {
  std::vector<DType> outputs = {DType::f32};  ///< of int8 products
};
/// Every int8 engine and every f32 engine on the same product.
void micro_gemm(Context& context, const GemmOptions& options, const RaceSink& sink);

/// The int8 layer compared with the fastest floating point product of each pass.
void micro_layer(Context& context, const MicroOptions& options, const RaceSink& sink);

struct QuantizeOptions : MicroOptions {
  std::int64_t quantize_bytes = 0;  ///< bytes read and written beyond the caches; 0: enough
};
/// Each operation compared with a copy that reads and writes the same number of bytes.
void micro_quantize(Context& context, const QuantizeOptions& options, const RaceSink& sink);

/// The int8 weight gradient: its product alone, and with its quantize operations. An engine that a
/// tuner must validate takes part only if another process found it right. The result names the
/// engines that were left out, and the reasons.
LeftOut micro_weight_gradient(Context& context, const MicroOptions& options, const RaceSink& sink,
                              const autotune::ValidatorOptions& validator = {});

/// How often this program has called operator new; null if that is not counted (main.cpp counts
/// it).
extern std::int64_t (*allocations_so_far)() noexcept;

struct CallRow {
  std::string what;    ///< "forward, W codes cached" or "training step, W new"
  std::string how;     ///< "C++", "C" or, on the CPU, "plain loops"
  measure::Middle ns;  ///< of one call; a step is weight_updated, forward and backward
  std::optional<double> allocations;  ///< of one call, after its buffers have grown
  measure::Disturbance disturbance;
};
/// Mode rowwise, f32, a bias, no tuner. Takes a second or two. On a device, a time is the time per
/// call of several queued calls, after waiting for the last one.
void micro_call(Context& context, const MicroOptions& options,
                const std::function<void(const CallRow&)>& sink);

}  // namespace switchback::bench
