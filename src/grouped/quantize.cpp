// SPDX-License-Identifier: Apache-2.0
// Entry of the grouped quantization: validates the arguments and calls grouped/dispatch.hpp.
#include "core/check.hpp"
#include "grouped/dispatch.hpp"
#include "grouped/groups.hpp"
#include "switchback/grouped.hpp"

namespace switchback {

void grouped_quantize_rowwise(Context& context, const Groups& groups, const GroupedRows& x,
                              MatrixView<std::int8_t> q, std::span<float> absmax) {
  constexpr std::string_view op = "grouped_quantize_rowwise";
  ContextState& state = context.state();
  core::check_matrix(op, "q", q);
  grouped::check_groups(state, op, groups, q.rows);
  grouped::check_rows(state, op, groups, x, q.rows, q.cols);
  core::check_span(op, "absmax", absmax, q.rows, "M");
  const core::DeviceScope scope(state, op);
  core::check_operands(
      state, op, {core::operand("q", q), core::operand("absmax", absmax)},
      {core::operand("x", x.data), core::operand("x.index", grouped::as_operand(x.index)),
       core::operand("groups.ends", grouped::as_operand(groups.ends)),
       core::operand("groups.used", grouped::as_operand(groups.used))});
  grouped::quantize_rowwise(state, groups, x, q, absmax);
}

}  // namespace switchback
