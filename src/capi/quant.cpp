// SPDX-License-Identifier: Apache-2.0
// C ABI: quantization.
#include "switchback/quant.hpp"

#include <cstring>

#include "capi/guard.hpp"
#include "capi/handles.hpp"
#include "switchback/activation.hpp"
#include "switchback/fingerprint.hpp"

using namespace switchback;
using namespace switchback::capi;

switchback_status switchback_quantize_rowwise(switchback_context* context,
                                              const switchback_matrix* x,
                                              const switchback_matrix* q, float* absmax) {
  return guard([&] {
    constexpr std::string_view op = "quantize_rowwise";
    Context& ctx = read_context(op, context);
    const AnyMatrix in = read_matrix(op, "x", x);
    const auto codes = read_view<std::int8_t>(op, "q", q);
    quantize_rowwise(ctx, in, codes, read_span(absmax, in.rows));
  });
}

switchback_status switchback_quantize_rowwise_column_sums(switchback_context* context,
                                                          const switchback_matrix* g,
                                                          const switchback_matrix* q, float* absmax,
                                                          float* column_sums, int32_t accumulate) {
  return guard([&] {
    constexpr std::string_view op = "quantize_rowwise_column_sums";
    Context& ctx = read_context(op, context);
    const AnyMatrix in = read_matrix(op, "g", g);
    const auto codes = read_view<std::int8_t>(op, "q", q);
    const bool add = read_flag(op, "accumulate", accumulate);
    quantize_rowwise_column_sums(ctx, in, codes, read_span(absmax, in.rows),
                                 read_span(column_sums, in.cols), add);
  });
}

switchback_status switchback_column_sums(switchback_context* context, const switchback_matrix* g,
                                         float* column_sums, int32_t accumulate) {
  return guard([&] {
    constexpr std::string_view op = "column_sums";
    Context& ctx = read_context(op, context);
    const AnyMatrix in = read_matrix(op, "g", g);
    const bool add = read_flag(op, "accumulate", accumulate);
    switchback::column_sums(ctx, in, read_span(column_sums, in.cols), add);
  });
}

switchback_status switchback_quantize_columnwise_transpose(switchback_context* context,
                                                           const switchback_matrix* w,
                                                           const switchback_matrix* q_t,
                                                           float* absmax) {
  return guard([&] {
    constexpr std::string_view op = "quantize_columnwise_transpose";
    Context& ctx = read_context(op, context);
    const AnyMatrix in = read_matrix(op, "w", w);
    const auto codes = read_view<std::int8_t>(op, "q_t", q_t);
    quantize_columnwise_transpose(ctx, in, codes, read_span(absmax, in.cols));
  });
}

switchback_status switchback_quantize_global(switchback_context* context,
                                             const switchback_matrix* w, const switchback_matrix* q,
                                             float* absmax) {
  return guard([&] {
    constexpr std::string_view op = "quantize_global";
    Context& ctx = read_context(op, context);
    const AnyMatrix in = read_matrix(op, "w", w);
    const auto codes = read_view<std::int8_t>(op, "q", q);
    quantize_global(ctx, in, codes, read_span(absmax, 1));
  });
}

switchback_status switchback_quantize_global_transpose(switchback_context* context,
                                                       const switchback_matrix* w,
                                                       const switchback_matrix* q_t,
                                                       float* absmax) {
  return guard([&] {
    constexpr std::string_view op = "quantize_global_transpose";
    Context& ctx = read_context(op, context);
    const AnyMatrix in = read_matrix(op, "w", w);
    const auto codes = read_view<std::int8_t>(op, "q_t", q_t);
    quantize_global_transpose(ctx, in, codes, read_span(absmax, 1));
  });
}

switchback_status switchback_quantize_rowwise_and_columnwise_transpose(
    switchback_context* context, const switchback_matrix* w, const switchback_matrix* q,
    float* absmax_rows, const switchback_matrix* q_t, float* absmax_cols) {
  return guard([&] {
    constexpr std::string_view op = "quantize_rowwise_and_columnwise_transpose";
    Context& ctx = read_context(op, context);
    const AnyMatrix in = read_matrix(op, "w", w);
    const auto codes = read_view<std::int8_t>(op, "q", q);
    const auto codes_t = read_view<std::int8_t>(op, "q_t", q_t);
    quantize_rowwise_and_columnwise_transpose(ctx, in, codes, read_span(absmax_rows, in.rows),
                                              codes_t, read_span(absmax_cols, in.cols));
  });
}

switchback_status switchback_quantize_global_and_transpose(switchback_context* context,
                                                           const switchback_matrix* w,
                                                           const switchback_matrix* q,
                                                           const switchback_matrix* q_t,
                                                           float* absmax) {
  return guard([&] {
    constexpr std::string_view op = "quantize_global_and_transpose";
    Context& ctx = read_context(op, context);
    const AnyMatrix in = read_matrix(op, "w", w);
    const auto codes = read_view<std::int8_t>(op, "q", q);
    const auto codes_t = read_view<std::int8_t>(op, "q_t", q_t);
    quantize_global_and_transpose(ctx, in, codes, codes_t, read_span(absmax, 1));
  });
}

switchback_status switchback_dequantize_rowwise(switchback_context* context,
                                                const switchback_matrix* q, const float* absmax,
                                                const switchback_matrix* x) {
  return guard([&] {
    constexpr std::string_view op = "dequantize_rowwise";
    Context& ctx = read_context(op, context);
    const auto codes = read_view<const std::int8_t>(op, "q", q);
    const AnyMatrix out = read_matrix(op, "x", x);
    dequantize_rowwise(ctx, codes, read_span(absmax, codes.rows), out);
  });
}

switchback_status switchback_cast_to_int8(switchback_context* context, const switchback_matrix* x,
                                          const switchback_matrix* q) {
  return guard([&] {
    constexpr std::string_view op = "cast_to_int8";
    Context& ctx = read_context(op, context);
    const AnyMatrix in = read_matrix(op, "x", x);
    cast_to_int8(ctx, in, read_view<std::int8_t>(op, "q", q));
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

switchback_status switchback_activation_forward(switchback_context* context,
                                                const switchback_matrix* x, int32_t activation,
                                                const switchback_matrix* y) {
  return guard([&] {
    constexpr std::string_view op = "activation_forward";
    Context& ctx = read_context(op, context);
    const AnyMatrix in = read_matrix(op, "x", x);
    const AnyMatrix out = read_matrix(op, "y", y);
    activation_forward(ctx, in, static_cast<Activation>(activation), out);
  });
}

switchback_status switchback_activation_backward(switchback_context* context,
                                                 const switchback_matrix* g,
                                                 const switchback_matrix* x, int32_t activation,
                                                 const switchback_matrix* dx) {
  return guard([&] {
    constexpr std::string_view op = "activation_backward";
    Context& ctx = read_context(op, context);
    const AnyMatrix gradient = read_matrix(op, "g", g);
    const AnyMatrix in = read_matrix(op, "x", x);
    const AnyMatrix out = read_matrix(op, "dx", dx);
    activation_backward(ctx, gradient, in, static_cast<Activation>(activation), out);
  });
}

switchback_status switchback_activation_forward_quantize(switchback_context* context,
                                                         const switchback_matrix* x,
                                                         int32_t activation,
                                                         const switchback_matrix* q, float* absmax,
                                                         const switchback_matrix* y_or_null) {
  return guard([&] {
    constexpr std::string_view op = "activation_forward_quantize";
    Context& ctx = read_context(op, context);
    const AnyMatrix in = read_matrix(op, "x", x);
    const auto codes = read_view<std::int8_t>(op, "q", q);
    const AnyMatrix out =
        y_or_null == nullptr ? AnyMatrix() : read_optional_matrix(op, "y", *y_or_null);
    activation_forward_quantize(ctx, in, static_cast<Activation>(activation), codes,
                                read_span(absmax, in.rows), out);
  });
}

switchback_status switchback_activation_backward_quantize(
    switchback_context* context, const switchback_matrix* g, const switchback_matrix* x,
    int32_t activation, const switchback_matrix* dx, const switchback_matrix* q, float* absmax,
    float* column_sums_or_null, int32_t accumulate) {
  return guard([&] {
    constexpr std::string_view op = "activation_backward_quantize";
    Context& ctx = read_context(op, context);
    const AnyMatrix gradient = read_matrix(op, "g", g);
    const AnyMatrix in = read_matrix(op, "x", x);
    const AnyMatrix out = read_matrix(op, "dx", dx);
    const auto codes = read_view<std::int8_t>(op, "q", q);
    const bool add = read_flag(op, "accumulate", accumulate);
    std::span<float> sums;
    if (column_sums_or_null != nullptr) sums = read_span(column_sums_or_null, in.cols);
    activation_backward_quantize(ctx, gradient, in, static_cast<Activation>(activation), out, codes,
                                 read_span(absmax, in.rows), sums, add);
  });
}
