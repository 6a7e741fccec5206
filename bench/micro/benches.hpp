// SPDX-License-Identifier: Apache-2.0
// Bench: the benches of `micro` as functions. Each measures the shapes that the options give, one
// after another, or else the shapes for which the documents claim a speed.
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

/// Measures how much time the fusion of GELU with quantization saves.
void micro_activation(Context& context, const MicroOptions& options, const RaceSink& sink);

/// Measures the int8 product of a mixture of experts in one call, compared with a loop of products
/// and with its lower bounds. Each shape is that of one expert; `batch` is the number of tokens of
/// all experts.
void micro_experts(Context& context, const MicroOptions& options, const RaceSink& sink);

struct GemmOptions : MicroOptions {
  std::vector<DType> outputs = {DType::f32};  ///< the types that the int8 products write
};
/// Measures every int8 engine and every f32 engine on the same matrix product.
void micro_gemm(Context& context, const GemmOptions& options, const RaceSink& sink);

/// Measures an int8 layer, compared with the fastest floating point product of each pass (forward,
/// dX, dW).
void micro_layer(Context& context, const MicroOptions& options, const RaceSink& sink);

struct QuantizeOptions : MicroOptions {
  /// Bytes of the floats and codes of an operation; 0: sizes beyond and within the caches.
  std::int64_t quantize_bytes = 0;
};
/// Measures each quantize operation, compared with a copy that reads and writes the same number of
/// bytes.
void micro_quantize(Context& context, const QuantizeOptions& options, const RaceSink& sink);

/// Measures the int8 weight gradient: its product alone, and with its quantize operations. An
/// engine that must be checked on each machine takes part only if another process found its results
/// right. Returns the engines that were left out, and the reasons.
LeftOut micro_weight_gradient(Context& context, const MicroOptions& options, const RaceSink& sink,
                              const autotune::ValidatorOptions& validator = {});

/// Returns how often this program has called operator new; null if the calls are not counted
/// (main.cpp counts them).
extern std::int64_t (*allocations_so_far)() noexcept;

struct CallRow {
  std::string what;  ///< what is timed: "forward, W codes cached" or "training step, W new"
  std::string how;   ///< the interface: "C++", "C" or, on the CPU, "plain loops"
  /// Nanoseconds of one call; a training step is weight_updated, forward and backward.
  measure::Middle ns;
  /// Memory allocations of one call, after its buffers have grown.
  std::optional<double> allocations;
  measure::Disturbance disturbance;
};
/// Measures the fixed cost of calls of a small layer (mode rowwise, f32, a bias, no tuner). Takes a
/// second or two. On a device, a time is that of several queued calls and the wait for the last
/// one, divided by their number.
void micro_call(Context& context, const MicroOptions& options,
                const std::function<void(const CallRow&)>& sink);

}  // namespace switchback::bench
