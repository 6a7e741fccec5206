// SPDX-License-Identifier: Apache-2.0
#include "quant/problem.hpp"

#include <fmt/format.h>

#include <cstddef>

namespace switchback::quant {

std::string_view op_name(Op op) noexcept {
  const auto index = static_cast<std::size_t>(op);
  return index < all_ops.size() ? all_ops[index].name : "unknown";
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
                 static_cast<std::int64_t>(p.device),
                 p.alignment};
  return query;
}

bool from_query(const ConfigQuery& query, Problem& p) noexcept {
  const auto& w = query.words;
  if (query.op != ConfigOp::quantize ||
      !query.within(0, static_cast<std::int64_t>(Op::cast_to_int8)) ||
      !query.within(1, static_cast<std::int64_t>(DType::bf16)) || w[2] < 0 || w[3] < 0 ||
      w[4] < 1 || !query.within(5, core::isa_count - 1) ||
      !query.within(6, static_cast<std::int64_t>(device_kinds) - 1) || !query.within(7, 16))
    return false;
  p.op = static_cast<Op>(w[0]);
  p.dtype = static_cast<DType>(w[1]);
  p.rows = w[2];
  p.cols = w[3];
  p.threads = static_cast<int>(w[4]);
  p.isa = static_cast<core::Isa>(w[5]);
  p.device = static_cast<DeviceKind>(w[6]);
  p.alignment = w[7];
  return true;
}

}  // namespace switchback::quant
