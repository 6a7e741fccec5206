/* SPDX-License-Identifier: Apache-2.0 */
/* Quantization through the C ABI: values, strides, types, and every rejection. */
#include <math.h>
#include <stddef.h>

#include "capi/harness.h"
#include "capi/reference.h"

enum { rows = 5, cols = 19 };

static switchback_context* context;
static float x[rows * cols];
static int8_t want[rows * cols], want_t[rows * cols];
static int8_t got[rows * cols], got_t[rows * cols];
static float want_absmax[cols], got_absmax[cols], got_absmax_2[cols];

static void start(void) {
  ref_fill(x, rows * cols, 7);
  memset(x + 2 * cols, 0, cols * sizeof(float)); /* a row of zeros */
  mark(got, sizeof(got));
  mark(got_t, sizeof(got_t));
  mark(got_absmax, sizeof(got_absmax));
  mark(got_absmax_2, sizeof(got_absmax_2));
}

static void known_values(void) {
  /* 127 * (-2 / 4) = -63.5 goes to even; 0.1 of 4 is 3.175; a tie at 31.5 does not occur here. */
  float in[2][4] = {{1.0f, -2.0f, 0.1f, 4.0f}, {0.0f, -0.0f, 0.0f, 0.0f}};
  int8_t q[2][4];
  float absmax[2];
  const switchback_matrix mx = matrix_of(in, SWITCHBACK_F32, 2, 4);
  const switchback_matrix mq = matrix_of(q, SWITCHBACK_S8, 2, 4);
  CHECK_OK(switchback_quantize_rowwise(context, &mx, &mq, absmax));
  CHECK(q[0][0] == 32 && q[0][1] == -64 && q[0][2] == 3 && q[0][3] == 127);
  CHECK(q[1][0] == 0 && q[1][1] == 0 && q[1][2] == 0 && q[1][3] == 0);
  CHECK(absmax[0] == 4.0f && absmax[1] == 0.0f);

  in[0][1] = NAN;
  in[1][2] = -INFINITY;
  CHECK_OK(switchback_quantize_rowwise(context, &mx, &mq, absmax));
  CHECK(isnan(absmax[0]) && isinf(absmax[1]) && absmax[1] > 0.0f);
  static const int8_t zeros[8] = {0};
  CHECK(memcmp(q, zeros, sizeof(q)) == 0);

  /* The same numbers 1, -2, 4 as f16 and bf16. */
  const uint16_t f16[3] = {0x3C00, 0xC000, 0x4400};
  const uint16_t bf16[3] = {0x3F80, 0xC000, 0x4080};
  for (int type = 0; type < 2; ++type) {
    uint16_t bits[3];
    memcpy(bits, type == 0 ? f16 : bf16, sizeof(bits));
    const switchback_matrix half =
        matrix_of(bits, type == 0 ? SWITCHBACK_F16 : SWITCHBACK_BF16, 1, 3);
    const switchback_matrix codes = matrix_of(q, SWITCHBACK_S8, 1, 3);
    CHECK_OK(switchback_quantize_rowwise(context, &half, &codes, absmax));
    CHECK(q[0][0] == 32 && q[0][1] == -64 && q[0][2] == 127 && absmax[0] == 4.0f);
    uint16_t back[3];
    const switchback_matrix out = matrix_of(back, half.dtype, 1, 3);
    CHECK_OK(switchback_dequantize_rowwise(context, &codes, absmax, &out));
    CHECK(back[2] == bits[2]); /* absmax comes back exactly */
  }
}

static void each_layout(void) {
  const switchback_matrix mx = matrix_of(x, SWITCHBACK_F32, rows, cols);
  const switchback_matrix mq = matrix_of(got, SWITCHBACK_S8, rows, cols);
  const switchback_matrix mq_t = matrix_of(got_t, SWITCHBACK_S8, cols, rows);

  start();
  ref_quantize_rowwise(x, rows, cols, want, want_absmax);
  CHECK_OK(switchback_quantize_rowwise(context, &mx, &mq, got_absmax));
  CHECK(memcmp(got, want, sizeof(want)) == 0);
  CHECK(memcmp(got_absmax, want_absmax, rows * sizeof(float)) == 0);
  CHECK(untouched(got_absmax + rows, sizeof(got_absmax) - rows * sizeof(float)));

  start();
  ref_quantize_columnwise_transpose(x, rows, cols, want_t, want_absmax);
  CHECK_OK(switchback_quantize_columnwise_transpose(context, &mx, &mq_t, got_absmax));
  CHECK(memcmp(got_t, want_t, sizeof(want_t)) == 0);
  CHECK(memcmp(got_absmax, want_absmax, sizeof(want_absmax)) == 0);

  start(); /* both from one read */
  ref_quantize_rowwise(x, rows, cols, want, want_absmax);
  CHECK_OK(switchback_quantize_rowwise_and_columnwise_transpose(context, &mx, &mq, got_absmax,
                                                                &mq_t, got_absmax_2));
  CHECK(memcmp(got, want, sizeof(want)) == 0 && memcmp(got_t, want_t, sizeof(want_t)) == 0);
  CHECK(memcmp(got_absmax, want_absmax, rows * sizeof(float)) == 0);
  ref_quantize_columnwise_transpose(x, rows, cols, want_t, want_absmax);
  CHECK(memcmp(got_absmax_2, want_absmax, sizeof(want_absmax)) == 0);

  ref_quantize_global(x, rows, cols, want, want_t, want_absmax);
  start();
  CHECK_OK(switchback_quantize_global(context, &mx, &mq, got_absmax));
  CHECK(memcmp(got, want, sizeof(want)) == 0 && got_absmax[0] == want_absmax[0]);
  start();
  CHECK_OK(switchback_quantize_global_transpose(context, &mx, &mq_t, got_absmax));
  CHECK(memcmp(got_t, want_t, sizeof(want_t)) == 0 && got_absmax[0] == want_absmax[0]);
  start();
  CHECK_OK(switchback_quantize_global_and_transpose(context, &mx, &mq, &mq_t, got_absmax));
  CHECK(memcmp(got, want, sizeof(want)) == 0 && memcmp(got_t, want_t, sizeof(want_t)) == 0);
  CHECK(got_absmax[0] == want_absmax[0]);
  CHECK(untouched(got_absmax + 1, sizeof(got_absmax) - sizeof(float)));
}

static void column_sums(void) {
  float sums[cols], want_sums[cols];
  const switchback_matrix mx = matrix_of(x, SWITCHBACK_F32, rows, cols);
  const switchback_matrix mq = matrix_of(got, SWITCHBACK_S8, rows, cols);
  start();
  for (int c = 0; c < cols; ++c) {
    want_sums[c] = 0.0f;
    for (int r = 0; r < rows; ++r)
      want_sums[c] += x[r * cols + c]; /* integers: exact in any order */
  }
  CHECK_OK(switchback_column_sums(context, &mx, sums, 0));
  CHECK(memcmp(sums, want_sums, sizeof(sums)) == 0);
  CHECK_OK(switchback_column_sums(context, &mx, sums, 1));
  for (int c = 0; c < cols; ++c)
    CHECK(sums[c] == 2.0f * want_sums[c]);
  ref_quantize_rowwise(x, rows, cols, want, want_absmax);
  CHECK_OK(switchback_quantize_rowwise_column_sums(context, &mx, &mq, got_absmax, sums, 0));
  CHECK(memcmp(sums, want_sums, sizeof(sums)) == 0);
  CHECK(memcmp(got, want, sizeof(want)) == 0);
  CHECK_OK(switchback_quantize_rowwise_column_sums(context, &mx, &mq, got_absmax, sums, 1));
  for (int c = 0; c < cols; ++c)
    CHECK(sums[c] == 2.0f * want_sums[c]);
}

static void scaled_columns(void) {
  float scaled[rows * cols], column_scales[cols], sums[cols], want_sums[cols];
  const switchback_matrix mx = matrix_of(x, SWITCHBACK_F32, rows, cols);
  const switchback_matrix mq = matrix_of(got, SWITCHBACK_S8, rows, cols);
  for (int c = 0; c < cols; ++c)
    column_scales[c] = 0.5f + 0.25f * (float)c;
  for (int i = 0; i < rows * cols; ++i)
    scaled[i] = x[i] * column_scales[i % cols];
  ref_quantize_rowwise(scaled, rows, cols, want, want_absmax);
  start();
  CHECK_OK(switchback_column_sums(context, &mx, want_sums, 0));
  CHECK_OK(
      switchback_quantize_rowwise_scaled(context, &mx, column_scales, &mq, got_absmax, NULL, 0));
  CHECK(memcmp(got, want, sizeof(want)) == 0);
  CHECK(memcmp(got_absmax, want_absmax, rows * sizeof(float)) == 0);
  start();
  CHECK_OK(
      switchback_quantize_rowwise_scaled(context, &mx, column_scales, &mq, got_absmax, sums, 0));
  CHECK(memcmp(got, want, sizeof(want)) == 0);
  CHECK(memcmp(sums, want_sums, sizeof(sums)) == 0);
}

static void back_and_cast(void) {
  const switchback_matrix mx = matrix_of(x, SWITCHBACK_F32, rows, cols);
  const switchback_matrix mq = matrix_of(got, SWITCHBACK_S8, rows, cols);
  start();
  CHECK_OK(switchback_quantize_rowwise(context, &mx, &mq, got_absmax));
  float back[rows * cols];
  const switchback_matrix mback = matrix_of(back, SWITCHBACK_F32, rows, cols);
  CHECK_OK(switchback_dequantize_rowwise(context, &mq, got_absmax, &mback));
  for (int i = 0; i < rows * cols; ++i)
    CHECK(back[i] == got_absmax[i / cols] * ((float)got[i] / 127.0f));

  float in[6] = {1.9f, -1.9f, 300.0f, -300.0f, NAN, 0.5f};
  int8_t out[6];
  const switchback_matrix min = matrix_of(in, SWITCHBACK_F32, 1, 6);
  const switchback_matrix mout = matrix_of(out, SWITCHBACK_S8, 1, 6);
  CHECK_OK(switchback_cast_to_int8(context, &min, &mout));
  CHECK(out[0] == 1 && out[1] == -1 && out[2] == 127 && out[3] == -128 && out[4] == 0 &&
        out[5] == 0);
}

static void strides(void) {
  enum { wide = cols + 3 };
  float in[rows * wide];
  int8_t out[rows * wide];
  start();
  mark(out, sizeof(out));
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < wide; ++c)
      in[r * wide + c] = c < cols ? x[r * cols + c] : 1e30f; /* not part of the matrix */
  switchback_matrix mx = matrix_of(in, SWITCHBACK_F32, rows, cols);
  switchback_matrix mq = matrix_of(out, SWITCHBACK_S8, rows, cols);
  mx.stride = mq.stride = wide;
  ref_quantize_rowwise(x, rows, cols, want, want_absmax);
  CHECK_OK(switchback_quantize_rowwise(context, &mx, &mq, got_absmax));
  for (int r = 0; r < rows; ++r) {
    CHECK(memcmp(out + r * wide, want + r * cols, cols) == 0);
    CHECK(untouched(out + r * wide + cols, wide - cols));
  }
}

static void empty(void) {
  switchback_matrix none = matrix_of(NULL, SWITCHBACK_F32, 0, cols);
  switchback_matrix codes = matrix_of(NULL, SWITCHBACK_S8, 0, cols);
  CHECK_OK(switchback_quantize_rowwise(context, &none, &codes, NULL));
  start();
  CHECK_OK(switchback_quantize_global(context, &none, &codes, got_absmax));
  CHECK(got_absmax[0] == 0.0f);
}

static void rejections(void) {
  const switchback_matrix mx = matrix_of(x, SWITCHBACK_F32, rows, cols);
  const switchback_matrix mq = matrix_of(got, SWITCHBACK_S8, rows, cols);
  const switchback_matrix mq_t = matrix_of(got_t, SWITCHBACK_S8, cols, rows);
  start();

  CHECK_INVALID("context is a null", switchback_quantize_rowwise(NULL, &mx, &mq, got_absmax));
  CHECK_INVALID("x is a null", switchback_quantize_rowwise(context, NULL, &mq, got_absmax));
  CHECK_INVALID("q is a null", switchback_quantize_rowwise(context, &mx, NULL, got_absmax));
  CHECK_INVALID("absmax is a null", switchback_quantize_rowwise(context, &mx, &mq, NULL));
  CHECK_INVALID("q is [19,5]", switchback_quantize_rowwise(context, &mx, &mq_t, got_absmax));

  switchback_matrix bad = mx;
  bad.dtype = 9;
  CHECK_INVALID("x has dtype 9", switchback_quantize_rowwise(context, &bad, &mq, got_absmax));
  bad.dtype = SWITCHBACK_S8;
  CHECK_INVALID("must be f32, f16 or bf16",
                switchback_quantize_rowwise(context, &bad, &mq, got_absmax));
  bad = mx;
  bad.rows = -1;
  CHECK_INVALID("rows = -1", switchback_quantize_rowwise(context, &bad, &mq, got_absmax));
  bad = mx;
  bad.cols = INT64_MIN;
  CHECK_INVALID("x has cols", switchback_quantize_rowwise(context, &bad, &mq, got_absmax));
  bad = mx;
  bad.stride = cols - 1;
  CHECK_INVALID("stride = 18", switchback_quantize_rowwise(context, &bad, &mq, got_absmax));
  bad = mx;
  bad.rows = bad.stride = INT64_MAX / 2;
  CHECK_INVALID("more bytes than", switchback_quantize_rowwise(context, &bad, &mq, got_absmax));
  bad = mx;
  bad.data = NULL;
  CHECK_INVALID("null pointer; only an empty matrix may",
                switchback_quantize_rowwise(context, &bad, &mq, got_absmax));
  bad = mq;
  bad.dtype = SWITCHBACK_F32;
  bad.rows = bad.cols = bad.stride = 1;
  CHECK_INVALID("q has dtype f32; it must be s8",
                switchback_quantize_rowwise(context, &mx, &bad, got_absmax));
  bad = mq;
  bad.data = x;
  CHECK_INVALID("overlaps", switchback_quantize_rowwise(context, &mx, &bad, got_absmax));

  /* The others, by what each has of its own. */
  CHECK_INVALID("context is a null",
                switchback_quantize_columnwise_transpose(NULL, &mx, &mq_t, got_absmax));
  CHECK_INVALID("w is a null",
                switchback_quantize_columnwise_transpose(context, NULL, &mq_t, got_absmax));
  CHECK_INVALID("q_t is a null",
                switchback_quantize_columnwise_transpose(context, &mx, NULL, got_absmax));
  CHECK_INVALID("q_t is [5,19]",
                switchback_quantize_columnwise_transpose(context, &mx, &mq, got_absmax));
  CHECK_INVALID("absmax is a null",
                switchback_quantize_columnwise_transpose(context, &mx, &mq_t, NULL));
  CHECK_INVALID("context is a null", switchback_quantize_global(NULL, &mx, &mq, got_absmax));
  CHECK_INVALID("w is a null", switchback_quantize_global(context, NULL, &mq, got_absmax));
  CHECK_INVALID("q is a null", switchback_quantize_global(context, &mx, NULL, got_absmax));
  CHECK_INVALID("absmax is a null", switchback_quantize_global(context, &mx, &mq, NULL));
  CHECK_INVALID("context is a null",
                switchback_quantize_global_transpose(NULL, &mx, &mq_t, got_absmax));
  CHECK_INVALID("w is a null",
                switchback_quantize_global_transpose(context, NULL, &mq_t, got_absmax));
  CHECK_INVALID("q_t is a null",
                switchback_quantize_global_transpose(context, &mx, NULL, got_absmax));
  CHECK_INVALID("absmax is a null",
                switchback_quantize_global_transpose(context, &mx, &mq_t, NULL));
  CHECK_INVALID("context is a null", switchback_quantize_rowwise_and_columnwise_transpose(
                                         NULL, &mx, &mq, got_absmax, &mq_t, got_absmax_2));
  CHECK_INVALID("absmax_cols is a null", switchback_quantize_rowwise_and_columnwise_transpose(
                                             context, &mx, &mq, got_absmax, &mq_t, NULL));
  CHECK_INVALID("absmax_rows is a null", switchback_quantize_rowwise_and_columnwise_transpose(
                                             context, &mx, &mq, NULL, &mq_t, got_absmax));
  CHECK_INVALID("q_t is a null", switchback_quantize_rowwise_and_columnwise_transpose(
                                     context, &mx, &mq, got_absmax, NULL, got_absmax_2));
  CHECK_INVALID("context is a null",
                switchback_quantize_global_and_transpose(NULL, &mx, &mq, &mq_t, got_absmax));
  CHECK_INVALID("q is a null",
                switchback_quantize_global_and_transpose(context, &mx, NULL, &mq_t, got_absmax));
  CHECK_INVALID("absmax is a null",
                switchback_quantize_global_and_transpose(context, &mx, &mq, &mq_t, NULL));
  CHECK_INVALID("column_scales is a null pointer",
                switchback_quantize_rowwise_scaled(context, &mx, NULL, &mq, got_absmax, NULL, 0));
  CHECK_INVALID("accumulate = 2", switchback_quantize_rowwise_column_sums(
                                      context, &mx, &mq, got_absmax, got_absmax_2, 2));
  CHECK_INVALID("g is a null", switchback_quantize_rowwise_column_sums(
                                   context, NULL, &mq, got_absmax, got_absmax_2, 0));
  CHECK_INVALID("context is a null", switchback_quantize_rowwise_column_sums(
                                         NULL, &mx, &mq, got_absmax, got_absmax_2, 0));
  CHECK_INVALID("column_sums is a null",
                switchback_quantize_rowwise_column_sums(context, &mx, &mq, got_absmax, NULL, 0));
  CHECK_INVALID("context is a null", switchback_column_sums(NULL, &mx, got_absmax, 0));
  CHECK_INVALID("g is a null", switchback_column_sums(context, NULL, got_absmax, 0));
  CHECK_INVALID("sums is a null", switchback_column_sums(context, &mx, NULL, 0));
  CHECK_INVALID("accumulate = -1", switchback_column_sums(context, &mx, got_absmax, -1));
  CHECK_INVALID("context is a null", switchback_cast_to_int8(NULL, &mx, &mq));
  CHECK_INVALID("x is a null", switchback_cast_to_int8(context, NULL, &mq));
  CHECK_INVALID("q is a null", switchback_cast_to_int8(context, &mx, NULL));

  CHECK(untouched(got, sizeof(got)) && untouched(got_t, sizeof(got_t)));
  CHECK(untouched(got_absmax, sizeof(got_absmax)));
  CHECK(untouched(got_absmax_2, sizeof(got_absmax_2)));

  /* dequantize writes x. */
  static int8_t codes[rows * cols];
  static float out[rows * cols];
  mark(out, sizeof(out));
  const switchback_matrix mcodes = matrix_of(codes, SWITCHBACK_S8, rows, cols);
  const switchback_matrix mout = matrix_of(out, SWITCHBACK_F32, rows, cols);
  CHECK_INVALID("context is a null",
                switchback_dequantize_rowwise(NULL, &mcodes, got_absmax, &mout));
  CHECK_INVALID("q is a null", switchback_dequantize_rowwise(context, NULL, got_absmax, &mout));
  CHECK_INVALID("absmax is a null", switchback_dequantize_rowwise(context, &mcodes, NULL, &mout));
  CHECK_INVALID("x is a null", switchback_dequantize_rowwise(context, &mcodes, got_absmax, NULL));
  bad = mcodes;
  bad.dtype = SWITCHBACK_F16;
  bad.rows = 1;
  CHECK_INVALID("q has dtype f16", switchback_dequantize_rowwise(context, &bad, got_absmax, &mout));
  CHECK(untouched(out, sizeof(out)));
}

static void fingerprints(void) {
  float in[2][3] = {{1.0f, 2.0f, 3.0f}, {4.0f, 5.0f, 6.0f}};
  uint64_t before[2], after[2] = {7, 7};
  const switchback_matrix m = matrix_of(in, SWITCHBACK_F32, 2, 3);
  CHECK_OK(switchback_fingerprint(context, &m, before));
  CHECK_OK(switchback_fingerprint(context, &m, after));
  CHECK(before[0] == after[0] && before[1] == after[1]);
  in[1][2] = -6.0f;
  CHECK_OK(switchback_fingerprint(context, &m, after));
  CHECK(before[0] != after[0] || before[1] != after[1]);
  in[1][2] = 6.0f;
  CHECK_OK(switchback_fingerprint(context, &m, after));
  CHECK(before[0] == after[0] && before[1] == after[1]);
  const switchback_matrix none = matrix_of(NULL, SWITCHBACK_S8, 0, 5);
  CHECK_OK(switchback_fingerprint(context, &none, after));
  CHECK(before[0] != after[0] || before[1] != after[1]);

  after[0] = after[1] = 7;
  switchback_matrix bad = m;
  bad.stride = 2;
  CHECK_INVALID("context is a null", switchback_fingerprint(NULL, &m, after));
  CHECK_INVALID("x is a null", switchback_fingerprint(context, NULL, after));
  CHECK_INVALID("stride = 2", switchback_fingerprint(context, &bad, after));
  CHECK_INVALID("out is a null", switchback_fingerprint(context, &m, NULL));
  CHECK(after[0] == 7 && after[1] == 7);
}

void quant_tests(void) {
  for (int32_t threads = 1; threads <= 3; threads += 2) {
    context = cpu_context(threads);
    known_values();
    each_layout();
    column_sums();
    scaled_columns();
    back_and_cast();
    strides();
    empty();
    fingerprints();
    rejections();
    switchback_context_destroy(context);
  }
}
