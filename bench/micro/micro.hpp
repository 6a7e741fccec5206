// SPDX-License-Identifier: Apache-2.0
// Bench: `micro`: the product's claims of speed, each measured against its rival in the same rounds
// of the same process.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/verify/verify.hpp"
#include "measure/rounds.hpp"
#include "measure/statistics.hpp"
#include "switchback/context.hpp"
#include "switchback/quant.hpp"
#include "switchback/types.hpp"

namespace switchback::bench {

using MicroShape = VerifyShape;

struct MicroOptions {
  std::vector<MicroShape> shapes;  ///< of products, layers and MLPs; empty: the default ones
  DType dtype = DType::f32;        ///< of the layer and the MLP
  std::vector<DType> quantize_dtypes = {DType::f32, DType::f16, DType::bf16};
  std::vector<DType> outputs = {DType::f32};  ///< of int8 products of gemm
  /// gemm: everything in the caches is driven out before each call.
  bool cold = false;
  double min_time_s = 0;   ///< of each group of rivals; 0: what the claim needs
  double time_factor = 1;  ///< on the default min_time_s
  std::uint64_t seed = 1;
  std::int64_t quantize_bytes = 0;  ///< read and written by a quantize past the caches; 0: enough
};

/// A ratio asked for: below the floor is a defect, the stretch is what an expert might reach.
struct Target {
  double floor = 0;
  double target = 0;
  double stretch = 0;
};

/// One subject against its rival. Ratios are of the rounds' own times: rival / subject.
struct MicroRow {
  std::string bench;    ///< "gemm", "layer", "activation", "quantize"
  std::string subject;  ///< an engine, or what the layer does, or an operation
  std::string rival;    ///< empty: none
  std::string variant;  ///< a layer's mode, an activation, or where a quantize's data lies
  DType dtype = DType::f32;
  MicroShape shape;
  measure::Stats subject_ms;
  measure::Stats rival_ms;
  measure::Middle ratio;  ///< count 0 rival: zeros
  double gop_s = 0;       ///< of products: 2·M·N·K a second, in 1e9
  double gb_s = 0;        ///< of quantize: bytes read and written a second, in 1e9
  std::string ceiling;    ///< of products: the instruction whose rate in registers is the ceiling
  measure::Middle share;  ///< of that ceiling, in the same rounds
  DType output = DType::f32;  ///< of products: what they write
  /// Of int8 products: the time it takes to read the bytes of W's codes once, from a buffer that
  /// was touched as long ago, over the time of the call.
  std::optional<measure::Middle> read_share;
  std::optional<Target> target;  ///< of `ratio`, or of `share` in gemm
};
nlohmann::ordered_json to_json(const MicroRow& row);

/// "above target", "above floor", …; empty without a target.
std::string verdict(const std::optional<Target>& target, double value);

using MicroSink = std::function<void(const MicroRow&)>;
void micro_gemm(Context& context, const MicroOptions& options, const MicroSink& sink);
void micro_layer(Context& context, const MicroOptions& options, const MicroSink& sink);
void micro_activation(Context& context, const MicroOptions& options, const MicroSink& sink);
void micro_quantize(Context& context, const MicroOptions& options, const MicroSink& sink);

/// A property of the tuner and the bar it must stay under (or, negative, reach).
struct TunerRow {
  std::string what;
  measure::Middle value;
  std::string unit;
  double bar = 0;  ///< 0: none
  std::string note;
};
using TunerSink = std::function<void(const TunerRow&)>;
/// Takes a minute: ten tunes of every problem of each shape.
void micro_tuner(Context& context, const MicroOptions& options, const TunerSink& sink);

/// M/K/N of the published tables.
const std::vector<MicroShape>& default_micro_shapes();

/// Rounds of a group of rivals that no deadline cuts: of fewer calls there is no spread to show.
inline constexpr int fewest_micro_rounds = 3;

/// Names of the available engines that are meant to be fast (not the reference).
std::vector<std::string> fast_engines(const std::vector<EngineInfo>& infos);

}  // namespace switchback::bench
