/* SPDX-License-Identifier: Apache-2.0 */
/* The quantize operations through the C ABI: each argument arrives where it belongs. The values are
 * proven by the suites of tests/quant. */
#include <math.h>
#include <stddef.h>

#include "capi/harness.h"
#include "capi/reference.h"

enum { rows = 5, cols = 16, block_rows = 128, padded = 128 };

static switchback_context* context;
static float x[rows * cols], y[rows * cols], y2[rows * cols];
static int8_t want[rows * cols], want_t[rows * cols], got[rows * cols], got_t[rows * cols];
static int8_t blocks[cols * padded], blocks_2[cols * padded];
static float want_absmax[cols], got_absmax[cols], got_absmax_2[cols], sums[cols], want_sums[cols];
static switchback_matrix mx, my, my2, mq, mq_t, mblocks, mblocks_2;

static void start(void) {
  ref_fill(x, rows * cols, 7);
  memset(x + 2 * cols, 0, cols * sizeof(float)); /* a row of zeros */
  mark(got, sizeof(got));
  mark(got_t, sizeof(got_t));
  mark(got_absmax, sizeof(got_absmax));
  mark(got_absmax_2, sizeof(got_absmax_2));
  mx = matrix_of(x, SWITCHBACK_F32, rows, cols);
  my = matrix_of(y, SWITCHBACK_F32, rows, cols);
  my2 = matrix_of(y2, SWITCHBACK_F32, rows, cols);
  mq = matrix_of(got, SWITCHBACK_S8, rows, cols);
  mq_t = matrix_of(got_t, SWITCHBACK_S8, cols, rows);
  mblocks = matrix_of(blocks, SWITCHBACK_S8, cols, padded);
  mblocks_2 = matrix_of(blocks_2, SWITCHBACK_S8, cols, padded);
}

/* The codes and scales of rows of a. */
static int are_rows_of(const float* a) {
  ref_quantize_rowwise(a, rows, cols, want, want_absmax);
  return memcmp(got, want, sizeof(want)) == 0 &&
         memcmp(got_absmax, want_absmax, rows * sizeof(float)) == 0;
}

static void each_layout(void) {
  start();
  CHECK_OK(switchback_quantize_rowwise(context, &mx, &mq, got_absmax));
  CHECK(are_rows_of(x) && untouched(got_absmax + rows, sizeof(got_absmax) - rows * sizeof(float)));

  ref_quantize_columnwise_transpose(x, rows, cols, want_t, want_absmax);
  CHECK_OK(switchback_quantize_columnwise_transpose(context, &mx, &mq_t, got_absmax));
  CHECK(memcmp(got_t, want_t, sizeof(want_t)) == 0);
  CHECK(memcmp(got_absmax, want_absmax, sizeof(want_absmax)) == 0);
  start(); /* both from one read */
  CHECK_OK(switchback_quantize_rowwise_and_columnwise_transpose(context, &mx, &mq, got_absmax,
                                                                &mq_t, got_absmax_2));
  CHECK(memcmp(got_t, want_t, sizeof(want_t)) == 0);
  CHECK(memcmp(got_absmax_2, want_absmax, sizeof(want_absmax)) == 0);
  CHECK(are_rows_of(x));

  ref_quantize_global(x, rows, cols, want, want_t, want_absmax);
  CHECK_OK(switchback_quantize_global(context, &mx, &mq, got_absmax));
  CHECK(memcmp(got, want, sizeof(want)) == 0 && got_absmax[0] == want_absmax[0]);
  CHECK_OK(switchback_quantize_global_transpose(context, &mx, &mq_t, got_absmax_2));
  CHECK(memcmp(got_t, want_t, sizeof(want_t)) == 0 && got_absmax_2[0] == want_absmax[0]);
  start();
  CHECK_OK(switchback_quantize_global_and_transpose(context, &mx, &mq, &mq_t, got_absmax));
  CHECK(memcmp(got, want, sizeof(want)) == 0 && memcmp(got_t, want_t, sizeof(want_t)) == 0);
  CHECK(got_absmax[0] == want_absmax[0]);

  /* One block of rows has the codes and scales of columns, and zeros after its rows. */
  ref_quantize_columnwise_transpose(x, rows, cols, want_t, want_absmax);
  CHECK_OK(switchback_quantize_blockwise_transpose(context, &mx, block_rows, &mblocks, got_absmax));
  CHECK(memcmp(got_absmax, want_absmax, sizeof(want_absmax)) == 0);
  for (int c = 0; c < cols; ++c)
    CHECK(memcmp(blocks + c * padded, want_t + c * rows, rows) == 0 &&
          blocks[c * padded + rows] == 0);
  start();
  CHECK_OK(switchback_quantize_rowwise_and_blockwise_transpose(
      context, &mx, &mq, got_absmax, block_rows, &mblocks_2, got_absmax_2, sums, 0));
  CHECK(memcmp(blocks, blocks_2, sizeof(blocks)) == 0);
  CHECK(memcmp(got_absmax_2, want_absmax, sizeof(want_absmax)) == 0);
  CHECK(are_rows_of(x));
  CHECK_OK(switchback_column_sums(context, &mx, want_sums, 0));
  CHECK(memcmp(sums, want_sums, sizeof(sums)) == 0);
}

static void column_sums(void) {
  start();
  for (int c = 0; c < cols; ++c) {
    want_sums[c] = 0.0f;
    for (int r = 0; r < rows; ++r)
      want_sums[c] += x[r * cols + c]; /* integers: exact in any order */
  }
  for (int32_t accumulate = 0; accumulate < 2; ++accumulate) {
    CHECK_OK(switchback_column_sums(context, &mx, sums, accumulate));
    CHECK_OK(switchback_quantize_rowwise_column_sums(context, &mx, &mq, got_absmax, y, accumulate));
    for (int c = 0; c < cols; ++c) {
      CHECK(sums[c] == (float)(1 + accumulate) * want_sums[c]);
      CHECK(y[c] == sums[c]);
    }
  }
  CHECK(are_rows_of(x));

  float scales[cols];
  for (int c = 0; c < cols; ++c)
    scales[c] = 0.5f + 0.25f * (float)c;
  for (int i = 0; i < rows * cols; ++i)
    y[i] = x[i] * scales[i % cols];
  start();
  CHECK_OK(switchback_quantize_rowwise_scaled(context, &mx, scales, &mq, got_absmax, sums, 0));
  CHECK(are_rows_of(y) && memcmp(sums, want_sums, sizeof(sums)) == 0);
  start();
  CHECK_OK(switchback_quantize_rowwise_scaled(context, &mx, scales, &mq, got_absmax, NULL, 0));
  CHECK(are_rows_of(y));
}

static void back_and_cast(void) {
  start();
  CHECK_OK(switchback_quantize_rowwise(context, &mx, &mq, got_absmax));
  CHECK_OK(switchback_dequantize_rowwise(context, &mq, got_absmax, &my));
  for (int i = 0; i < rows * cols; ++i)
    CHECK(y[i] == got_absmax[i / cols] * ((float)got[i] / 127.0f));
  CHECK_OK(switchback_cast_to_int8(context, &mx, &mq));
  for (int i = 0; i < rows * cols; ++i)
    CHECK(got[i] == (int8_t)x[i]);

  /* Strides are the matrices' own; 1, -2 and 4 in types of 16 bits. */
  float wide[2 * 5] = {1, -2, 4, 1e30f, 1e30f, 3, 3, 0, 1e30f, 1e30f};
  switchback_matrix part = matrix_of(wide, SWITCHBACK_F32, 2, 3);
  switchback_matrix codes = matrix_of(got, SWITCHBACK_S8, 2, 3);
  part.stride = 5;
  codes.stride = 4;
  mark(got, sizeof(got));
  CHECK_OK(switchback_quantize_rowwise(context, &part, &codes, got_absmax));
  CHECK(got[0] == 32 && got[1] == -64 && got[2] == 127 && got[4] == 127 && got[6] == 0);
  CHECK(untouched(got + 3, 1) && untouched(got + 7, 1) && got_absmax[1] == 3.0f);
  uint16_t bits[2][3] = {{0x3C00, 0xC000, 0x4400}, {0x3F80, 0xC000, 0x4080}};
  codes.rows = 1;
  for (int type = 0; type < 2; ++type) {
    part = matrix_of(bits[type], type == 0 ? SWITCHBACK_F16 : SWITCHBACK_BF16, 1, 3);
    mark(got, sizeof(got));
    CHECK_OK(switchback_quantize_rowwise(context, &part, &codes, got_absmax));
    CHECK(got[0] == 32 && got[1] == -64 && got[2] == 127 && got_absmax[0] == 4.0f);
  }
}

static void activations(int32_t activation) {
  static float g[rows * cols];
  ref_fill(g, rows * cols, 8);
  const switchback_matrix mg = matrix_of(g, SWITCHBACK_F32, rows, cols);
  start();
  x[0] = 1.0f;
  CHECK_OK(switchback_activation_forward(context, &mx, activation, &my));
  /* GELU(1) in both forms. */
  CHECK(fabs(y[0] - (activation == SWITCHBACK_GELU_ERF ? 0.84134475 : 0.84119199)) < 1e-6);
  CHECK_OK(switchback_activation_forward_quantize(context, &mx, activation, &mq, got_absmax, &my2));
  CHECK(are_rows_of(y) && memcmp(y, y2, sizeof(y)) == 0);
  CHECK_OK(switchback_activation_forward_quantize(context, &mx, activation, &mq, got_absmax, NULL));
  CHECK_OK(switchback_rotate(context, &my, 4, &my));
  CHECK_OK(switchback_rotate_quantize(context, &mx, activation, 4, &mq, got_absmax));
  CHECK(are_rows_of(y));

  CHECK_OK(switchback_activation_backward(context, &mg, &mx, activation, &my));
  CHECK_OK(switchback_column_sums(context, &my, want_sums, 0));
  for (int32_t accumulate = 0; accumulate < 2; ++accumulate) {
    CHECK_OK(switchback_activation_backward_quantize(context, &mg, &mx, activation, &my2, &mq,
                                                     got_absmax, sums, accumulate));
    CHECK(memcmp(y, y2, sizeof(y)) == 0 && are_rows_of(y));
    CHECK(sums[3] == (float)(1 + accumulate) * want_sums[3]);
  }
  CHECK_OK(switchback_activation_backward_quantize(context, &mg, &mx, activation, &my2, &mq,
                                                   got_absmax, NULL, 0));
}

static void rotations(int group) {
  start();
  memset(x, 0, sizeof(x));
  x[0] = 1.0f; /* the first column of the matrix: 1/2, or -1/2 where r and c add up to 3, in each
                  digit */
  CHECK_OK(switchback_rotate(context, &mx, group, &my));
  for (int r = 0; r < group; ++r) {
    const float low = r % 4 == 3 ? -0.5f : 0.5f, high = r / 4 == 3 ? -0.5f : 0.5f;
    CHECK(y[r] == (group == 4 ? low : low * high));
  }
  start();
  CHECK_OK(switchback_rotate(context, &mx, group, &my));
  CHECK_OK(
      switchback_rotate_quantize(context, &mx, SWITCHBACK_NO_ACTIVATION, group, &mq, got_absmax));
  CHECK(are_rows_of(y));
}

static void fingerprints(void) {
  uint64_t before[2], after[2];
  start();
  CHECK_OK(switchback_fingerprint(context, &mx, before));
  CHECK_OK(switchback_fingerprint(context, &mx, after));
  CHECK(before[0] == after[0] && before[1] == after[1]);
  x[cols] += 1.0f;
  CHECK_OK(switchback_fingerprint(context, &mx, after));
  CHECK(before[0] != after[0] && before[1] != after[1]);
}

void quant_tests(void) {
  context = cpu_context(2);
  each_layout();
  column_sums();
  back_and_cast();
  activations(SWITCHBACK_GELU_TANH);
  activations(SWITCHBACK_GELU_ERF);
  rotations(4);
  rotations(16);
  fingerprints();
  switchback_context_destroy(context);
}
