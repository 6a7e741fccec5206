// SPDX-License-Identifier: Apache-2.0
// C ABI: quantization.
#include <cstring>

#include "capi/guard.hpp"
#include "capi/handles.hpp"
#include "quant/checked.hpp"
#include "switchback/fingerprint.hpp"

using namespace switchback;
using namespace switchback::capi;
using quant::CodesOut;
using quant::Scales;

namespace {

constexpr std::string_view name = "quantize";

Scales read_scales(std::string_view argument, std::int32_t scale, Scales per_row,
                   std::int32_t most) {
  core::require(scale >= SWITCHBACK_SCALE_PER_ROW && scale <= most,
                "{}: {} = {}; it must be per_row (0){}", name, argument, scale,
                most == SWITCHBACK_SCALE_NONE ? ", global (1) or none (2)" : " or global (1)");
  return scale == SWITCHBACK_SCALE_PER_ROW  ? per_row
         : scale == SWITCHBACK_SCALE_GLOBAL ? Scales::global
                                            : Scales::unscaled;
}

// Codes are wanted if there is a pointer to them or to their scales.
CodesOut read_codes(std::string_view argument, const switchback_matrix& codes, float* absmax,
                    const quant::Request& r, Scales scales, std::int64_t block_rows = 0) {
  if (codes.data == nullptr && absmax == nullptr) return {};
  core::require(codes.data != nullptr || r.x.rows == 0 || r.x.cols == 0,
                "{}: {} is a null pointer, but its scales are given", name, argument);
  return {scales, read_view<std::int8_t>(name, argument, codes),
          read_span(absmax, quant::scale_count(scales, r.x.rows, r.x.cols, block_rows)),
          block_rows};
}

quant::Request read(const switchback_quantize_args& given) {
  quant::Request r;
  r.x = read_matrix(name, "x", given.x);
  r.g = read_optional_matrix(name, "g", given.g);
  r.activation = static_cast<Activation>(given.activation);
  r.rotation = static_cast<Rotation>(given.rotation);
  if (given.column_scales != nullptr) r.column_scales = read_span(given.column_scales, r.x.cols);
  const Scales scales =
      read_scales("q_scale", given.q_scale, Scales::per_row, SWITCHBACK_SCALE_NONE);
  core::require(scales != Scales::unscaled || given.absmax == nullptr,
                "{}: absmax is given for codes without scales", name);
  r.q = read_codes("q", given.q, given.absmax, r, scales);
  const bool blocks = given.block_rows != 0;
  const Scales scales_t =
      read_scales("q_t_scale", given.q_t_scale, blocks ? Scales::per_block : Scales::per_column,
                  SWITCHBACK_SCALE_GLOBAL);
  core::require(!blocks || scales_t == Scales::per_block,
                "{}: block_rows = {} with q_t_scale global; it must be 0", name, given.block_rows);
  r.q_t = read_codes("q_t", given.q_t, given.absmax_t, r, scales_t, given.block_rows);
  if (r.q.scales == Scales::global && r.q_t.scales == Scales::global) {
    core::require(given.absmax_t == nullptr,
                  "{}: absmax_t is given; codes with the global scale share absmax", name);
    r.q_t.absmax = r.q.absmax;
  }
  r.accumulate = read_flag(name, "accumulate", given.accumulate);
  if (given.column_sums != nullptr) r.column_sums = read_span(given.column_sums, r.x.cols);
  r.value = read_optional_matrix(name, "value", given.value);
  r.rotated = read_optional_matrix(name, "rotated", given.rotated);
  r.stochastic = read_rounding(name, given);
  return r;
}

}  // namespace

switchback_status switchback_quantize(switchback_context* context,
                                      const switchback_quantize_args* args) {
  return guard([&] {
    Context& ctx = read_context(name, context);
    quant::run_checked(ctx, read(read_struct(name, "args", args)));
  });
}

switchback_status switchback_dequantize_rowwise(switchback_context* context,
                                                const switchback_matrix* q, const float* absmax,
                                                const switchback_matrix* x) {
  return guard([&] {
    constexpr std::string_view op = "dequantize_rowwise";
    Context& ctx = read_context(op, context);
    const auto codes = read_view<const std::int8_t>(op, "q", q);
    dequantize_rowwise(ctx, codes, read_span(absmax, codes.rows), read_matrix(op, "x", x));
  });
}

switchback_status switchback_fingerprint(switchback_context* context, const switchback_matrix* x,
                                         uint64_t out[2]) {
  return guard([&] {
    constexpr std::string_view op = "fingerprint";
    Context& ctx = read_context(op, context);
    const AnyMatrix in = read_matrix(op, "x", x);
    check_pointer(op, "out", out);
    const Fingerprint result = fingerprint(ctx, in);
    std::memcpy(out, result.data(), sizeof(result));
  });
}
