// SPDX-License-Identifier: Apache-2.0
// C ABI: quantization.
#include <cstring>

#include "capi/guard.hpp"
#include "capi/handles.hpp"
#include "quant/checked.hpp"
#include "switchback/fingerprint.hpp"

using namespace switchback;
using namespace switchback::capi;
using quant::Makes;
using quant::Op;
using quant::Scales;
using quant::Source;

namespace {

// The arguments of a quantize function, those that it has.
struct Arguments {
  const switchback_matrix* x = nullptr;
  const float* absmax_x = nullptr;
  const switchback_matrix* g = nullptr;
  std::int32_t activation = 0;
  const switchback_matrix* q = nullptr;
  float* absmax = nullptr;
  const switchback_matrix* q_t = nullptr;
  float* absmax_t = nullptr;
  std::int32_t block_rows = 0;
  float* column_sums = nullptr;
  std::int32_t accumulate = 0;
  const switchback_matrix* value = nullptr;
  std::int32_t rotation = 0;
  const switchback_matrix* rotated = nullptr;
  const float* column_scales = nullptr;
};

// In the order in which the C++ API checks them.
quant::Request read(Op op, const Arguments& a) {
  const quant::OpParts& parts = quant::parts_of(op);
  const quant::ArgumentNames& names = quant::names_of(op);
  const std::string_view name = parts.name;
  const bool derives = parts.source == Source::gradient;
  quant::Request r;
  r.activation = static_cast<Activation>(a.activation);
  if (derives) r.g = read_matrix(name, "g", a.g);
  if (parts.source == Source::codes)
    r.x = read_view<const std::int8_t>(name, names.x, a.x);
  else
    r.x = read_matrix(name, names.x, a.x);
  if (parts.source == Source::codes) r.absmax_x = read_span(a.absmax_x, r.x.rows);
  if (derives) r.value = read_matrix(name, names.value, a.value);
  const auto codes = [&](Scales scales, std::string_view argument, const switchback_matrix* q,
                         float* absmax) -> quant::CodesOut {
    if (scales == Scales::none) return {};
    return {scales, read_view<std::int8_t>(name, argument, q),
            read_span(absmax, quant::scale_count(scales, r.x.rows, r.x.cols, a.block_rows)),
            scales == Scales::per_block ? a.block_rows : 0};
  };
  r.q = codes(parts.q, "q", a.q, a.absmax);
  r.q_t = codes(parts.q_t, "q_t", a.q_t, a.absmax_t);
  r.accumulate = read_flag(name, "accumulate", a.accumulate);
  if (parts.sums == Makes::yes || a.column_sums != nullptr)
    r.column_sums = read_span(a.column_sums, r.x.cols);
  if (parts.value == Makes::yes && !derives)
    r.value = read_matrix(name, names.value, a.value);
  else if (parts.source == Source::activation && a.value != nullptr)
    r.value = read_optional_matrix(name, names.value, *a.value);
  if (parts.scaled == Makes::yes) r.column_scales = read_span(a.column_scales, r.x.cols);
  r.rotation = static_cast<Rotation>(a.rotation);
  if (parts.rotated == Makes::yes) r.rotated = read_matrix(name, "y", a.rotated);
  return r;
}

switchback_status quantize(Op op, switchback_context* context, const Arguments& arguments) {
  return guard([&] {
    Context& ctx = read_context(quant::op_name(op), context);
    quant::run_checked(ctx, op, read(op, arguments));
  });
}

}  // namespace

switchback_status switchback_quantize_rowwise(switchback_context* context,
                                              const switchback_matrix* x,
                                              const switchback_matrix* q, float* absmax) {
  return quantize(Op::rowwise, context, {.x = x, .q = q, .absmax = absmax});
}

switchback_status switchback_quantize_rowwise_column_sums(switchback_context* context,
                                                          const switchback_matrix* g,
                                                          const switchback_matrix* q, float* absmax,
                                                          float* column_sums, int32_t accumulate) {
  return quantize(
      Op::rowwise_column_sums, context,
      {.x = g, .q = q, .absmax = absmax, .column_sums = column_sums, .accumulate = accumulate});
}

switchback_status switchback_column_sums(switchback_context* context, const switchback_matrix* g,
                                         float* column_sums, int32_t accumulate) {
  return quantize(Op::column_sums, context,
                  {.x = g, .column_sums = column_sums, .accumulate = accumulate});
}

switchback_status switchback_quantize_columnwise_transpose(switchback_context* context,
                                                           const switchback_matrix* w,
                                                           const switchback_matrix* q_t,
                                                           float* absmax) {
  return quantize(Op::columnwise_transpose, context, {.x = w, .q_t = q_t, .absmax_t = absmax});
}

switchback_status switchback_quantize_blockwise_transpose(switchback_context* context,
                                                          const switchback_matrix* x,
                                                          int32_t block_rows,
                                                          const switchback_matrix* q_t,
                                                          float* absmax) {
  return quantize(Op::blockwise_transpose, context,
                  {.x = x, .q_t = q_t, .absmax_t = absmax, .block_rows = block_rows});
}

switchback_status switchback_quantize_rowwise_and_blockwise_transpose(
    switchback_context* context, const switchback_matrix* x, const switchback_matrix* q,
    float* absmax_rows, int32_t block_rows, const switchback_matrix* q_t, float* absmax_blocks,
    float* column_sums_or_null, int32_t accumulate) {
  return quantize(Op::rowwise_and_blockwise_transpose, context,
                  {.x = x,
                   .q = q,
                   .absmax = absmax_rows,
                   .q_t = q_t,
                   .absmax_t = absmax_blocks,
                   .block_rows = block_rows,
                   .column_sums = column_sums_or_null,
                   .accumulate = accumulate});
}

switchback_status switchback_quantize_rowwise_scaled(
    switchback_context* context, const switchback_matrix* g, const float* column_scales,
    const switchback_matrix* q, float* absmax, float* column_sums_or_null, int32_t accumulate) {
  return quantize(Op::rowwise_scaled, context,
                  {.x = g,
                   .q = q,
                   .absmax = absmax,
                   .column_sums = column_sums_or_null,
                   .accumulate = accumulate,
                   .column_scales = column_scales});
}

switchback_status switchback_quantize_global(switchback_context* context,
                                             const switchback_matrix* w, const switchback_matrix* q,
                                             float* absmax) {
  return quantize(Op::global, context, {.x = w, .q = q, .absmax = absmax});
}

switchback_status switchback_quantize_global_transpose(switchback_context* context,
                                                       const switchback_matrix* w,
                                                       const switchback_matrix* q_t,
                                                       float* absmax) {
  return quantize(Op::global_transpose, context, {.x = w, .q_t = q_t, .absmax_t = absmax});
}

switchback_status switchback_quantize_rowwise_and_columnwise_transpose(
    switchback_context* context, const switchback_matrix* w, const switchback_matrix* q,
    float* absmax_rows, const switchback_matrix* q_t, float* absmax_cols) {
  return quantize(Op::rowwise_and_columnwise_transpose, context,
                  {.x = w, .q = q, .absmax = absmax_rows, .q_t = q_t, .absmax_t = absmax_cols});
}

switchback_status switchback_quantize_global_and_transpose(switchback_context* context,
                                                           const switchback_matrix* w,
                                                           const switchback_matrix* q,
                                                           const switchback_matrix* q_t,
                                                           float* absmax) {
  return quantize(Op::global_and_transpose, context,
                  {.x = w, .q = q, .absmax = absmax, .q_t = q_t, .absmax_t = absmax});
}

switchback_status switchback_dequantize_rowwise(switchback_context* context,
                                                const switchback_matrix* q, const float* absmax,
                                                const switchback_matrix* x) {
  return quantize(Op::dequantize_rowwise, context, {.x = q, .absmax_x = absmax, .value = x});
}

switchback_status switchback_cast_to_int8(switchback_context* context, const switchback_matrix* x,
                                          const switchback_matrix* q) {
  return quantize(Op::cast_to_int8, context, {.x = x, .q = q});
}

switchback_status switchback_activation_forward(switchback_context* context,
                                                const switchback_matrix* x, int32_t activation,
                                                const switchback_matrix* y) {
  return quantize(Op::activation_forward, context, {.x = x, .activation = activation, .value = y});
}

switchback_status switchback_activation_backward(switchback_context* context,
                                                 const switchback_matrix* g,
                                                 const switchback_matrix* x, int32_t activation,
                                                 const switchback_matrix* dx) {
  return quantize(Op::activation_backward, context,
                  {.x = x, .g = g, .activation = activation, .value = dx});
}

switchback_status switchback_activation_forward_quantize(switchback_context* context,
                                                         const switchback_matrix* x,
                                                         int32_t activation,
                                                         const switchback_matrix* q, float* absmax,
                                                         const switchback_matrix* y_or_null) {
  return quantize(Op::activation_forward_quantize, context,
                  {.x = x, .activation = activation, .q = q, .absmax = absmax, .value = y_or_null});
}

switchback_status switchback_activation_backward_quantize(
    switchback_context* context, const switchback_matrix* g, const switchback_matrix* x,
    int32_t activation, const switchback_matrix* dx, const switchback_matrix* q, float* absmax,
    float* column_sums_or_null, int32_t accumulate) {
  return quantize(Op::activation_backward_quantize, context,
                  {.x = x,
                   .g = g,
                   .activation = activation,
                   .q = q,
                   .absmax = absmax,
                   .column_sums = column_sums_or_null,
                   .accumulate = accumulate,
                   .value = dx});
}

switchback_status switchback_rotate(switchback_context* context, const switchback_matrix* x,
                                    int32_t rotation, const switchback_matrix* y) {
  return quantize(Op::rotate, context, {.x = x, .rotation = rotation, .rotated = y});
}

switchback_status switchback_rotate_quantize(switchback_context* context,
                                             const switchback_matrix* x, int32_t activation,
                                             int32_t rotation, const switchback_matrix* q,
                                             float* absmax) {
  const Op op = activation == 0 ? Op::rotate_quantize : Op::activation_rotate_quantize;
  return quantize(
      op, context,
      {.x = x, .activation = activation, .q = q, .absmax = absmax, .rotation = rotation});
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
