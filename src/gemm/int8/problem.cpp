// SPDX-License-Identifier: Apache-2.0
#include "gemm/int8/problem.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace switchback::gemm_int8 {

namespace {

std::string_view scale_name(ScaleMode mode) {
  switch (mode) {
    case ScaleMode::none:
      return "unscaled";
    case ScaleMode::row_col:
      return "row_col";
    case ScaleMode::row_scalar:
      return "row_scalar";
  }
  return "unknown";
}

GemmProblem without_groups(GemmProblem p) noexcept {
  const GemmProblem one;
  p.layout = one.layout;
  p.groups = one.groups;
  p.group_rows = one.group_rows;
  p.d_column_stride = one.d_column_stride;
  p.packed_step_bytes = one.packed_step_bytes;
  return p;
}

}  // namespace

std::string describe(const GemmProblem& p) {
  const std::string groups =
      p.has_groups() ? fmt::format("groups={} {} rows={} columns={}, each ", p.groups,
                                   p.layout == GroupLayout::packed ? "packed" : "strided",
                                   p.group_rows, p.d_column_stride)
                     : "";
  return fmt::format("{}m={} n={} k={} {} {} bias={} packed={} strides {},{},{}", groups, p.m, p.n,
                     p.k, dtype_name(p.output), scale_name(p.scale),
                     p.has_bias ? dtype_name(p.bias) : "none", engine_name(p.packed_for),
                     p.stride_a, p.stride_b, p.stride_d) +
         (p.alignment == 1 ? " unaligned" : "");
}

core::ProblemSize size_of(const GemmProblem& p) noexcept {
  core::ProblemSize size = core::product_size(p.m, p.n, p.k);
  size.is_empty = size.is_empty || p.groups == 0;
  const auto groups = static_cast<double>(std::max<std::int64_t>(1, p.groups));
  size.elements += (groups - 1) * static_cast<double>(p.n) * static_cast<double>(p.k);
  return size;
}

GemmProblem mean_problem(const GemmProblem& p) noexcept {
  GemmProblem one = without_groups(p);
  const std::int64_t groups = std::max<std::int64_t>(1, p.groups);
  one.m = std::max<std::int64_t>(1, p.layout == GroupLayout::packed ? p.m / groups : p.group_rows);
  return one;
}

GemmProblem problem_of(const GemmProblem& p, const GroupRows& group) noexcept {
  GemmProblem one = without_groups(p);
  one.m = group.rows;
  return one;
}

GemmOperands operands_of(const GemmProblem& p, const GemmOperands& o, std::int64_t group) noexcept {
  const std::int64_t slot = o.rows[static_cast<std::size_t>(group)].begin;
  const auto element = static_cast<std::int64_t>(dtype_size_bytes(p.output));
  const std::int64_t at_d = p.d_column_stride > 0 ? group * p.d_column_stride : slot * p.stride_d;
  GemmOperands one;
  one.a = o.a + slot * p.stride_a;
  if (o.b != nullptr) one.b = o.b + group * p.n * p.stride_b;
  if (o.packed_b != nullptr)
    one.packed_b = static_cast<const std::byte*>(o.packed_b) + group * p.packed_step_bytes;
  one.d = static_cast<std::byte*>(o.d) + at_d * element;
  if (p.scale == ScaleMode::none) return one;
  one.absmax_a = o.absmax_a + slot;
  one.absmax_b = o.absmax_b + group * (p.scale == ScaleMode::row_col ? p.n : 1);
  if (p.has_bias)
    one.bias = static_cast<const std::byte*>(o.bias) +
               group * p.n * static_cast<std::int64_t>(dtype_size_bytes(p.bias));
  return one;
}

}  // namespace switchback::gemm_int8
