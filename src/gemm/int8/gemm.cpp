// SPDX-License-Identifier: Apache-2.0
// Entry of the int8 products: validates the arguments and calls gemm/int8/dispatch.hpp.
#include <string>

#include "core/check.hpp"
#include "gemm/int8/checks.hpp"
#include "gemm/int8/dispatch.hpp"
#include "gemm/int8/packed_weight.hpp"
#include "switchback/gemm.hpp"

namespace switchback {

namespace {

using gemm_int8::Engine;

// Validates the arguments that gemm_s8s8s32 and gemm share: a, b or packed_b, and d. Returns N.
template <class Args>
std::int64_t check_inputs(const ContextState& state, std::string_view op, const Args& args) {
  core::check_matrix(op, "a", args.a);
  const std::int64_t k = args.a.cols;
  gemm_int8::check_k(op, k);
  std::int64_t n = args.b.rows;
  if (args.packed_b != nullptr) {
    const PackedWeightState& packed =
        gemm_int8::check_filled(op, args.b, *args.packed_b, "pack_weight");
    core::require(packed.groups == 1,
                  "{}: packed_b holds the matrices of {} groups; grouped_gemm takes them", op,
                  packed.groups);
    gemm_int8::check_packed(state, op, packed, k, args.engine);
    n = packed.rows;
  } else {
    core::check_matrix(op, "b", args.b);
    core::check_shape(op, "b", args.b, n, "N", k, "K");
  }
  core::check_matrix(op, "d", args.d);
  core::check_shape(op, "d", args.d, args.a.rows, "M", n, "N");
  return n;
}

}  // namespace

void pack_weight(Context& context, MatrixView<const std::int8_t> b, PackedWeight& out,
                 std::string_view engine) {
  constexpr std::string_view op = "pack_weight";
  ContextState& state = context.state();
  core::check_matrix(op, "b", b);
  gemm_int8::check_k(op, b.cols);
  core::check_operands(state, op, {}, {core::operand("b", b)});
  gemm_int8::check_operand_codes(state, op, "b", b);
  gemm_int8::pack(state, op, b, 1, out, engine);
}

void gemm_s8s8s32(Context& context, const GemmS8S8S32Args& args) {
  constexpr std::string_view op = "gemm_s8s8s32";
  ContextState& state = context.state();
  check_inputs(state, op, args);
  const core::DeviceScope scope(state, op);
  core::check_operands(state, op, {core::operand("d", args.d)},
                       {core::operand("a", args.a), core::operand("b", args.b)});
  gemm_int8::check_operand_codes(state, op, "a", args.a);
  gemm_int8::check_operand_codes(state, op, "b", args.b);
  gemm_int8::multiply(state, args);
}

void gemm(Context& context, const GemmArgs& args) {
  constexpr std::string_view op = "gemm";
  ContextState& state = context.state();
  const std::int64_t n = check_inputs(state, op, args);
  core::check_float(op, "d", args.d.dtype);
  core::check_span(op, "absmax_a", args.absmax_a, args.a.rows, "M");
  core::require(args.absmax_b.size() == 1 || args.absmax_b.size() == static_cast<std::size_t>(n),
                "{}: absmax_b holds {} floats; it must hold N = {} or 1", op, args.absmax_b.size(),
                n);
  core::check_span(op, "absmax_b", args.absmax_b, static_cast<std::int64_t>(args.absmax_b.size()),
                   "N or 1");
  if (args.bias.data != nullptr) {
    core::check_matrix(op, "bias", args.bias);
    core::check_float(op, "bias", args.bias.dtype);
    core::check_shape(op, "bias", args.bias, 1, "1", n, "N");
  }
  const core::DeviceScope scope(state, op);
  core::check_operands(
      state, op, {core::operand("d", args.d)},
      {core::operand("a", args.a), core::operand("b", args.b),
       core::operand("absmax_a", args.absmax_a), core::operand("absmax_b", args.absmax_b),
       core::operand("bias", args.bias)});
  gemm_int8::check_operand_codes(state, op, "a", args.a);
  gemm_int8::check_operand_codes(state, op, "b", args.b);
  gemm_int8::multiply(state, args);
}

std::vector<EngineInfo> gemm_engines(const Context& context) {
  std::vector<EngineInfo> infos;
  for (const Engine* engine : gemm_int8::engines(context.state().device.kind)) {
    const std::string_view reason = engine->unavailable(context.state());
    infos.push_back({std::string(engine->name), reason.empty(), std::string(reason)});
  }
  return infos;
}

PackedWeight::PackedWeight() : state_(std::make_unique<PackedWeightState>()) {}
PackedWeight::~PackedWeight() = default;
PackedWeight::PackedWeight(PackedWeight&&) noexcept = default;
PackedWeight& PackedWeight::operator=(PackedWeight&&) noexcept = default;

bool PackedWeight::empty() const noexcept {
  return state_ == nullptr || state_->engine == nullptr;
}
std::int64_t PackedWeight::rows() const noexcept {
  return state_ == nullptr ? 0 : state_->rows;
}
std::int64_t PackedWeight::cols() const noexcept {
  return state_ == nullptr ? 0 : state_->cols;
}
std::int64_t PackedWeight::groups() const noexcept {
  return state_ == nullptr ? 1 : state_->groups;
}
std::size_t PackedWeight::bytes() const noexcept {
  return state_ == nullptr ? 0 : state_->buffer.capacity_bytes();
}
std::string_view PackedWeight::engine() const noexcept {
  return empty() ? std::string_view() : state_->engine->name;
}

}  // namespace switchback
