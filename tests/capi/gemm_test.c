/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products through the C ABI: each argument is passed to the right place, packed weights
 * work, and engines can be named. */
#include <stddef.h>

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
  ma = matrix_of(a, SWITCHBACK_S8, M, K);
  mb = matrix_of(b, SWITCHBACK_S8, N, K);
  md_s32 = matrix_of(got_s32, SWITCHBACK_S32, M, N);
  md = matrix_of(got, SWITCHBACK_F32, M, N);
}

static switchback_gemm_args gemm_args(void) {
  switchback_gemm_args args;
  memset(&args, 0, sizeof(args));
  args.struct_size = sizeof(args);
  args.a = ma;
  args.b = mb;
  args.d = md;
  args.absmax_a = scale_a;
  args.absmax_b = scale_b;
  args.absmax_b_count = N;
  return args;
}

/* Computes the int32 sums of a and a packed matrix. */
static switchback_status packed_sums(const switchback_packed_weight* pack) {
  switchback_gemm_args args;
  memset(&args, 0, sizeof(args));
  args.struct_size = sizeof(args);
  args.a = ma;
  args.packed_b = pack;
  args.d = md_s32;
  return switchback_gemm(context, &args);
}

static void int32_sums(void) {
  start();
  ref_gemm_s8s8s32(a, b, M, N, K, want_s32);
  CHECK_OK(switchback_gemm_s8s8s32(context, &ma, &mb, &md_s32));
  CHECK(memcmp(got_s32, want_s32, sizeof(want_s32)) == 0);
}

static void dequantized(void) {
  start();
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
      CHECK(memcmp(got, want, sizeof(want)) == 0);
    }
}

static void packed(void) {
  start();
  switchback_packed_weight* pack = NULL;
  size_t bytes = 1;
  CHECK_OK(switchback_packed_weight_create(&pack));
  CHECK_OK(switchback_packed_weight_bytes(pack, &bytes));
  CHECK(bytes == 0);
  CHECK(packed_sums(pack) != SWITCHBACK_OK);
  CHECK(untouched(got_s32, sizeof(got_s32))); /* the call failed, because nothing was packed yet */
  CHECK_OK(switchback_pack_weight(context, &mb, 1, pack, NULL));
  CHECK_OK(switchback_packed_weight_bytes(pack, &bytes));
  CHECK(bytes >= (size_t)N * K);
  ref_gemm_s8s8s32(a, b, M, N, K, want_s32);
  ref_gemm_dequantize(a, b, M, N, K, scale_a, scale_b, N, bias, want);
  memset(b, 0, sizeof(b)); /* packing has copied b */
  CHECK_OK(packed_sums(pack));
  CHECK(memcmp(got_s32, want_s32, sizeof(want_s32)) == 0);

  switchback_gemm_args args = gemm_args();
  args.bias = bias;
  args.packed_b = pack;
  memset(&args.b, 0, sizeof(args.b));
  CHECK_OK(switchback_gemm(context, &args));
  CHECK(memcmp(got, want, sizeof(want)) == 0);

  mark(got_s32, sizeof(got_s32));
  CHECK_INVALID("no_such", switchback_pack_weight(context, &mb, 1, pack, "no_such"));
  /* If packing again fails, the packed matrix keeps its old contents. */
  CHECK_OK(packed_sums(pack));
  CHECK(memcmp(got_s32, want_s32, sizeof(want_s32)) == 0);
  switchback_packed_weight_destroy(pack);
}

static void engines_by_name(void) {
  const switchback_engine_info* infos = NULL;
  size_t count = 0;
  start();
  ref_gemm_dequantize(a, b, M, N, K, scale_a, scale_b, N, NULL, want);
  CHECK_OK(switchback_engines(context, SWITCHBACK_ENGINES_GEMM, &infos, &count));
  for (size_t i = 0; i < count; ++i) {
    switchback_gemm_args args = gemm_args();
    args.engine = infos[i].name;
    mark(got, sizeof(got));
    const switchback_status status = switchback_gemm(context, &args);
    if (infos[i].available) {
      CHECK(status == SWITCHBACK_OK);
      CHECK(memcmp(got, want, sizeof(want)) == 0); /* each engine gives the bits of the reference */
    } else {
      CHECK(status == SWITCHBACK_UNSUPPORTED);
      CHECK(untouched(got, sizeof(got)));
    }
  }
}

static void standard(void) {
  start();
  switchback_gemm_standard_args args;
  memset(&args, 0, sizeof(args));
  args.struct_size = sizeof(args);
  args.a = matrix_of(fa, SWITCHBACK_F32, M, K);
  args.b = matrix_of(fb, SWITCHBACK_F32, N, K);
  args.d = md;
  args.transpose_b = 1;
  args.bias = bias;
  for (int r = 0; r < M; ++r)
    for (int c = 0; c < N; ++c) {
      float sum = bias[c];
      for (int i = 0; i < K; ++i)
        sum += fa[r * K + i] * fb[c * K + i]; /* a sum of small integers, exact in any order */
      want[r * N + c] = sum;
    }
  CHECK_OK(switchback_gemm_standard(context, &args));
  CHECK(memcmp(got, want, sizeof(want)) == 0);

  args.accumulate = 1;
  args.bias = NULL;
  CHECK_OK(switchback_gemm_standard(context, &args));
  for (int i = 0; i < M * N; ++i)
    CHECK(got[i] == 2.0f * want[i] - bias[i % N]);

  /* d[K,K] = fa[M,K]^T . fa[M,K] */
  static float square[K * K];
  memset(&args, 0, sizeof(args));
  args.struct_size = sizeof(args);
  args.a = args.b = matrix_of(fa, SWITCHBACK_F32, M, K);
  args.d = matrix_of(square, SWITCHBACK_F32, K, K);
  args.transpose_a = 1;
  CHECK_OK(switchback_gemm_standard(context, &args));
  int wrong = 0;
  for (int r = 0; r < K; ++r)
    for (int c = 0; c < K; ++c) {
      float sum = 0.0f;
      for (int i = 0; i < M; ++i)
        sum += fa[i * K + r] * fa[i * K + c];
      wrong += square[r * K + c] != sum;
    }
  CHECK(wrong == 0);
}

void gemm_tests(void) {
  context = cpu_context(2);
  int32_sums();
  dequantized();
  packed();
  engines_by_name();
  standard();
  switchback_context_destroy(context);
}
