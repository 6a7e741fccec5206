/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products through the C ABI: each argument is passed to the right place, and packed weights
 * work. The suites of tests/gemm check the values of every engine. */
#include "capi/harness.h"
#include "capi/reference.h"

enum { M = 7, N = 5, K = 37 };

static switchback_context* context;
static float fa[M * K], fb[N * K], bias[N], scale_a[M], scale_b[N];
static int8_t a[M * K], b[N * K];
static int32_t want_s32[M * N], got_s32[M * N];
static float want[M * N], got[M * N];
static switchback_matrix ma, mb, md_s32, md;

static void start(void) {
  ref_fill(fa, M * K, 1);
  ref_fill(fb, N * K, 2);
  ref_fill(bias, N, 3);
  for (int i = 0; i < M * K; ++i)
    a[i] = (int8_t)(fa[i] * 7.0f);
  for (int i = 0; i < N * K; ++i)
    b[i] = (int8_t)(fb[i] * 7.0f);
  for (int i = 0; i < M; ++i)
    scale_a[i] = 0.3f * (float)(i + 1);
  for (int i = 0; i < N; ++i)
    scale_b[i] = 1.7f / (float)(i + 1);
  mark(got_s32, sizeof(got_s32));
  mark(got, sizeof(got));
  ma = s8(a, M, K);
  mb = s8(b, N, K);
  md_s32 = matrix_of(got_s32, SWITCHBACK_S32, M, N);
  md = f32(got, M, N);
}

static switchback_gemm_args gemm_args(void) {
  return (switchback_gemm_args){.struct_size = sizeof(switchback_gemm_args),
                                .a = ma,
                                .b = mb,
                                .d = md,
                                .absmax_a = scale_a,
                                .absmax_b = scale_b,
                                .absmax_b_count = N};
}

/* Computes the int32 sums of a and a packed matrix. */
static switchback_status packed_sums(const switchback_packed_weight* pack) {
  const switchback_gemm_args args = {
      .struct_size = sizeof(args), .a = ma, .packed_b = pack, .d = md_s32};
  return switchback_gemm(context, &args);
}

static void int8(void) {
  start();
  ref_gemm_s8s8s32(a, b, M, N, K, want_s32);
  CHECK_OK(switchback_gemm_s8s8s32(context, &ma, &mb, &md_s32));
  CHECK(SAME(got_s32, want_s32));
  switchback_gemm_args args = gemm_args();
  for (int per_column = 0; per_column < 2; ++per_column)
    for (int with_bias = 0; with_bias < 2; ++with_bias) {
      args.absmax_b_count = per_column ? N : 1;
      args.bias = with_bias ? bias : NULL;
      args.bias_dtype = with_bias ? SWITCHBACK_F32 : 99; /* without a bias its type is not read */
      ref_gemm_dequantize(a, b, M, N, K, scale_a, scale_b, args.absmax_b_count,
                          with_bias ? bias : NULL, want);
      mark(got, sizeof(got));
      CHECK_OK(switchback_gemm(context, &args));
      CHECK(SAME(got, want));
    }
}

static void packed(void) {
  start();
  switchback_packed_weight* pack = NULL;
  size_t bytes = 1;
  CHECK_OK(switchback_packed_weight_create(&pack));
  CHECK_OK(switchback_packed_weight_bytes(pack, &bytes));
  CHECK(bytes == 0);
  CHECK(packed_sums(pack) != SWITCHBACK_OK); /* nothing was packed yet */
  CHECK(untouched(got_s32, sizeof(got_s32)));
  CHECK_OK(switchback_pack_weight(context, &mb, 1, pack, NULL));
  CHECK_OK(switchback_packed_weight_bytes(pack, &bytes));
  CHECK(bytes >= (size_t)N * K);
  ref_gemm_s8s8s32(a, b, M, N, K, want_s32);
  ref_gemm_dequantize(a, b, M, N, K, scale_a, scale_b, N, bias, want);
  memset(b, 0, sizeof(b)); /* packing has copied b */
  /* If packing again fails, the packed matrix keeps its old contents. */
  CHECK_INVALID("no_such", switchback_pack_weight(context, &mb, 1, pack, "no_such"));
  CHECK_OK(packed_sums(pack));
  CHECK(SAME(got_s32, want_s32));
  switchback_gemm_args args = gemm_args();
  args.bias = bias;
  args.packed_b = pack;
  memset(&args.b, 0, sizeof(args.b));
  CHECK_OK(switchback_gemm(context, &args));
  CHECK(SAME(got, want));
  switchback_packed_weight_destroy(pack);
}

static void standard(void) {
  start();
  switchback_gemm_standard_args args = {.struct_size = sizeof(args),
                                        .a = f32(fa, M, K),
                                        .b = f32(fb, N, K),
                                        .d = md,
                                        .transpose_b = 1,
                                        .bias = bias};
  ref_product(fa, K, 1, fb, K, 1, M, N, K, want);
  for (int i = 0; i < M * N; ++i)
    want[i] += bias[i % N];
  CHECK_OK(switchback_gemm_standard(context, &args));
  CHECK(SAME(got, want));
  args.accumulate = 1;
  args.bias = NULL;
  CHECK_OK(switchback_gemm_standard(context, &args));
  for (int i = 0; i < M * N; ++i)
    CHECK(got[i] == 2.0f * want[i] - bias[i % N]);

  static float square[K * K], want_square[K * K];
  args = (switchback_gemm_standard_args){.struct_size = sizeof(args),
                                         .a = f32(fa, M, K),
                                         .b = f32(fa, M, K),
                                         .d = f32(square, K, K),
                                         .transpose_a = 1};
  ref_product(fa, 1, K, fa, 1, K, K, K, M, want_square);
  CHECK_OK(switchback_gemm_standard(context, &args));
  CHECK(SAME(square, want_square));
}

void gemm_tests(void) {
  context = cpu_context(2);
  int8();
  packed();
  standard();
  switchback_context_destroy(context);
}
