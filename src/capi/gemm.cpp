// SPDX-License-Identifier: Apache-2.0
// C ABI: matrix products.
#include "switchback/gemm.hpp"

#include "capi/guard.hpp"
#include "capi/handles.hpp"

using namespace switchback;
using namespace switchback::capi;

switchback_status switchback_packed_weight_create(switchback_packed_weight** out) {
  return guard([&] {
    check_pointer("packed_weight_create", "out", out);
    *out = new switchback_packed_weight();
  });
}

void switchback_packed_weight_destroy(switchback_packed_weight* or_null) {
  delete or_null;
}

switchback_status switchback_packed_weight_bytes(const switchback_packed_weight* packed,
                                                 size_t* out) {
  return guard([&] {
    constexpr std::string_view op = "packed_weight_bytes";
    check_pointer(op, "packed", packed);
    check_pointer(op, "out", out);
    *out = packed->packed.bytes();
  });
}

switchback_status switchback_pack_weight(switchback_context* context, const switchback_matrix* b,
                                         switchback_packed_weight* packed,
                                         const char* engine_or_null) {
  return guard([&] {
    constexpr std::string_view op = "pack_weight";
    Context& ctx = read_context(op, context);
    const auto view = read_view<const std::int8_t>(op, "b", b);
    check_pointer(op, "packed", packed);
    pack_weight(ctx, view, packed->packed, read_name(engine_or_null));
  });
}

switchback_status switchback_gemm_s8s8s32(switchback_context* context, const switchback_matrix* a,
                                          const switchback_matrix* b, const switchback_matrix* d) {
  return guard([&] {
    constexpr std::string_view op = "gemm_s8s8s32";
    Context& ctx = read_context(op, context);
    GemmS8S8S32Args args;
    args.a = read_view<const std::int8_t>(op, "a", a);
    args.b = read_view<const std::int8_t>(op, "b", b);
    args.d = read_view<std::int32_t>(op, "d", d);
    gemm_s8s8s32(ctx, args);
  });
}

switchback_status switchback_gemm_s8s8s32_packed(switchback_context* context,
                                                 const switchback_matrix* a,
                                                 const switchback_packed_weight* packed_b,
                                                 const switchback_matrix* d) {
  return guard([&] {
    constexpr std::string_view op = "gemm_s8s8s32";
    Context& ctx = read_context(op, context);
    GemmS8S8S32Args args;
    args.a = read_view<const std::int8_t>(op, "a", a);
    check_pointer(op, "packed_b", packed_b);
    args.packed_b = &packed_b->packed;
    args.d = read_view<std::int32_t>(op, "d", d);
    gemm_s8s8s32(ctx, args);
  });
}

switchback_status switchback_gemm_dequantize(switchback_context* context,
                                             const switchback_gemm_args* args) {
  return guard([&] {
    constexpr std::string_view op = "gemm";
    Context& ctx = read_context(op, context);
    const auto given = read_struct(op, "args", args);
    GemmArgs cpp;
    cpp.a = read_view<const std::int8_t>(op, "a", given.a);
    read_b(op, given.b, given.packed_b, cpp.b, cpp.packed_b);
    cpp.d = read_matrix(op, "d", given.d);
    cpp.absmax_a = read_span(given.absmax_a, cpp.a.rows);
    core::require(given.absmax_b_count == cpp.d.cols || given.absmax_b_count == 1,
                  "{}: absmax_b_count = {}; it must be 1 or N = {}", op, given.absmax_b_count,
                  cpp.d.cols);
    cpp.absmax_b = read_span(given.absmax_b, given.absmax_b_count);
    cpp.bias = read_bias(op, given.bias, given.bias_dtype, 1, cpp.d.cols);
    cpp.engine = read_name(given.engine);
    gemm(ctx, cpp);
  });
}

switchback_status switchback_gemm_standard(switchback_context* context,
                                           const switchback_gemm_standard_args* args) {
  return guard([&] {
    constexpr std::string_view op = "gemm_standard";
    Context& ctx = read_context(op, context);
    const auto given = read_struct(op, "args", args);
    StandardGemmArgs cpp;
    cpp.a = read_matrix(op, "a", given.a);
    cpp.b = read_matrix(op, "b", given.b);
    cpp.d = read_matrix(op, "d", given.d);
    cpp.transpose_a = read_flag(op, "transpose_a", given.transpose_a);
    cpp.transpose_b = read_flag(op, "transpose_b", given.transpose_b);
    cpp.accumulate = read_flag(op, "accumulate", given.accumulate);
    cpp.bias = read_bias(op, given.bias, given.bias_dtype, 1, cpp.d.cols);
    cpp.engine = read_name(given.engine);
    gemm_standard(ctx, cpp);
  });
}

switchback_status switchback_gemm_blockwise(switchback_context* context,
                                            const switchback_gemm_blockwise_args* args) {
  return guard([&] {
    constexpr std::string_view op = "gemm_blockwise";
    Context& ctx = read_context(op, context);
    const auto given = read_struct(op, "args", args);
    BlockwiseGemmArgs cpp;
    cpp.a = read_view<const std::int8_t>(op, "a", given.a);
    cpp.b = read_view<const std::int8_t>(op, "b", given.b);
    cpp.d = read_matrix(op, "d", given.d);
    cpp.block_rows = given.block_rows;
    // Of a wrong number of rows there are no blocks; it is refused by name.
    const std::int64_t blocks = given.block_rows > 0 ? cpp.a.cols / given.block_rows : 0;
    cpp.absmax_a = read_span(given.absmax_a, blocks * cpp.a.rows);
    cpp.absmax_b = read_span(given.absmax_b, blocks * cpp.b.rows);
    cpp.accumulate = read_flag(op, "accumulate", given.accumulate);
    cpp.engine = read_name(given.engine);
    // -1 is the C++ name of 0; here it is as wrong as any other negative number.
    core::require(given.m >= 0, "{}: m = {}; it must not be negative", op, given.m);
    cpp.m = given.m == 0 ? -1 : given.m;
    gemm_blockwise(ctx, cpp);
  });
}
