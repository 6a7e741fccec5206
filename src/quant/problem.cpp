// SPDX-License-Identifier: Apache-2.0
#include "quant/problem.hpp"

#include <fmt/format.h>

namespace switchback::quant {

std::string_view op_name(Op op) noexcept {
  switch (op) {
    case Op::rowwise:
      return "quantize_rowwise";
    case Op::rowwise_column_sums:
      return "quantize_rowwise_column_sums";
    case Op::column_sums:
      return "column_sums";
    case Op::columnwise_transpose:
      return "quantize_columnwise_transpose";
    case Op::global:
      return "quantize_global";
    case Op::global_transpose:
      return "quantize_global_transpose";
    case Op::rowwise_and_columnwise_transpose:
      return "quantize_rowwise_and_columnwise_transpose";
    case Op::global_and_transpose:
      return "quantize_global_and_transpose";
    case Op::dequantize_rowwise:
      return "dequantize_rowwise";
    case Op::cast_to_int8:
      return "cast_to_int8";
    case Op::activation_forward:
      return "activation_forward";
    case Op::activation_backward:
      return "activation_backward";
    case Op::activation_forward_quantize:
      return "activation_forward_quantize";
    case Op::activation_backward_quantize:
      return "activation_backward_quantize";
  }
  return "unknown";
}

std::string describe(const Problem& p) {
  const std::string on = p.device == DeviceKind::cpu
                             ? fmt::format("threads {} {}", p.threads, core::isa_name(p.isa))
                             : "cuda";
  return fmt::format("{} {} [{},{}] {}", op_name(p.op), dtype_name(p.dtype), p.rows, p.cols, on);
}

core::ProblemSize size_of(const Problem& p) noexcept {
  core::ProblemSize size;
  size.is_empty = p.rows == 0 || p.cols == 0;
  size.elements = static_cast<double>(p.rows) * static_cast<double>(p.cols);
  size.tokens = "rows";
  return size;
}

}  // namespace switchback::quant
