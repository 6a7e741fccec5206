/* SPDX-License-Identifier: Apache-2.0 */
/* Products through the C ABI: values, packing, engines by name, and every rejection. */
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
      args.bias_dtype = with_bias ? SWITCHBACK_F32 : 99; /* not looked at without a bias */
      ref_gemm_dequantize(a, b, M, N, K, scale_a, scale_b, args.absmax_b_count,
                          with_bias ? bias : NULL, want);
      mark(got, sizeof(got));
      CHECK_OK(switchback_gemm_dequantize(context, &args));
      CHECK(memcmp(got, want, sizeof(want)) == 0);
    }
  /* The first version of the struct ended before packed_b: what lies behind is not read. */
  args.struct_size = offsetof(switchback_gemm_args, packed_b);
  args.packed_b = (const switchback_packed_weight*)(uintptr_t)1;
  args.engine = "no such engine";
  mark(got, sizeof(got));
  CHECK_OK(switchback_gemm_dequantize(context, &args));
  CHECK(memcmp(got, want, sizeof(want)) == 0);
}

static void packed(void) {
  start();
  switchback_packed_weight* pack = NULL;
  size_t bytes = 1;
  CHECK_OK(switchback_packed_weight_create(&pack));
  CHECK_OK(switchback_packed_weight_bytes(pack, &bytes));
  CHECK(bytes == 0);
  CHECK(switchback_gemm_s8s8s32_packed(context, &ma, pack, &md_s32) != SWITCHBACK_OK);
  CHECK(untouched(got_s32, sizeof(got_s32))); /* nothing was packed yet */
  CHECK_OK(switchback_pack_weight(context, &mb, pack, NULL));
  CHECK_OK(switchback_packed_weight_bytes(pack, &bytes));
  CHECK(bytes >= (size_t)N * K);
  ref_gemm_s8s8s32(a, b, M, N, K, want_s32);
  ref_gemm_dequantize(a, b, M, N, K, scale_a, scale_b, N, bias, want);
  memset(b, 0, sizeof(b)); /* packing copied it */
  CHECK_OK(switchback_gemm_s8s8s32_packed(context, &ma, pack, &md_s32));
  CHECK(memcmp(got_s32, want_s32, sizeof(want_s32)) == 0);

  switchback_gemm_args args = gemm_args();
  args.bias = bias;
  args.packed_b = pack;
  CHECK_INVALID("b and packed_b are both given", switchback_gemm_dequantize(context, &args));
  memset(&args.b, 0, sizeof(args.b));
  CHECK_OK(switchback_gemm_dequantize(context, &args));
  CHECK(memcmp(got, want, sizeof(want)) == 0);

  mark(got_s32, sizeof(got_s32));
  CHECK_INVALID("no_such", switchback_pack_weight(context, &mb, pack, "no_such"));
  CHECK_INVALID("context is a null", switchback_pack_weight(NULL, &mb, pack, NULL));
  CHECK_INVALID("b is a null", switchback_pack_weight(context, NULL, pack, NULL));
  CHECK_INVALID("packed is a null", switchback_pack_weight(context, &mb, NULL, NULL));
  CHECK_INVALID("packed is a null", switchback_packed_weight_bytes(NULL, &bytes));
  CHECK_INVALID("out is a null", switchback_packed_weight_bytes(pack, NULL));
  CHECK_INVALID("out is a null", switchback_packed_weight_create(NULL));
  CHECK_INVALID("context is a null", switchback_gemm_s8s8s32_packed(NULL, &ma, pack, &md_s32));
  CHECK_INVALID("a is a null", switchback_gemm_s8s8s32_packed(context, NULL, pack, &md_s32));
  CHECK_INVALID("packed_b is a null", switchback_gemm_s8s8s32_packed(context, &ma, NULL, &md_s32));
  CHECK_INVALID("d is a null", switchback_gemm_s8s8s32_packed(context, &ma, pack, NULL));
  CHECK(untouched(got_s32, sizeof(got_s32)));
  /* A pack that could not be replaced is the old one still. */
  CHECK_OK(switchback_gemm_s8s8s32_packed(context, &ma, pack, &md_s32));
  CHECK(memcmp(got_s32, want_s32, sizeof(want_s32)) == 0);
  switchback_packed_weight_destroy(pack);
  switchback_packed_weight_destroy(NULL);
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
    const switchback_status status = switchback_gemm_dequantize(context, &args);
    if (infos[i].available) {
      CHECK(status == SWITCHBACK_OK);
      CHECK(memcmp(got, want, sizeof(want)) == 0); /* every engine gives the same bits */
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
        sum += fa[r * K + i] * fb[c * K + i]; /* small integers: exact in any order */
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

  mark(square, sizeof(square));
  args.transpose_a = 2;
  CHECK_INVALID("transpose_a = 2", switchback_gemm_standard(context, &args));
  args.transpose_a = 1;
  args.transpose_b = -1;
  CHECK_INVALID("transpose_b = -1", switchback_gemm_standard(context, &args));
  args.transpose_b = 0;
  args.accumulate = 3;
  CHECK_INVALID("accumulate = 3", switchback_gemm_standard(context, &args));
  args.accumulate = 0;
  args.engine = "no_such";
  CHECK_INVALID("no_such", switchback_gemm_standard(context, &args));
  args.engine = NULL;
  args.b.dtype = SWITCHBACK_F16;
  args.b.rows = 1;
  CHECK(switchback_gemm_standard(context, &args) == SWITCHBACK_INVALID_ARGUMENT);
  args.b.rows = M;
  args.b.dtype = SWITCHBACK_F32;
  args.bias = bias;
  args.bias_dtype = 5;
  CHECK_INVALID("bias has dtype 5", switchback_gemm_standard(context, &args));
  CHECK_INVALID("context is a null", switchback_gemm_standard(NULL, &args));
  CHECK(untouched(square, sizeof(square)));
}

static void rejections(void) {
  start();
  CHECK_INVALID("context is a null", switchback_gemm_s8s8s32(NULL, &ma, &mb, &md_s32));
  CHECK_INVALID("a is a null", switchback_gemm_s8s8s32(context, NULL, &mb, &md_s32));
  CHECK_INVALID("b is a null", switchback_gemm_s8s8s32(context, &ma, NULL, &md_s32));
  CHECK_INVALID("d is a null", switchback_gemm_s8s8s32(context, &ma, &mb, NULL));
  CHECK_INVALID("d has dtype f32; it must be s32", switchback_gemm_s8s8s32(context, &ma, &mb, &md));
  switchback_matrix bad = ma;
  bad.dtype = SWITCHBACK_S32;
  bad.rows = bad.cols = bad.stride = 1;
  CHECK_INVALID("a has dtype s32; it must be s8",
                switchback_gemm_s8s8s32(context, &bad, &mb, &md_s32));
  bad = mb;
  bad.cols = K - 1;
  CHECK(switchback_gemm_s8s8s32(context, &ma, &bad, &md_s32) == SWITCHBACK_INVALID_ARGUMENT);
  bad = md_s32;
  bad.rows = M - 1;
  CHECK(switchback_gemm_s8s8s32(context, &ma, &mb, &bad) == SWITCHBACK_INVALID_ARGUMENT);
  CHECK(untouched(got_s32, sizeof(got_s32)));

  /* Sums of so many products would overflow: refused before anything is read. */
  static int8_t long_row[133145];
  int32_t sum = 42;
  const switchback_matrix row = matrix_of(long_row, SWITCHBACK_S8, 1, 133145);
  const switchback_matrix one = matrix_of(&sum, SWITCHBACK_S32, 1, 1);
  CHECK(switchback_gemm_s8s8s32(context, &row, &row, &one) != SWITCHBACK_OK);
  CHECK(strstr(switchback_last_error(), "133144") != NULL);
  CHECK(sum == 42);

  switchback_gemm_args args = gemm_args();
  args.absmax_b_count = N + 1;
  CHECK_INVALID("absmax_b_count = 6", switchback_gemm_dequantize(context, &args));
  args.absmax_b_count = 0;
  CHECK_INVALID("absmax_b_count = 0", switchback_gemm_dequantize(context, &args));
  args.absmax_b_count = INT64_MIN;
  CHECK_INVALID("absmax_b_count", switchback_gemm_dequantize(context, &args));
  args = gemm_args();
  args.absmax_a = NULL;
  CHECK_INVALID("absmax_a is a null", switchback_gemm_dequantize(context, &args));
  args = gemm_args();
  args.absmax_b = NULL;
  CHECK_INVALID("absmax_b is a null", switchback_gemm_dequantize(context, &args));
  args = gemm_args();
  args.d.dtype = SWITCHBACK_S32;
  CHECK_INVALID("d has dtype s32", switchback_gemm_dequantize(context, &args));
  args = gemm_args();
  args.bias = bias;
  args.bias_dtype = SWITCHBACK_S8;
  CHECK_INVALID("bias has dtype s8", switchback_gemm_dequantize(context, &args));
  args.bias_dtype = 17;
  CHECK_INVALID("bias has dtype 17", switchback_gemm_dequantize(context, &args));
  args = gemm_args();
  args.engine = "no_such";
  CHECK_INVALID("no_such", switchback_gemm_dequantize(context, &args));
  args = gemm_args();
  args.d.data = a;
  CHECK_INVALID("overlaps", switchback_gemm_dequantize(context, &args));
  args = gemm_args();
  memset(&args.b, 0, sizeof(args.b));
  CHECK(switchback_gemm_dequantize(context, &args) == SWITCHBACK_INVALID_ARGUMENT);
  args = gemm_args();
  CHECK_INVALID("context is a null", switchback_gemm_dequantize(NULL, &args));
  CHECK(untouched(got, sizeof(got)));
}

void gemm_tests(void) {
  for (int32_t threads = 1; threads <= 3; threads += 2) {
    context = cpu_context(threads);
    int32_sums();
    dequantized();
    packed();
    engines_by_name();
    standard();
    rejections();
    switchback_context_destroy(context);
  }
}
