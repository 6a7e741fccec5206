/* SPDX-License-Identifier: Apache-2.0 */
/* The quantize operations through the C ABI: each argument is passed to the right place. The suites
 * of tests/quant check the values. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>

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
  memset(x + 2 * cols, 0, cols * sizeof(float)); /* the third row has zeros only */
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

static switchback_quantize_args with_rows(const switchback_matrix* from) {
  switchback_quantize_args args = switchback_quantize_args_of(from);
  args.q = mq;
  args.absmax = got_absmax;
  return args;
}

/* Computes only the column sums of g. */
static void sums_of(const switchback_matrix* g, float* to, int32_t accumulate) {
  switchback_quantize_args args = switchback_quantize_args_of(g);
  args.column_sums = to;
  args.accumulate = accumulate;
  CHECK_OK(switchback_quantize(context, &args));
}

/* Computes only the rotation of a matrix, with groups of `group` columns. */
static void rotated(const switchback_matrix* from, int32_t group, const switchback_matrix* to) {
  switchback_quantize_args args = switchback_quantize_args_of(from);
  args.rotation = group;
  args.rotated = *to;
  CHECK_OK(switchback_quantize(context, &args));
}

/* Whether got and got_absmax are the reference's codes and scales of the rows of a. */
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
  start(); /* now rows and columns from one pass over x */
  switchback_quantize_args args = with_rows(&mx);
  args.q_t = mq_t;
  args.absmax_t = got_absmax_2;
  CHECK_OK(switchback_quantize(context, &args));
  CHECK(memcmp(got_t, want_t, sizeof(want_t)) == 0);
  CHECK(memcmp(got_absmax_2, want_absmax, sizeof(want_absmax)) == 0);
  CHECK(are_rows_of(x));

  ref_quantize_global(x, rows, cols, want, want_t, want_absmax);
  CHECK_OK(switchback_quantize_global(context, &mx, &mq, got_absmax));
  CHECK(memcmp(got, want, sizeof(want)) == 0 && got_absmax[0] == want_absmax[0]);
  CHECK_OK(switchback_quantize_global_transpose(context, &mx, &mq_t, got_absmax_2));
  CHECK(memcmp(got_t, want_t, sizeof(want_t)) == 0 && got_absmax_2[0] == want_absmax[0]);
  start();
  args = with_rows(&mx);
  args.q_t = mq_t;
  args.q_scale = args.q_t_scale = SWITCHBACK_SCALE_GLOBAL;
  CHECK_OK(switchback_quantize(context, &args));
  CHECK(memcmp(got, want, sizeof(want)) == 0 && memcmp(got_t, want_t, sizeof(want_t)) == 0);
  CHECK(got_absmax[0] == want_absmax[0]);

  /* If all rows are in one block, blockwise codes are the columnwise codes, with zeros after the
   * rows. */
  ref_quantize_columnwise_transpose(x, rows, cols, want_t, want_absmax);
  args = switchback_quantize_args_of(&mx);
  args.q_t = mblocks;
  args.absmax_t = got_absmax;
  args.block_rows = block_rows;
  CHECK_OK(switchback_quantize(context, &args));
  CHECK(memcmp(got_absmax, want_absmax, sizeof(want_absmax)) == 0);
  for (int c = 0; c < cols; ++c)
    CHECK(memcmp(blocks + c * padded, want_t + c * rows, rows) == 0 &&
          blocks[c * padded + rows] == 0);
  start();
  args = with_rows(&mx);
  args.q_t = mblocks_2;
  args.absmax_t = got_absmax_2;
  args.block_rows = block_rows;
  args.column_sums = sums;
  CHECK_OK(switchback_quantize(context, &args));
  CHECK(memcmp(blocks, blocks_2, sizeof(blocks)) == 0);
  CHECK(memcmp(got_absmax_2, want_absmax, sizeof(want_absmax)) == 0);
  CHECK(are_rows_of(x));
  sums_of(&mx, want_sums, 0);
  CHECK(memcmp(sums, want_sums, sizeof(sums)) == 0);
}

static void column_sums(void) {
  start();
  for (int c = 0; c < cols; ++c) {
    want_sums[c] = 0.0f;
    for (int r = 0; r < rows; ++r)
      want_sums[c] += x[r * cols + c]; /* exact in any order, because the values are integers */
  }
  for (int32_t accumulate = 0; accumulate < 2; ++accumulate) {
    sums_of(&mx, sums, accumulate);
    switchback_quantize_args args = with_rows(&mx);
    args.column_sums = y;
    args.accumulate = accumulate;
    CHECK_OK(switchback_quantize(context, &args));
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
  switchback_quantize_args args = with_rows(&mx);
  args.column_scales = scales;
  args.column_sums = sums;
  CHECK_OK(switchback_quantize(context, &args));
  CHECK(are_rows_of(y) && memcmp(sums, want_sums, sizeof(sums)) == 0);
  start();
  args.column_sums = NULL;
  CHECK_OK(switchback_quantize(context, &args));
  CHECK(are_rows_of(y));
}

static void back_and_cast(void) {
  start();
  CHECK_OK(switchback_quantize_rowwise(context, &mx, &mq, got_absmax));
  CHECK_OK(switchback_dequantize_rowwise(context, &mq, got_absmax, &my));
  for (int i = 0; i < rows * cols; ++i)
    CHECK(y[i] == got_absmax[i / cols] * ((float)got[i] / 127.0f));
  switchback_quantize_args cast = switchback_quantize_args_of(&mx);
  cast.q = mq;
  cast.q_scale = SWITCHBACK_SCALE_NONE;
  CHECK_OK(switchback_quantize(context, &cast));
  for (int i = 0; i < rows * cols; ++i)
    CHECK(got[i] == (int8_t)x[i]);

  /* Each matrix has its own stride. The values 1, -2 and 4 are also given in both 16-bit types. */
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
  switchback_quantize_args args = switchback_quantize_args_of(&mx);
  args.activation = activation;
  args.value = my;
  CHECK_OK(switchback_quantize(context, &args));
  /* The known values of GELU(1), with erf and with tanh. */
  CHECK(fabs(y[0] - (activation == SWITCHBACK_GELU_ERF ? 0.84134475 : 0.84119199)) < 1e-6);
  args = with_rows(&mx);
  args.activation = activation;
  args.value = my2;
  CHECK_OK(switchback_quantize(context, &args));
  CHECK(are_rows_of(y) && memcmp(y, y2, sizeof(y)) == 0);
  args = with_rows(&mx);
  args.activation = activation;
  CHECK_OK(switchback_quantize(context, &args));
  rotated(&my, 4, &my);
  args.rotation = 4;
  CHECK_OK(switchback_quantize(context, &args));
  CHECK(are_rows_of(y));

  args = switchback_quantize_args_of(&mx);
  args.g = mg;
  args.activation = activation;
  args.value = my;
  CHECK_OK(switchback_quantize(context, &args));
  sums_of(&my, want_sums, 0);
  args = with_rows(&mx);
  args.g = mg;
  args.activation = activation;
  args.value = my2;
  args.column_sums = sums;
  for (args.accumulate = 0; args.accumulate < 2; ++args.accumulate) {
    CHECK_OK(switchback_quantize(context, &args));
    CHECK(memcmp(y, y2, sizeof(y)) == 0 && are_rows_of(y));
    CHECK(sums[3] == (float)(1 + args.accumulate) * want_sums[3]);
  }
  start();
  args = with_rows(&mx); /* now only the codes are requested */
  args.g = mg;
  args.activation = activation;
  x[0] = 1.0f;
  CHECK_OK(switchback_quantize(context, &args));
  CHECK(are_rows_of(y2));
}

/* Stochastically rounded codes, of rows and of blocks, differ by at most one from the codes
 * rounded to nearest. */
static void stochastic(void) {
  start();
  switchback_quantize_args args = with_rows(&mx);
  args.stochastic = 1;
  args.rounding_seed = 1;
  CHECK_OK(switchback_quantize(context, &args));
  int8_t first[rows * cols];
  memcpy(first, got, sizeof(got));
  ref_quantize_rowwise(x, rows, cols, want, want_absmax);
  CHECK(memcmp(got_absmax, want_absmax, rows * sizeof(float)) == 0);
  int differ = 0;
  for (int i = 0; i < rows * cols; ++i) {
    CHECK(abs(got[i] - want[i]) <= 1);
    differ += got[i] != want[i];
  }
  CHECK(differ > 0);
  for (int member = 0; member < 4; ++member) { /* each of these members changes the random bits */
    switchback_quantize_args other = args;
    if (member == 0) other.rounding_seed = 2;
    if (member == 1) other.rounding_stream = 1;
    if (member == 2) other.rounding_step = 1;
    if (member == 3) other.rounding_row0 = 1;
    CHECK_OK(switchback_quantize(context, &other));
    CHECK(memcmp(got, first, sizeof(got)) != 0);
  }
  args = switchback_quantize_args_of(&mx);
  args.q_t = mblocks;
  args.absmax_t = got_absmax;
  args.block_rows = block_rows;
  args.stochastic = 1;
  CHECK_OK(switchback_quantize(context, &args));
  ref_quantize_columnwise_transpose(x, rows, cols, want_t, want_absmax);
  for (int c = 0; c < cols; ++c)
    for (int r = 0; r < rows; ++r)
      CHECK(abs(blocks[c * padded + r] - want_t[c * rows + r]) <= 1);
}

/* Refused calls: combinations that one pass cannot compute, and operands that no result reads. */
static void refused(void) {
  start();
  switchback_quantize_args args = with_rows(&mx);
  args.q_scale = SWITCHBACK_SCALE_GLOBAL;
  args.column_sums = sums;
  CHECK(switchback_quantize(context, &args) == SWITCHBACK_UNSUPPORTED);
  CHECK(strstr(switchback_last_error(), "use several calls") != NULL);
  args = switchback_quantize_args_of(&mx);
  CHECK_INVALID("no result is requested", switchback_quantize(context, &args));
  args.value = my;
  CHECK_INVALID("value is given without an activation", switchback_quantize(context, &args));
  args = with_rows(&mx);
  args.g = mx;
  CHECK_INVALID("g is given without an activation", switchback_quantize(context, &args));
  args = switchback_quantize_args_of(&mx);
  args.column_sums = sums;
  args.rotation = 4;
  CHECK_INVALID("rotation is given without codes", switchback_quantize(context, &args));
  args.rotation = 0;
  args.stochastic = 1;
  CHECK_INVALID("stochastic is given without codes", switchback_quantize(context, &args));
  args.stochastic = 0;
  args.column_scales = sums;
  CHECK_INVALID("column_scales is given without q", switchback_quantize(context, &args));
  CHECK(untouched(got, sizeof(got)) && untouched(got_absmax, sizeof(got_absmax)));
  /* A matrix without elements needs no work, and the call succeeds. */
  const switchback_matrix empty = matrix_of(NULL, SWITCHBACK_F32, 0, cols);
  args = switchback_quantize_args_of(&empty);
  CHECK_OK(switchback_quantize(context, &args));
}

static void rotations(int group) {
  start();
  memset(x, 0, sizeof(x));
  /* Rotating this row gives the first column of the rotation's matrix. Each base-4 digit of r
   * contributes a factor: 1/2, or -1/2 where the digits of r and c add up to 3. */
  x[0] = 1.0f;
  rotated(&mx, group, &my);
  for (int r = 0; r < group; ++r) {
    const float low = r % 4 == 3 ? -0.5f : 0.5f, high = r / 4 == 3 ? -0.5f : 0.5f;
    CHECK(y[r] == (group == 4 ? low : low * high));
  }
  start();
  rotated(&mx, group, &my);
  switchback_quantize_args args = with_rows(&mx);
  args.rotation = group;
  CHECK_OK(switchback_quantize(context, &args));
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
  stochastic();
  refused();
  fingerprints();
  switchback_context_destroy(context);
}
