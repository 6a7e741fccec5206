/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of rows through the C ABI: every rejection, and that it leaves things as they were. */
#include "capi/harness.h"

enum { G = 2, M = 6, K = 8, N = 4 };

static switchback_context* context;
static int32_t ends[G] = {2, 5}, used[G] = {3, 1}, index_of[M] = {0, 1, 2, 3, 4, 5};
static float x[M * K], w[G * N * K], bias[G * N], g[M * N], y[M * N], dx[M * K], dw[G * N * K];
static float db[G * N], absmax[G * N > M ? G*N : M];
static int8_t a[M * K], b[G * N * K], q[M * K];

static switchback_groups good_groups(void) {
  switchback_groups groups;
  memset(&groups, 0, sizeof(groups));
  groups.struct_size = sizeof(groups);
  groups.count = G;
  groups.ends = ends;
  return groups;
}

static switchback_groups strided_groups(void) {
  switchback_groups groups = good_groups();
  groups.ends = NULL;
  groups.rows_of = used;
  groups.row_stride = M / G;
  return groups;
}

static switchback_status quantize(const switchback_groups* groups) {
  const switchback_matrix mx = matrix_of(x, SWITCHBACK_F32, M, K);
  const switchback_matrix mq = matrix_of(q, SWITCHBACK_S8, M, K);
  return switchback_grouped_quantize_rowwise(context, &mx, groups, &mq, absmax);
}

static void bad_groups(void) {
  mark(q, sizeof(q));
  mark(absmax, sizeof(absmax));
  CHECK_INVALID("groups is a null", quantize(NULL));
  static const size_t bad_sizes[] = {0, 8, 16, 4097, SIZE_MAX};
  for (size_t i = 0; i < COUNT(bad_sizes); ++i) {
    switchback_groups groups = good_groups();
    groups.struct_size = bad_sizes[i];
    CHECK_INVALID("groups has struct_size", quantize(&groups));
  }
  switchback_groups groups = good_groups();
  groups.count = -1;
  CHECK_INVALID("groups.count = -1", quantize(&groups));
  groups = good_groups();
  groups.on_device = 2;
  CHECK_INVALID("groups.on_device = 2", quantize(&groups));
  groups = good_groups();
  groups.row_stride = 3;
  CHECK_INVALID("packed groups have ends alone", quantize(&groups));
  groups = strided_groups();
  groups.row_stride = -1;
  CHECK_INVALID("groups.rows = -1", quantize(&groups));
  groups.row_stride = INT64_MAX;
  CHECK_INVALID("more than a 64-bit count", quantize(&groups));
  groups.row_stride = 2;
  CHECK_INVALID("it must be groups.count", quantize(&groups));
  groups = strided_groups();
  used[1] = 4;
  CHECK_INVALID("groups.used[1] = 4", quantize(&groups));
  used[1] = -1;
  CHECK_INVALID("groups.used[1] = -1", quantize(&groups));
  used[1] = 1;
  groups = good_groups();
  ends[0] = 6;
  CHECK_INVALID("groups.ends[1] = 5", quantize(&groups));
  ends[0] = 2;
  ends[1] = 7;
  CHECK_INVALID("groups.ends[1] = 7", quantize(&groups));
  ends[1] = 5;
  groups.row_index = index_of;
  index_of[4] = M;
  CHECK_INVALID("x.index[4] = 6", quantize(&groups));
  index_of[4] = -1;
  CHECK_INVALID("x.index[4] = -1", quantize(&groups));
  index_of[4] = 4;
  groups.column_stride = -1;
  CHECK_INVALID("column_stride = -1", quantize(&groups));
  groups.column_stride = 1;
  CHECK_INVALID("x has 8 columns", quantize(&groups));
  CHECK(untouched(q, sizeof(q)));
  CHECK(untouched(absmax, sizeof(absmax)));
  groups = good_groups();
  groups.on_device = 1; /* on the CPU both mean the same */
  CHECK_OK(quantize(&groups));
  groups = good_groups();
  CHECK_OK(quantize(&groups));
  const switchback_matrix mx = matrix_of(x, SWITCHBACK_F32, M, K);
  const switchback_matrix mq = matrix_of(q, SWITCHBACK_S8, M, K);
  CHECK_INVALID("context is a null",
                switchback_grouped_quantize_rowwise(NULL, &mx, &groups, &mq, absmax));
  CHECK_INVALID("x is a null",
                switchback_grouped_quantize_rowwise(context, NULL, &groups, &mq, absmax));
  CHECK_INVALID("q is a null",
                switchback_grouped_quantize_rowwise(context, &mx, &groups, NULL, absmax));
  CHECK_INVALID("q has dtype f32",
                switchback_grouped_quantize_rowwise(context, &mx, &groups, &mx, absmax));
  CHECK_INVALID("absmax", switchback_grouped_quantize_rowwise(context, &mx, &groups, &mq, NULL));
}

static switchback_grouped_gemm_args gemm_args(void) {
  switchback_grouped_gemm_args args;
  memset(&args, 0, sizeof(args));
  args.struct_size = sizeof(args);
  args.a = matrix_of(a, SWITCHBACK_S8, M, K);
  args.b = matrix_of(b, SWITCHBACK_S8, G * N, K);
  args.d = matrix_of(y, SWITCHBACK_F32, M, N);
  args.absmax_a = absmax;
  args.absmax_b = absmax;
  args.absmax_b_count = G * N;
  args.groups = good_groups();
  return args;
}

static void bad_products(void) {
  memset(absmax, 0, sizeof(absmax));
  mark(y, sizeof(y));
  switchback_grouped_gemm_args args = gemm_args();
  CHECK_INVALID("context is a null", switchback_grouped_gemm_dequantize(NULL, &args));
  CHECK_INVALID("args is a null", switchback_grouped_gemm_dequantize(context, NULL));
  CHECK_INVALID("args is a null", switchback_grouped_gemm_s8s8s32(context, NULL));
  args.struct_size = 16;
  CHECK_INVALID("args has struct_size", switchback_grouped_gemm_dequantize(context, &args));
  CHECK_INVALID("args has struct_size", switchback_grouped_gemm_s8s8s32(context, &args));
  args = gemm_args();
  args.groups.struct_size = sizeof(args.groups) + 8; /* inside a struct it has one size */
  CHECK_INVALID("groups has struct_size", switchback_grouped_gemm_dequantize(context, &args));
  args = gemm_args();
  args.groups.count = 3;
  args.groups.ends = index_of;
  args.absmax_b_count = 3;
  CHECK_INVALID("b has 8 rows", switchback_grouped_gemm_dequantize(context, &args));
  args = gemm_args();
  args.absmax_b_count = 3;
  CHECK_INVALID("absmax_b_count = 3", switchback_grouped_gemm_dequantize(context, &args));
  args = gemm_args();
  args.absmax_a = NULL;
  CHECK_INVALID("absmax_a", switchback_grouped_gemm_dequantize(context, &args));
  args = gemm_args();
  args.bias = bias;
  args.bias_dtype = SWITCHBACK_S8;
  CHECK_INVALID("bias", switchback_grouped_gemm_dequantize(context, &args));
  args = gemm_args();
  args.engine = "no_such";
  CHECK_INVALID("no_such", switchback_grouped_gemm_dequantize(context, &args));
  args = gemm_args();
  args.d_column_stride = N;
  CHECK_INVALID("d_column_stride", switchback_grouped_gemm_dequantize(context, &args));
  args = gemm_args();
  args.d.dtype = SWITCHBACK_S32;
  CHECK_INVALID("d has dtype s32", switchback_grouped_gemm_dequantize(context, &args));
  CHECK_INVALID("the int32 sums take none", switchback_grouped_gemm_s8s8s32(context, &args));
  args = gemm_args();
  CHECK_INVALID("d has dtype f32", switchback_grouped_gemm_s8s8s32(context, &args));

  switchback_packed_weight* packed = NULL;
  CHECK_OK(switchback_packed_weight_create(&packed));
  const switchback_matrix mb = matrix_of(b, SWITCHBACK_S8, G * N, K);
  CHECK_INVALID("context is a null", switchback_pack_weights(NULL, &mb, G, packed, NULL));
  CHECK_INVALID("b is a null", switchback_pack_weights(context, NULL, G, packed, NULL));
  CHECK_INVALID("packed is a null", switchback_pack_weights(context, &mb, G, NULL, NULL));
  CHECK_INVALID("groups = 0", switchback_pack_weights(context, &mb, 0, packed, NULL));
  CHECK_INVALID("b has 8 rows", switchback_pack_weights(context, &mb, 3, packed, NULL));
  CHECK_INVALID("no_such", switchback_pack_weights(context, &mb, G, packed, "no_such"));
  args = gemm_args();
  args.packed_b = packed;
  CHECK_INVALID("b and packed_b are both given",
                switchback_grouped_gemm_dequantize(context, &args));
  args.b.data = NULL;
  args.absmax_b_count = G;
  CHECK_FAILS(SWITCHBACK_INVALID_STATE, "packed_b is empty",
              switchback_grouped_gemm_dequantize(context, &args));
  CHECK_OK(switchback_pack_weights(context, &mb, 4, packed, NULL));
  CHECK_INVALID("packed_b holds the matrices of 4 groups",
                switchback_grouped_gemm_dequantize(context, &args));
  switchback_packed_weight_destroy(packed);
  CHECK(untouched(y, sizeof(y)));
}

static void bad_floating_products(void) {
  switchback_grouped_gemm_standard_args good;
  memset(&good, 0, sizeof(good));
  good.struct_size = sizeof(good);
  good.a = matrix_of(x, SWITCHBACK_F32, M, K);
  good.b = matrix_of(w, SWITCHBACK_F32, G * N, K);
  good.d = matrix_of(y, SWITCHBACK_F32, M, N);
  good.transpose_b = 1;
  good.groups = good_groups();
  mark(y, sizeof(y));
  CHECK_INVALID("context is a null", switchback_grouped_gemm_standard(NULL, &good));
  CHECK_INVALID("args is a null", switchback_grouped_gemm_standard(context, NULL));
  switchback_grouped_gemm_standard_args args = good;
  args.struct_size = 16;
  CHECK_INVALID("args has struct_size", switchback_grouped_gemm_standard(context, &args));
  args = good;
  args.groups.struct_size = 0;
  CHECK_INVALID("groups has struct_size", switchback_grouped_gemm_standard(context, &args));
  args = good;
  args.transpose_a = 2;
  CHECK_INVALID("transpose_a = 2", switchback_grouped_gemm_standard(context, &args));
  args = good;
  args.transpose_a = 1;
  CHECK_INVALID("transpose", switchback_grouped_gemm_standard(context, &args));
  args = good;
  args.accumulate = 5;
  CHECK_INVALID("accumulate = 5", switchback_grouped_gemm_standard(context, &args));
  args = good;
  args.bias = bias;
  args.bias_dtype = 9;
  CHECK_INVALID("bias", switchback_grouped_gemm_standard(context, &args));
  CHECK(untouched(y, sizeof(y)));
}

static switchback_grouped_linear_options good_options(void) {
  switchback_grouped_linear_options options;
  memset(&options, 0, sizeof(options));
  options.struct_size = sizeof(options);
  options.groups = G;
  options.in_features = K;
  options.out_features = N;
  options.mode = SWITCHBACK_ROWWISE;
  return options;
}

static void bad_options(void) {
  switchback_grouped_linear* const before = (switchback_grouped_linear*)(uintptr_t)0x20;
  switchback_grouped_linear* layer = before;
  switchback_grouped_linear_options options = good_options();
  CHECK_INVALID("context is a null", switchback_grouped_linear_create(NULL, &options, &layer));
  CHECK_INVALID("options is a null", switchback_grouped_linear_create(context, NULL, &layer));
  CHECK_INVALID("out is a null", switchback_grouped_linear_create(context, &options, NULL));
  options.struct_size = 24;
  CHECK_INVALID("options has struct_size",
                switchback_grouped_linear_create(context, &options, &layer));
  options = good_options();
  options.groups = 0;
  CHECK_INVALID("groups = 0", switchback_grouped_linear_create(context, &options, &layer));
  options = good_options();
  options.in_features = -1;
  CHECK_INVALID("in_features = -1", switchback_grouped_linear_create(context, &options, &layer));
  options = good_options();
  options.mode = 6;
  CHECK_INVALID("mode = 6", switchback_grouped_linear_create(context, &options, &layer));
  options = good_options();
  options.dtype = SWITCHBACK_S8;
  CHECK_INVALID("dtype = 3", switchback_grouped_linear_create(context, &options, &layer));
  options = good_options();
  options.engine = "no_such";
  CHECK_INVALID("no_such", switchback_grouped_linear_create(context, &options, &layer));
  CHECK(layer == before);
}

static switchback_grouped_linear_grads good_grads(void) {
  switchback_grouped_linear_grads grads;
  memset(&grads, 0, sizeof(grads));
  grads.struct_size = sizeof(grads);
  grads.g = matrix_of(g, SWITCHBACK_F32, M, N);
  grads.dx = matrix_of(dx, SWITCHBACK_F32, M, K);
  grads.dw = matrix_of(dw, SWITCHBACK_F32, G * N, K);
  grads.db = matrix_of(db, SWITCHBACK_F32, G, N);
  return grads;
}

static void null_layer(void) {
  const switchback_matrix mx = matrix_of(x, SWITCHBACK_F32, M, K);
  const switchback_matrix my = matrix_of(y, SWITCHBACK_F32, M, N);
  const switchback_groups groups = good_groups();
  const switchback_grouped_linear_grads grads = good_grads();
  size_t bytes = 7;
  CHECK_INVALID("linear is a null", switchback_grouped_linear_set_weight(NULL, &mx, NULL));
  CHECK_INVALID("linear is a null", switchback_grouped_linear_weight_updated(NULL));
  CHECK_INVALID("linear is a null", switchback_grouped_linear_prepare_for_eval(NULL));
  CHECK_INVALID("linear is a null", switchback_grouped_linear_forward(NULL, &groups, &mx, &my, 0));
  CHECK_INVALID("linear is a null", switchback_grouped_linear_backward(NULL, &grads));
  CHECK_INVALID("linear is a null",
                switchback_grouped_linear_backward_from(NULL, &grads, &groups, &mx));
  CHECK_INVALID("linear is a null",
                switchback_grouped_linear_saved_for_backward_bytes(NULL, &bytes));
  CHECK_INVALID("linear is a null", switchback_grouped_linear_cached_weight_bytes(NULL, &bytes));
  CHECK(bytes == 7);
  switchback_grouped_linear_destroy(NULL);
}

static void bad_calls(void) {
  const switchback_matrix mw = matrix_of(w, SWITCHBACK_F32, G * N, K);
  const switchback_matrix mx = matrix_of(x, SWITCHBACK_F32, M, K);
  const switchback_matrix my = matrix_of(y, SWITCHBACK_F32, M, N);
  const switchback_groups groups = good_groups();
  const switchback_grouped_linear_options options = good_options();
  switchback_grouped_linear* layer = NULL;
  CHECK_OK(switchback_grouped_linear_create(context, &options, &layer));
  mark(y, sizeof(y));
  CHECK_FAILS(SWITCHBACK_INVALID_STATE, "no weight",
              switchback_grouped_linear_forward(layer, &groups, &mx, &my, 0));
  CHECK_FAILS(SWITCHBACK_INVALID_STATE, "no weight",
              switchback_grouped_linear_weight_updated(layer));
  CHECK_FAILS(SWITCHBACK_INVALID_STATE, "no weight",
              switchback_grouped_linear_prepare_for_eval(layer));
  CHECK_INVALID("weight is a null", switchback_grouped_linear_set_weight(layer, NULL, NULL));
  switchback_matrix bad = matrix_of(w, SWITCHBACK_F32, N, K);
  CHECK_INVALID("weight", switchback_grouped_linear_set_weight(layer, &bad, NULL));
  bad = matrix_of(bias, SWITCHBACK_F32, 1, N);
  CHECK_INVALID("bias", switchback_grouped_linear_set_weight(layer, &mw, &bad));
  CHECK_OK(switchback_grouped_linear_set_weight(layer, &mw, NULL));

  CHECK_INVALID("groups is a null", switchback_grouped_linear_forward(layer, NULL, &mx, &my, 0));
  CHECK_INVALID("x is a null", switchback_grouped_linear_forward(layer, &groups, NULL, &my, 0));
  CHECK_INVALID("y is a null", switchback_grouped_linear_forward(layer, &groups, &mx, NULL, 0));
  CHECK_INVALID("save_for_backward = 4",
                switchback_grouped_linear_forward(layer, &groups, &mx, &my, 4));
  switchback_groups wrong = groups;
  wrong.count = 1;
  CHECK_INVALID("groups.count = 1", switchback_grouped_linear_forward(layer, &wrong, &mx, &my, 0));
  bad = matrix_of(x, SWITCHBACK_F32, M, K - 1);
  CHECK_INVALID("x has 7 columns", switchback_grouped_linear_forward(layer, &groups, &bad, &my, 0));

  switchback_grouped_linear_grads grads = good_grads();
  mark(dx, sizeof(dx));
  mark(dw, sizeof(dw));
  mark(db, sizeof(db));
  CHECK_FAILS(SWITCHBACK_INVALID_STATE, "no forward has saved",
              switchback_grouped_linear_backward(layer, &grads));
  CHECK_INVALID("grads is a null", switchback_grouped_linear_backward(layer, NULL));
  CHECK_INVALID("groups is a null",
                switchback_grouped_linear_backward_from(layer, &grads, NULL, &mx));
  CHECK_INVALID("x has", switchback_grouped_linear_backward_from(layer, &grads, &groups, NULL));
  grads.struct_size = 48;
  CHECK_INVALID("grads has struct_size",
                switchback_grouped_linear_backward_from(layer, &grads, &groups, &mx));
  grads = good_grads();
  grads.accumulate = 2;
  CHECK_INVALID("accumulate = 2",
                switchback_grouped_linear_backward_from(layer, &grads, &groups, &mx));
  grads = good_grads();
  grads.db = matrix_of(db, SWITCHBACK_F32, 1, G * N);
  CHECK_INVALID("db", switchback_grouped_linear_backward_from(layer, &grads, &groups, &mx));
  CHECK_INVALID("out is a null", switchback_grouped_linear_saved_for_backward_bytes(layer, NULL));
  CHECK_INVALID("out is a null", switchback_grouped_linear_cached_weight_bytes(layer, NULL));
  CHECK(untouched(y, sizeof(y)));
  CHECK(untouched(dx, sizeof(dx)));
  CHECK(untouched(dw, sizeof(dw)));
  CHECK(untouched(db, sizeof(db)));
  switchback_grouped_linear_destroy(layer);
}

void grouped_error_tests(void) {
  context = cpu_context(1);
  bad_groups();
  bad_products();
  bad_floating_products();
  bad_options();
  null_layer();
  bad_calls();
  switchback_context_destroy(context);
}
