// SPDX-License-Identifier: Apache-2.0
#include "quant/problem.hpp"

#include <fmt/format.h>

#include <cstddef>

namespace switchback::quant {

std::string_view op_name(Op op) noexcept {
  const auto index = static_cast<std::size_t>(op);
  return index < all_ops.size() ? all_ops[index].name : "unknown";
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
