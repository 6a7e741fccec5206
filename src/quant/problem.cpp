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
  }
  return "unknown";
}

std::string to_string(const Problem& p) {
  const std::string on = p.device == DeviceKind::cpu
                             ? fmt::format("threads {} {}", p.threads, core::isa_name(p.isa))
                             : "cuda";
  return fmt::format("{} {} [{},{}] {}", op_name(p.op), dtype_name(p.dtype), p.rows, p.cols, on);
}

ConfigQuery to_query(const Problem& p) noexcept {
  ConfigQuery query;
  query.op = ConfigOp::quantize;
  query.words = {static_cast<std::int64_t>(p.op),
                 static_cast<std::int64_t>(p.dtype),
                 p.rows,
                 p.cols,
                 p.threads,
                 static_cast<std::int64_t>(p.isa),
                 static_cast<std::int64_t>(p.device)};
  return query;
}

}  // namespace switchback::quant
