// SPDX-License-Identifier: Apache-2.0
// C ABI: matrix products.
#include "switchback/gemm.hpp"

#include "capi/groups.hpp"
#include "capi/guard.hpp"
#include "capi/handles.hpp"
#include "switchback/grouped.hpp"

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
                                         int64_t groups, switchback_packed_weight* packed,
                                         const char* engine_or_null) {
  return guard([&] {
    constexpr std::string_view op = "pack_weight";
    Context& ctx = read_context(op, context);
    const auto view = read_view<const std::int8_t>(op, "b", b);
    check_pointer(op, "packed", packed);
    if (groups == 1) return pack_weight(ctx, view, packed->packed, read_name(engine_or_null));
    pack_weights(ctx, view, groups, packed->packed, read_name(engine_or_null));
  });
}

namespace {

void check_sums(std::string_view op, const switchback_gemm_args& given) {
  core::require(given.absmax_a == nullptr && given.absmax_b == nullptr && given.bias == nullptr,
                "{}: absmax_a, absmax_b or bias is given; for int32 sums (d has dtype s32) all "
                "three must be null",
                op);
}

// Reads the scales of b: n of them, or one for each of `groups` matrices.
std::span<const float> read_absmax_b(std::string_view op, const switchback_gemm_args& given,
                                     std::int64_t groups, std::int64_t n) {
  core::require(
      given.absmax_a != nullptr || given.absmax_b != nullptr || given.absmax_b_count != 0 || n == 0,
      "{}: d has dtype {}; without scales it must be s32", op,
      dtype_name(static_cast<DType>(given.d.dtype)));
  core::require(
      given.absmax_b_count == n || given.absmax_b_count == groups,
      "{}: absmax_b_count = {}; it must be {}, one for each matrix, or {}, one for each row of b",
      op, given.absmax_b_count, groups, n);
  return read_span(given.absmax_b, given.absmax_b_count);
}

// Reads the arguments that int8 products with and without groups have in common.
template <class Args>
Args read_product(std::string_view op, const switchback_gemm_args& given) {
  Args cpp;
  cpp.a = read_view<const std::int8_t>(op, "a", given.a);
  if (given.packed_b == nullptr) {
    cpp.b = read_view<const std::int8_t>(op, "b", given.b);
  } else {
    core::require(given.b.data == nullptr,
                  "{}: b and packed_b are both given; b's data must be null", op);
    cpp.packed_b = &given.packed_b->packed;
  }
  cpp.engine = read_name(given.engine);
  return cpp;
}

void multiply(Context& context, const switchback_gemm_args& given) {
  const bool sums = given.d.dtype == SWITCHBACK_S32;
  const std::string_view op = sums ? "gemm_s8s8s32" : "gemm";
  core::require(given.d_column_stride == 0, "{}: d_column_stride = {} without groups; it must be 0",
                op, given.d_column_stride);
  if (sums) {
    auto cpp = read_product<GemmS8S8S32Args>(op, given);
    check_sums(op, given);
    cpp.d = read_view<std::int32_t>(op, "d", given.d);
    return gemm_s8s8s32(context, cpp);
  }
  auto cpp = read_product<GemmArgs>(op, given);
  cpp.d = read_matrix(op, "d", given.d);
  cpp.absmax_a = read_span(given.absmax_a, cpp.a.rows);
  cpp.absmax_b = read_absmax_b(op, given, 1, cpp.d.cols);
  cpp.bias = read_bias(op, given.bias, given.bias_dtype, 1, cpp.d.cols);
  gemm(context, cpp);
}

void multiply_groups(Context& context, const switchback_gemm_args& given) {
  constexpr std::string_view op = "grouped_gemm";
  auto cpp = read_product<GroupedGemmArgs>(op, given);
  cpp.groups = read_groups(op, context, given.groups, cpp.a.rows).groups;
  cpp.d = read_matrix(op, "d", given.d);
  cpp.d_column_stride = given.d_column_stride;
  if (cpp.d.dtype == DType::s32) {
    check_sums(op, given);
    return grouped_gemm(context, cpp);
  }
  const std::int64_t groups = cpp.groups.count;
  // grouped_gemm() refuses a packed_b that was packed for another number of groups.
  const bool fits = cpp.packed_b == nullptr || cpp.packed_b->groups() == groups;
  const std::int64_t n = cpp.packed_b != nullptr ? cpp.packed_b->rows()
                         : groups > 0            ? cpp.b.rows / groups
                                                 : 0;
  cpp.absmax_a = read_span(given.absmax_a, cpp.a.rows);
  cpp.absmax_b = fits ? read_absmax_b(op, given, groups, groups * n)
                      : read_span(given.absmax_b, given.absmax_b_count);
  cpp.bias = read_bias(op, given.bias, given.bias_dtype, groups, n);
  grouped_gemm(context, cpp);
}

// Reads the arguments that floating-point products with and without groups have in common.
template <class Args>
Args read_standard(std::string_view op, const switchback_gemm_standard_args& given,
                   std::int64_t groups) {
  Args cpp;
  cpp.a = read_matrix(op, "a", given.a);
  cpp.b = read_matrix(op, "b", given.b);
  cpp.d = read_matrix(op, "d", given.d);
  cpp.transpose_a = read_flag(op, "transpose_a", given.transpose_a);
  cpp.transpose_b = read_flag(op, "transpose_b", given.transpose_b);
  cpp.accumulate = read_flag(op, "accumulate", given.accumulate);
  cpp.bias = read_bias(op, given.bias, given.bias_dtype, groups, cpp.d.cols);
  cpp.engine = read_name(given.engine);
  return cpp;
}

}  // namespace

switchback_status switchback_gemm(switchback_context* context, const switchback_gemm_args* args) {
  return guard([&] {
    constexpr std::string_view op = "gemm";
    Context& ctx = read_context(op, context);
    const auto given = read_struct(op, "args", args);
    given.groups == nullptr ? multiply(ctx, given) : multiply_groups(ctx, given);
  });
}

switchback_status switchback_gemm_standard(switchback_context* context,
                                           const switchback_gemm_standard_args* args) {
  return guard([&] {
    constexpr std::string_view op = "gemm_standard";
    Context& ctx = read_context(op, context);
    const auto given = read_struct(op, "args", args);
    if (given.groups == nullptr)
      return gemm_standard(ctx, read_standard<StandardGemmArgs>(op, given, 1));
    constexpr std::string_view of_groups = "grouped_gemm_standard";
    const std::int64_t slots = read_matrix(of_groups, "a", given.a).rows;
    const Groups groups = read_groups(of_groups, ctx, given.groups, slots).groups;
    auto cpp = read_standard<GroupedStandardGemmArgs>(of_groups, given, groups.count);
    cpp.groups = groups;
    grouped_gemm_standard(ctx, cpp);
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
    // A block_rows that is not positive gives no blocks here; gemm_blockwise() refuses it by name.
    const std::int64_t blocks = given.block_rows > 0 ? cpp.a.cols / given.block_rows : 0;
    cpp.absmax_a = read_span(given.absmax_a, blocks * cpp.a.rows);
    cpp.absmax_b = read_span(given.absmax_b, blocks * cpp.b.rows);
    cpp.accumulate = read_flag(op, "accumulate", given.accumulate);
    cpp.engine = read_name(given.engine);
    // m = 0 in the C ABI means what m = -1 means in C++: all blocks are whole. In the C ABI, -1 is
    // as wrong as any other negative number.
    core::require(given.m >= 0, "{}: m = {}; it must not be negative", op, given.m);
    cpp.m = given.m == 0 ? -1 : given.m;
    gemm_blockwise(ctx, cpp);
  });
}
