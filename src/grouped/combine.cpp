// SPDX-License-Identifier: Apache-2.0
// Entry of combine(), which adds up weighted rows of a grouped result: validates the arguments.
// Also has the reference implementation.
#include <bit>
#include <cmath>

#include "core/check.hpp"
#include "core/unaligned.hpp"
#include "grouped/cpu/combine.hpp"
#include "grouped/device_engine.hpp"
#include "grouped/dispatch.hpp"
#include "switchback/grouped.hpp"

namespace switchback {

namespace grouped {

namespace {

void combine_row(const CombineArgs& args, std::int64_t row) {
  const auto weight = [&](std::int64_t i) {
    return core::load(args.weights.data, row * args.weights.stride + i);
  };
  for (std::int64_t col = 0; col < args.out.cols; ++col) {
    float sum = 0.0f;
    bool first = true;
    for (std::int64_t i = 0; i < args.slots.cols; ++i) {
      const std::int64_t slot = core::load(args.slots.data, row * args.slots.stride + i);
      if (slot < 0) continue;
      float term = core::load_float(args.y.data, args.y.dtype, slot * args.y.stride + col);
      if (args.weights.data != nullptr) term *= weight(i);
      sum = first ? term : sum + term;
      first = false;
    }
    if (std::isnan(sum)) sum = std::bit_cast<float>(0x7FC00000u);
    core::store_float(args.out.data, args.out.dtype, row * args.out.stride + col, sum);
  }
}

}  // namespace

void combine_reference(const CombineArgs& args) noexcept {
  for (std::int64_t row = 0; row < args.out.rows; ++row)
    combine_row(args, row);
}

void combine(ContextState& state, const CombineArgs& args) {
  if (state.on_cpu()) return cpu::combine(state, args);
  if (args.out.rows > 0 && args.out.cols > 0) device_engine(state).combine(state, args);
}

}  // namespace grouped

void combine(Context& context, const CombineArgs& args) {
  constexpr std::string_view op = "combine";
  ContextState& state = context.state();
  core::check_matrix(op, "y", args.y);
  core::check_float(op, "y", args.y.dtype);
  core::check_matrix(op, "out", args.out);
  core::check_float(op, "out", args.out.dtype);
  core::require(args.out.cols == args.y.cols,
                "{}: out has {} columns; it must have as many as y, {}", op, args.out.cols,
                args.y.cols);
  core::check_matrix(op, "slots", args.slots);
  core::require(args.slots.rows == args.out.rows,
                "{}: slots has {} rows; it must have as many as out, {}", op, args.slots.rows,
                args.out.rows);
  const bool weighted = args.weights.data != nullptr;
  if (weighted) {
    core::check_matrix(op, "weights", args.weights);
    core::check_shape(op, "weights", args.weights, args.slots.rows, "T", args.slots.cols, "S");
  }
  const core::DeviceScope scope(state, op);
  core::check_operands(
      state, op, {core::operand("out", args.out)},
      {core::operand("y", args.y), core::operand("slots", args.slots),
       core::operand("weights", weighted ? ConstAnyMatrix(args.weights) : ConstAnyMatrix())});
  for (std::int64_t t = 0; state.on_cpu() && t < args.slots.rows; ++t)
    for (std::int64_t i = 0; i < args.slots.cols; ++i) {
      const std::int32_t slot = core::load(args.slots.data, t * args.slots.stride + i);
      core::require(slot < args.y.rows,
                    "{}: slots[{},{}] = {}; it must be at most y's last row, {}", op, t, i, slot,
                    args.y.rows - 1);
    }
  grouped::combine(state, args);
}

}  // namespace switchback
