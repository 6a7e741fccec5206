// SPDX-License-Identifier: Apache-2.0
// Bench: `micro gemm`: every int8 engine and every f32 engine on the same product.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/micro/race_row.hpp"

namespace switchback::bench {

struct GemmOptions : MicroOptions {
  std::vector<DType> outputs = {DType::f32};  ///< of int8 products
};

/// The target is of `share`.
struct GemmRow : RaceRow {
  using RaceRow::RaceRow;
  double gop_s = 0;           ///< 2·M·N·K a second, in 1e9
  DType output = DType::f32;  ///< what the product writes
  std::string ceiling;        ///< the instruction whose rate in registers is the
                              ///< ceiling; may be empty
  measure::Middle share;      ///< of that ceiling, in the same rounds
  /// Of int8 products: the time it takes to read the bytes of W's codes once, from a buffer that
  /// was touched as long ago, over the time of the call.
  std::optional<measure::Middle> read_share;
};
Json to_json(const GemmRow& row);

void micro_gemm(Context& context, const GemmOptions& options,
                const std::function<void(const GemmRow&)>& sink);
std::unique_ptr<MicroBench> make_micro_gemm(const MicroOptions& shared);

}  // namespace switchback::bench
