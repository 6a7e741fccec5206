// SPDX-License-Identifier: Apache-2.0
#include "gemm/int8/grouped.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace switchback::gemm_int8 {

std::string describe(const GroupedProblem& p) {
  return fmt::format("groups={} {} rows={} columns={}, each {}", p.groups,
                     p.strided ? "strided" : "packed", p.rows, p.d_column_stride, describe(p.each));
}

GemmProblem mean_problem(const GroupedProblem& p) noexcept {
  GemmProblem one = p.each;
  const std::int64_t groups = std::max<std::int64_t>(1, p.groups);
  one.m = std::max<std::int64_t>(1, p.strided ? p.rows : one.m / groups);
  return one;
}

core::ProblemSize size_of(const GroupedProblem& p) noexcept {
  core::ProblemSize size = core::product_size(p.each.m, p.each.n, p.each.k);
  size.is_empty = size.is_empty || p.groups == 0;
  const auto groups = static_cast<double>(std::max<std::int64_t>(1, p.groups));
  size.elements += (groups - 1) * static_cast<double>(p.each.n) * static_cast<double>(p.each.k);
  return size;
}

GemmProblem problem_of(const GroupedProblem& p, const GroupRows& group) noexcept {
  GemmProblem one = p.each;
  one.m = group.rows;
  return one;
}

GemmOperands operands_of(const GroupedProblem& p, const GroupedOperands& o,
                         std::int64_t group) noexcept {
  const GemmProblem& each = p.each;
  const std::int64_t slot = o.rows[static_cast<std::size_t>(group)].begin;
  const auto element = static_cast<std::int64_t>(dtype_size_bytes(each.output));
  const std::int64_t at_d =
      p.d_column_stride > 0 ? group * p.d_column_stride : slot * each.stride_d;
  GemmOperands one;
  one.a = o.first.a + slot * each.stride_a;
  if (o.first.b != nullptr) one.b = o.first.b + group * each.n * each.stride_b;
  if (o.first.packed_b != nullptr)
    one.packed_b = static_cast<const std::byte*>(o.first.packed_b) + group * p.packed_step_bytes;
  one.d = static_cast<std::byte*>(o.first.d) + at_d * element;
  if (each.scale == ScaleMode::none) return one;
  one.absmax_a = o.first.absmax_a + slot;
  one.absmax_b = o.first.absmax_b + group * (each.scale == ScaleMode::row_col ? each.n : 1);
  if (each.has_bias)
    one.bias = static_cast<const std::byte*>(o.first.bias) +
               group * each.n * static_cast<std::int64_t>(dtype_size_bytes(each.bias));
  return one;
}

}  // namespace switchback::gemm_int8
