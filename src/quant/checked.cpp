// SPDX-License-Identifier: Apache-2.0
#include "quant/checked.hpp"

#include <array>

#include "core/check.hpp"
#include "core/context_state.hpp"
#include "quant/dispatch.hpp"
#include "quant/passes.hpp"
#include "quant/rotate.hpp"
#include "quant/stochastic.hpp"

namespace switchback::quant {

namespace {

using core::operand;

constexpr std::array<ArgumentNames, all_ops.size()> all_names = [] {
  std::array<ArgumentNames, all_ops.size()> names;
  const auto of = [&](Op op) -> ArgumentNames& { return names[static_cast<std::size_t>(op)]; };
  of(Op::rowwise) = {.x = "x", .rows = "M", .cols = "K", .absmax = "absmax"};
  of(Op::rowwise_column_sums) = {
      .x = "g", .rows = "M", .cols = "N", .absmax = "absmax", .sums = "column_sums"};
  of(Op::column_sums) = {.x = "g", .rows = "M", .cols = "N", .sums = "sums"};
  of(Op::columnwise_transpose) = {.x = "w", .rows = "N", .cols = "K", .absmax_t = "absmax"};
  of(Op::global) = {.x = "w", .rows = "N", .cols = "K", .absmax = "absmax"};
  of(Op::global_transpose) = {.x = "w", .rows = "N", .cols = "K", .absmax_t = "absmax"};
  of(Op::rowwise_and_columnwise_transpose) = {
      .x = "w", .rows = "N", .cols = "K", .absmax = "absmax_rows", .absmax_t = "absmax_cols"};
  of(Op::global_and_transpose) = {
      .x = "w", .rows = "N", .cols = "K", .absmax = "absmax", .absmax_t = "absmax"};
  of(Op::dequantize_rowwise) = {
      .x = "q", .rows = "M", .cols = "K", .absmax = "absmax", .value = "x"};
  of(Op::cast_to_int8) = {.x = "x", .rows = "M", .cols = "K"};
  of(Op::activation_forward) = {.x = "x", .rows = "M", .cols = "K", .value = "y"};
  of(Op::activation_backward) = {.x = "x", .rows = "M", .cols = "K", .value = "dx"};
  of(Op::activation_forward_quantize) = {
      .x = "x", .rows = "M", .cols = "K", .absmax = "absmax", .value = "y"};
  of(Op::activation_backward_quantize) = {
      .x = "x", .rows = "M", .cols = "N", .absmax = "absmax", .sums = "column_sums", .value = "dx"};
  of(Op::blockwise_transpose) = {.x = "x", .rows = "M", .cols = "K", .absmax_t = "absmax"};
  of(Op::rowwise_and_blockwise_transpose) = {.x = "x",
                                             .rows = "M",
                                             .cols = "K",
                                             .absmax = "absmax_rows",
                                             .absmax_t = "absmax_blocks",
                                             .sums = "column_sums"};
  of(Op::rotate) = {.x = "x", .rows = "M", .cols = "K"};
  of(Op::rotate_quantize) = of(Op::activation_rotate_quantize) = of(Op::rowwise);
  of(Op::rowwise_stochastic) = {.x = "g", .rows = "M", .cols = "N", .absmax = "absmax"};
  of(Op::rowwise_scaled) = of(Op::rowwise_column_sums);
  of(Op::blockwise_stochastic) = {.x = "g", .rows = "M", .cols = "N", .absmax_t = "absmax"};
  return names;
}();

class Checks {
 public:
  Checks(std::string_view name, const OpParts& parts, const ArgumentNames& names,
         const Request& request)
      : op_(name), parts_(parts), names_(names), r_(request) {}

  // Checks the arguments in the order in which the public functions take them, so that the first
  // wrong one is reported.
  void arguments() const {
    const bool derives = parts_.source == Source::gradient;
    source();
    rotation();
    if (parts_.stochastic) check_rounding(op_, *r_.stochastic, r_.x.rows);
    if (parts_.scaled == Makes::yes)
      core::check_span(op_, "column_scales", r_.column_scales, r_.x.cols, names_.cols);
    if (derives) value();
    codes("q", r_.q, parts_.q, r_.x.rows, names_.rows, r_.x.cols, names_.cols, names_.absmax);
    if (parts_.q_t == Scales::per_block)
      codes_of_blocks();
    else
      codes("q_t", r_.q_t, parts_.q_t, r_.x.cols, names_.cols, r_.x.rows, names_.rows,
            names_.absmax_t);
    if (parts_.sums == Makes::yes || !r_.column_sums.empty())
      core::check_span(op_, names_.sums, r_.column_sums, r_.x.cols, names_.cols);
    if (!derives) value();
  }

  void memory(const ContextState& state) const {
    const bool derives = parts_.source == Source::gradient;
    const ConstAnyMatrix none;
    core::check_operands(
        state, op_,
        {operand(names_.value, derives ? ConstAnyMatrix(r_.value) : none), operand("q", r_.q.codes),
         operand(names_.absmax, shares_scale() ? std::span<float>() : r_.q.absmax),
         operand("q_t", r_.q_t.codes), operand(names_.absmax_t, r_.q_t.absmax),
         operand(names_.sums, r_.column_sums),
         operand(names_.value, derives ? none : ConstAnyMatrix(r_.value)),
         operand(names_.rotated, r_.rotated)},
        {operand("g", r_.g), operand(names_.x, in_place() ? none : r_.x),
         operand(names_.absmax, r_.absmax_x), operand("column_scales", r_.column_scales)});
  }

 private:
  [[nodiscard]] bool shares_scale() const {
    return parts_.q == Scales::global && parts_.q_t == Scales::global;
  }

  void source() const {
    const bool activates = parts_.source == Source::activation || parts_.source == Source::gradient;
    if (activates)
      core::check_enum<activation_name>(op_, "activation", r_.activation, Activation::gelu_tanh);
    core::check_matrix(op_, names_.x, r_.x);
    if (parts_.source == Source::codes)
      core::check_span(op_, names_.absmax, r_.absmax_x, r_.x.rows, names_.rows);
    else
      core::check_float(op_, names_.x, r_.x.dtype);
    if (parts_.source == Source::gradient) {
      like_x("g", r_.g);
      type_of_x("g", r_.g.dtype, parts_.q == Scales::none);
    }
  }

  void rotation() const {
    if (parts_.rotated == Makes::no && !parts_.rotates) return;
    check_rotation(op_, r_.rotation, r_.x.cols, names_.cols);
    if (parts_.rotated == Makes::no) return;
    core::check_matrix(op_, names_.rotated, r_.rotated);
    core::check_float(op_, names_.rotated, r_.rotated.dtype);
    core::check_shape(op_, names_.rotated, r_.rotated, r_.x.rows, names_.rows, r_.x.cols,
                      names_.cols);
    if (r_.x.dtype != DType::f32) type_of_x(names_.rotated, r_.rotated.dtype, true);
  }

  [[nodiscard]] bool in_place() const {
    return is_given(r_.rotated) && r_.rotated.data == r_.x.data && r_.rotated.dtype == r_.x.dtype &&
           r_.rotated.stride == r_.x.stride;
  }

  void value() const {
    if (parts_.value == Makes::no) return;
    if (parts_.value == Makes::if_wanted && !is_given(r_.value)) return;
    if (parts_.source == Source::codes) {
      core::check_matrix(op_, names_.value, r_.value);
      core::check_float(op_, names_.value, r_.value.dtype);
    }
    like_x(names_.value, r_.value);
    if (parts_.source == Source::activation) type_of_x(names_.value, r_.value.dtype, false);
    if (parts_.source == Source::gradient)
      core::require(r_.value.dtype == r_.g.dtype, "{}: {} has dtype {}; it must be g's, {}", op_,
                    names_.value, dtype_name(r_.value.dtype), dtype_name(r_.g.dtype));
  }

  void codes(std::string_view argument, const CodesOut& out, Scales scales, std::int64_t rows,
             std::string_view rows_name, std::int64_t cols, std::string_view cols_name,
             std::string_view absmax) const {
    if (scales == Scales::none) return;
    core::check_matrix(op_, argument, out.codes);
    core::check_shape(op_, argument, out.codes, rows, rows_name, cols, cols_name);
    if (scales == Scales::per_row || scales == Scales::per_column)
      core::check_span(op_, absmax, out.absmax, rows, rows_name);
    // If q and q_t share one scale, it is the function's last argument, and is checked with q_t.
    else if (scales == Scales::global && (&out == &r_.q_t || !shares_scale()))
      core::check_span(op_, absmax, out.absmax, 1, "one scale");
  }

  void codes_of_blocks() const {
    const CodesOut& out = r_.q_t;
    core::check_block_rows(op_, "block_rows", out.block_rows);
    const std::int64_t padded = whole_block_rows(r_.x.rows, out.block_rows);
    core::check_matrix(op_, "q_t", out.codes);
    core::check_shape(op_, "q_t", out.codes, r_.x.cols, names_.cols, padded,
                      "M rounded up to whole blocks");
    core::check_span(op_, names_.absmax_t, out.absmax,
                     scale_count(out.scales, r_.x.rows, r_.x.cols, out.block_rows), "blocks * K");
  }

  void like_x(std::string_view argument, ConstAnyMatrix m) const {
    core::check_matrix(op_, argument, m);
    core::check_shape(op_, argument, m, r_.x.rows, names_.rows, r_.x.cols, names_.cols);
  }

  // Checks that an argument has the type of x, or f32 if the operation accepts that too.
  void type_of_x(std::string_view argument, DType dtype, bool or_f32) const {
    const bool right = dtype == r_.x.dtype || (or_f32 && dtype == DType::f32);
    core::require(right, "{}: {} has dtype {}; it must be x's, {}{}", op_, argument,
                  dtype_name(dtype), dtype_name(r_.x.dtype), or_f32 ? ", or f32" : "");
  }

  std::string_view op_;
  const OpParts& parts_;
  const ArgumentNames& names_;
  const Request& r_;
};

}  // namespace

const ArgumentNames& names_of(Op op) noexcept {
  return all_names[static_cast<std::size_t>(op)];
}

namespace {

constexpr std::string_view any_results = "quantize";
constexpr ArgumentNames names_of_any = {.x = "x",
                                        .rows = "M",
                                        .cols = "K",
                                        .absmax = "absmax",
                                        .absmax_t = "absmax_t",
                                        .sums = "column_sums",
                                        .value = "value",
                                        .rotated = "rotated"};

void run_checked(Context& context, std::string_view name, const OpParts& op,
                 const ArgumentNames& names, const Request& request) {
  const Checks checks(name, op, names, request);
  checks.arguments();
  const core::DeviceScope scope(context.state(), name);
  checks.memory(context.state());
  run(context.state(), op.op, request);
}

// Checks that an argument is absent if no requested result reads it.
void check_use(const Request& r) {
  const bool codes = r.q.scales != Scales::none || r.q_t.scales != Scales::none;
  const auto require_use = [](bool used, std::string_view argument, std::string_view needs) {
    core::require(used, "{}: {} is given without {}", any_results, argument, needs);
  };
  require_use(!is_given(r.g) || r.activation != Activation::none, "g", "an activation");
  require_use(!is_given(r.value) || r.activation != Activation::none, "value", "an activation");
  require_use(r.rotation == Rotation::none || codes || is_given(r.rotated), "rotation",
              "codes or rotated");
  require_use(r.column_scales.empty() || r.q.scales != Scales::none, "column_scales", "q");
  require_use(!r.stochastic.has_value() || codes, "stochastic", "codes");
}

}  // namespace

void run_checked(Context& context, Op op, const Request& request) {
  run_checked(context, op_name(op), parts_of(op), names_of(op), request);
}

void run_checked(Context& context, const Request& request) {
  core::check_matrix(any_results, "x", request.x);
  core::check_float(any_results, "x", request.x.dtype);
  check_use(request);
  if (results_wanted(request) == 0) {
    core::require(request.x.rows == 0 || request.x.cols == 0,
                  "{}: no result is requested: q, q_t, column_sums, value and rotated are null",
                  any_results);
    return;
  }
  Request of_x_type = request;  // a g of another type is refused later, by its name
  of_x_type.g.dtype = request.x.dtype;
  const OpParts* const op = single_pass(of_x_type);
  if (op == nullptr)
    core::fail(Status::unsupported,
               "{}: no single pass computes all requested results; use several calls", any_results);
  run_checked(context, any_results, *op, names_of_any, request);
}

}  // namespace switchback::quant
