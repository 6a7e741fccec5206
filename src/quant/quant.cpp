// SPDX-License-Identifier: Apache-2.0
#include "switchback/quant.hpp"
#include "core/check.hpp"
#include "core/context_state.hpp"
#include "quant/checked.hpp"
#include "quant/cpu/engine.hpp"
#include "quant/rotate.hpp"
#include "quant/stochastic.hpp"
#include "switchback/activation.hpp"
#include "switchback/rotation.hpp"
#include "switchback/rounding.hpp"

namespace switchback {

using quant::Op;
using quant::run_checked;
using quant::Scales;

void quantize_rowwise(Context& context, ConstAnyMatrix x, MatrixView<std::int8_t> q,
                      std::span<float> absmax) {
  run_checked(context, Op::rowwise, {.x = x, .q = {Scales::per_row, q, absmax}});
}

void quantize_rowwise_column_sums(Context& context, ConstAnyMatrix g, MatrixView<std::int8_t> q,
                                  std::span<float> absmax, std::span<float> column_sums,
                                  bool accumulate) {
  run_checked(context, Op::rowwise_column_sums,
              {.x = g,
               .q = {Scales::per_row, q, absmax},
               .column_sums = column_sums,
               .accumulate = accumulate});
}

void column_sums(Context& context, ConstAnyMatrix g, std::span<float> sums, bool accumulate) {
  run_checked(context, Op::column_sums, {.x = g, .column_sums = sums, .accumulate = accumulate});
}

void quantize_columnwise_transpose(Context& context, ConstAnyMatrix w, MatrixView<std::int8_t> q_t,
                                   std::span<float> absmax) {
  run_checked(context, Op::columnwise_transpose,
              {.x = w, .q_t = {Scales::per_column, q_t, absmax}});
}

void quantize_global(Context& context, ConstAnyMatrix w, MatrixView<std::int8_t> q,
                     std::span<float> absmax) {
  run_checked(context, Op::global, {.x = w, .q = {Scales::global, q, absmax}});
}

void quantize_global_transpose(Context& context, ConstAnyMatrix w, MatrixView<std::int8_t> q_t,
                               std::span<float> absmax) {
  run_checked(context, Op::global_transpose, {.x = w, .q_t = {Scales::global, q_t, absmax}});
}

void quantize_rowwise_and_columnwise_transpose(Context& context, ConstAnyMatrix w,
                                               MatrixView<std::int8_t> q,
                                               std::span<float> absmax_rows,
                                               MatrixView<std::int8_t> q_t,
                                               std::span<float> absmax_cols) {
  run_checked(context, Op::rowwise_and_columnwise_transpose,
              {.x = w,
               .q = {Scales::per_row, q, absmax_rows},
               .q_t = {Scales::per_column, q_t, absmax_cols}});
}

void quantize_global_and_transpose(Context& context, ConstAnyMatrix w, MatrixView<std::int8_t> q,
                                   MatrixView<std::int8_t> q_t, std::span<float> absmax) {
  run_checked(context, Op::global_and_transpose,
              {.x = w, .q = {Scales::global, q, absmax}, .q_t = {Scales::global, q_t, absmax}});
}

void quantize_blockwise_transpose(Context& context, ConstAnyMatrix x, std::int64_t block_rows,
                                  MatrixView<std::int8_t> q_t, std::span<float> absmax) {
  run_checked(context, Op::blockwise_transpose,
              {.x = x, .q_t = {Scales::per_block, q_t, absmax, block_rows}});
}

void quantize_rowwise_and_blockwise_transpose(Context& context, ConstAnyMatrix x,
                                              MatrixView<std::int8_t> q,
                                              std::span<float> absmax_rows, std::int64_t block_rows,
                                              MatrixView<std::int8_t> q_t,
                                              std::span<float> absmax_blocks,
                                              std::span<float> column_sums, bool accumulate) {
  run_checked(context, Op::rowwise_and_blockwise_transpose,
              {.x = x,
               .q = {Scales::per_row, q, absmax_rows},
               .q_t = {Scales::per_block, q_t, absmax_blocks, block_rows},
               .column_sums = column_sums,
               .accumulate = accumulate});
}

void quantize_rowwise_scaled(Context& context, ConstAnyMatrix g,
                             std::span<const float> column_scales, MatrixView<std::int8_t> q,
                             std::span<float> absmax, std::span<float> column_sums,
                             bool accumulate) {
  run_checked(context, Op::rowwise_scaled,
              {.x = g,
               .q = {Scales::per_row, q, absmax},
               .column_sums = column_sums,
               .accumulate = accumulate,
               .column_scales = column_scales});
}

void dequantize_rowwise(Context& context, MatrixView<const std::int8_t> q,
                        std::span<const float> absmax, AnyMatrix x) {
  run_checked(context, Op::dequantize_rowwise, {.x = q, .absmax_x = absmax, .value = x});
}

void cast_to_int8(Context& context, ConstAnyMatrix x, MatrixView<std::int8_t> q) {
  run_checked(context, Op::cast_to_int8, {.x = x, .q = {Scales::unscaled, q, {}}});
}

void activation_forward(Context& context, ConstAnyMatrix x, Activation activation, AnyMatrix y) {
  run_checked(context, Op::activation_forward, {.x = x, .activation = activation, .value = y});
}

void activation_backward(Context& context, ConstAnyMatrix g, ConstAnyMatrix x,
                         Activation activation, AnyMatrix dx) {
  run_checked(context, Op::activation_backward,
              {.x = x, .g = g, .activation = activation, .value = dx});
}

void activation_forward_quantize(Context& context, ConstAnyMatrix x, Activation activation,
                                 MatrixView<std::int8_t> q, std::span<float> absmax, AnyMatrix y) {
  run_checked(context, Op::activation_forward_quantize,
              {.x = x,
               .activation = activation,
               .q = {Scales::per_row, q, absmax},
               .value = y.data != nullptr ? y : AnyMatrix()});
}

void activation_backward_quantize(Context& context, ConstAnyMatrix g, ConstAnyMatrix x,
                                  Activation activation, AnyMatrix dx, MatrixView<std::int8_t> q,
                                  std::span<float> absmax, std::span<float> column_sums,
                                  bool accumulate) {
  run_checked(context, Op::activation_backward_quantize,
              {.x = x,
               .g = g,
               .activation = activation,
               .q = {Scales::per_row, q, absmax},
               .column_sums = column_sums,
               .accumulate = accumulate,
               .value = dx});
}

std::vector<EngineInfo> quantize_engines(const Context& context) {
  if (!context.state().on_cpu()) return {{"cuda", true, ""}};
  const std::string refusal = quant::cpu::refusal(context.state().features);
  return {{"highway", refusal.empty(), refusal}, {"reference", true, ""}};
}

void quantize_rowwise_stochastic(Context& context, ConstAnyMatrix g,
                                 const StochasticRounding& rounding, MatrixView<std::int8_t> q,
                                 std::span<float> absmax) {
  run_checked(context, Op::rowwise_stochastic,
              {.x = g, .q = {Scales::per_row, q, absmax}, .stochastic = rounding});
}

void quantize_blockwise_transpose_stochastic(Context& context, ConstAnyMatrix g,
                                             const StochasticRounding& rounding,
                                             std::int64_t block_rows, MatrixView<std::int8_t> q_t,
                                             std::span<float> absmax) {
  run_checked(
      context, Op::blockwise_stochastic,
      {.x = g, .q_t = {Scales::per_block, q_t, absmax, block_rows}, .stochastic = rounding});
}

std::string_view rotation_name(Rotation rotation) noexcept {
  switch (rotation) {
    case Rotation::none:
      return "none";
    case Rotation::hadamard_4:
      return "hadamard_4";
    case Rotation::hadamard_16:
      return "hadamard_16";
    case Rotation::hadamard_64:
      return "hadamard_64";
    case Rotation::hadamard_256:
      return "hadamard_256";
    case Rotation::hadamard_1024:
      return "hadamard_1024";
  }
  return "unknown";
}

void rotate(Context& context, ConstAnyMatrix x, Rotation rotation, AnyMatrix y) {
  run_checked(context, Op::rotate, {.x = x, .rotation = rotation, .rotated = y});
}

void rotate_quantize(Context& context, ConstAnyMatrix x, Rotation rotation,
                     MatrixView<std::int8_t> q, std::span<float> absmax, Activation activation) {
  const Op op =
      activation == Activation::none ? Op::rotate_quantize : Op::activation_rotate_quantize;
  run_checked(
      context, op,
      {.x = x, .activation = activation, .q = {Scales::per_row, q, absmax}, .rotation = rotation});
}

namespace quant {

void check_rounding(std::string_view op, const StochasticRounding& rounding, std::int64_t rows) {
  core::require(rounding.row0 >= 0 && rounding.row0 <= (std::int64_t{1} << 32) - rows,
                "{}: row0 = {}; it must not be negative, and row0 + {} rows at most 2^32", op,
                rounding.row0, rows);
}

void check_rotation(std::string_view op, Rotation rotation, std::int64_t cols,
                    std::string_view cols_name) {
  core::require(is_rotation(rotation),
                "{}: rotation = {}; it must be one of hadamard_4 (4), hadamard_16 (16), "
                "hadamard_64 (64), hadamard_256 (256), hadamard_1024 (1024)",
                op, static_cast<std::int32_t>(rotation));
  core::require(cols % group_of(rotation) == 0,
                "{}: {} = {}; it must be a multiple of the rotation's group, {}", op, cols_name,
                cols, group_of(rotation));
}

}  // namespace quant

}  // namespace switchback
