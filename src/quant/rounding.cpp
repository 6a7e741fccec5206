// SPDX-License-Identifier: Apache-2.0
#include "switchback/rounding.hpp"

#include "core/check.hpp"
#include "quant/checked.hpp"
#include "quant/stochastic.hpp"

namespace switchback {

void quantize_rowwise_stochastic(Context& context, ConstAnyMatrix g,
                                 const StochasticRounding& rounding, MatrixView<std::int8_t> q,
                                 std::span<float> absmax) {
  quant::run_checked(context, quant::Op::rowwise_stochastic,
                     {.x = g, .q = {quant::Scales::per_row, q, absmax}, .stochastic = rounding});
}

void quantize_blockwise_transpose_stochastic(Context& context, ConstAnyMatrix g,
                                             const StochasticRounding& rounding,
                                             std::int64_t block_rows, MatrixView<std::int8_t> q_t,
                                             std::span<float> absmax) {
  quant::run_checked(
      context, quant::Op::blockwise_stochastic,
      {.x = g, .q_t = {quant::Scales::per_block, q_t, absmax, block_rows}, .stochastic = rounding});
}

namespace quant {

void check_rounding(std::string_view op, const StochasticRounding& rounding, std::int64_t rows) {
  core::require(rounding.row0 >= 0 && rounding.row0 <= (std::int64_t{1} << 32) - rows,
                "{}: row0 = {}; it must not be negative, and row0 + {} rows at most 2^32", op,
                rounding.row0, rows);
}

}  // namespace quant
}  // namespace switchback
