/* SPDX-License-Identifier: Apache-2.0 */
/* The quantize operations through the C ABI: each argument is passed to the right place. The suites
 * of tests/quant check the values. */
#include <math.h>

#include "capi/harness.h"
#include "capi/reference.h"

enum { M = 2, K = 4, BLOCK = 128 };

static switchback_context* context;
static float x[M * K], y[M * K];
static int8_t q[M * K], q_t[K * M], blocks[K * BLOCK];
static float absmax[M], absmax_t[K], sums[K];
static switchback_matrix mx, my, mq, mq_t;

/* The results for x, whose columns sum up to column_sums. */
static const int8_t of_rows[M * K] = {32, -64, 127, 0, 127, 127, 0, 0}; /* 31.75 and -63.5 */
static const float row_scales[M] = {4, 3};
static const int8_t of_columns[K * M] = {42, 127, -85, 127, 127, 0, 0, 0}; /* 42.3 and -84.7 */
static const float column_absmax[K] = {3, 3, 4, 0};
static const int8_t global[M * K] = {32, -64, 127, 0, 95, 95, 0, 0}; /* 95.25 */
static const int8_t global_t[K * M] = {32, 95, -64, 95, 127, 0, 0, 0};
static const float column_sums[K] = {4, 1, 4, 0};

static void start(void) {
  static const float values[M * K] = {1, -2, 4, 0, 3, 3, 0, 0};
  memcpy(x, values, sizeof(x));
  mark(q, sizeof(q));
  mark(q_t, sizeof(q_t));
  mark(absmax, sizeof(absmax));
  mark(absmax_t, sizeof(absmax_t));
  mx = f32(x, M, K);
  my = f32(y, M, K);
  mq = s8(q, M, K);
  mq_t = s8(q_t, K, M);
}

/* Arguments for codes of the rows of x. */
static switchback_quantize_args rows_of_x(void) {
  switchback_quantize_args args = switchback_quantize_args_of(&mx);
  args.q = mq;
  args.absmax = absmax;
  return args;
}

static void one_result(void) {
  start();
  CHECK_OK(switchback_quantize_rowwise(context, &mx, &mq, absmax));
  CHECK(SAME(q, of_rows) && SAME(absmax, row_scales));
  CHECK_OK(switchback_dequantize_rowwise(context, &mq, absmax, &my));
  for (int i = 0; i < M * K; ++i)
    CHECK(y[i] == absmax[i / K] * ((float)q[i] / 127.0f));
  CHECK_OK(switchback_quantize_columnwise_transpose(context, &mx, &mq_t, absmax_t));
  CHECK(SAME(q_t, of_columns) && SAME(absmax_t, column_absmax));

  start();
  CHECK_OK(switchback_quantize_global(context, &mx, &mq, absmax));
  CHECK(SAME(q, global) && absmax[0] == 4 && untouched(absmax + 1, sizeof(float)));
  CHECK_OK(switchback_quantize_global_transpose(context, &mx, &mq_t, absmax_t));
  CHECK(SAME(q_t, global_t) && absmax_t[0] == 4 && untouched(absmax_t + 1, sizeof(float)));

  switchback_quantize_args cast = switchback_quantize_args_of(&mx);
  cast.q = mq;
  cast.q_scale = SWITCHBACK_SCALE_NONE;
  CHECK_OK(switchback_quantize(context, &cast));
  for (int i = 0; i < M * K; ++i)
    CHECK(q[i] == (int8_t)x[i]);
}

static void several_results(void) {
  start();
  switchback_quantize_args args = rows_of_x();
  args.q_t = mq_t;
  args.absmax_t = absmax_t;
  CHECK_OK(switchback_quantize(context, &args));
  CHECK(SAME(q, of_rows) && SAME(absmax, row_scales));
  CHECK(SAME(q_t, of_columns) && SAME(absmax_t, column_absmax));

  start();
  args.q_t = s8(blocks, K, BLOCK);
  args.block_rows = BLOCK;
  args.column_sums = sums;
  for (args.accumulate = 0; args.accumulate < 2; ++args.accumulate) {
    CHECK_OK(switchback_quantize(context, &args));
    for (int k = 0; k < K; ++k)
      CHECK(sums[k] == (float)(1 + args.accumulate) * column_sums[k]);
  }
  CHECK(SAME(q, of_rows) && SAME(absmax_t, column_absmax));
  for (int k = 0; k < K; ++k) /* all rows are in one block, with zeros after them */
    CHECK(memcmp(blocks + k * BLOCK, of_columns + k * M, M) == 0 && blocks[k * BLOCK + M] == 0);

  start(); /* codes with the global scale share absmax */
  args = rows_of_x();
  args.q_t = mq_t;
  args.q_scale = args.q_t_scale = SWITCHBACK_SCALE_GLOBAL;
  CHECK_OK(switchback_quantize(context, &args));
  CHECK(SAME(q, global) && SAME(q_t, global_t) && absmax[0] == 4);

  const float scales[K] = {1, 2, 1, 1};
  static const int8_t scaled[M * K] = {32, -127, 127, 0, 64, 127, 0, 0}; /* 31.75 and 63.5 */
  args = rows_of_x();
  args.column_scales = scales;
  CHECK_OK(switchback_quantize(context, &args));
  CHECK(SAME(q, scaled) && absmax[0] == 4 && absmax[1] == 6);
}

/* Each matrix has its own stride. The values 1, -2 and 4 are given in both 16-bit types. */
static void strides_and_types(void) {
  float wide[2 * 5] = {1, -2, 4, 1e30f, 1e30f, 3, 3, 0, 1e30f, 1e30f};
  switchback_matrix part = f32(wide, 2, 3), codes = s8(q, 2, 3);
  part.stride = 5;
  codes.stride = 4;
  start();
  CHECK_OK(switchback_quantize_rowwise(context, &part, &codes, absmax));
  CHECK(memcmp(q, of_rows, 3) == 0 && memcmp(q + 4, of_rows + 4, 3) == 0);
  CHECK(untouched(q + 3, 1) && untouched(q + 7, 1) && SAME(absmax, row_scales));
  uint16_t bits[2][3] = {{0x3C00, 0xC000, 0x4400}, {0x3F80, 0xC000, 0x4080}};
  codes.rows = 1;
  for (int type = 0; type < 2; ++type) {
    part = matrix_of(bits[type], type == 0 ? SWITCHBACK_F16 : SWITCHBACK_BF16, 1, 3);
    start();
    CHECK_OK(switchback_quantize_rowwise(context, &part, &codes, absmax));
    CHECK(memcmp(q, of_rows, 3) == 0 && absmax[0] == 4);
  }
}

/* The known values at 1 of GELU and of its derivative, in both forms. */
static void activations(int32_t activation, double value, double derivative) {
  float g[M * K] = {1, 1, 1, 1, 2, 2, 2, 2};
  start();
  switchback_quantize_args args = rows_of_x();
  args.activation = activation;
  args.value = my;
  CHECK_OK(switchback_quantize(context, &args));
  CHECK(fabs(y[0] - value) < 1e-6 && q[2] == 127 && absmax[0] == y[2]);
  x[K] = 1;
  args.g = f32(g, M, K);
  args.column_sums = sums;
  CHECK_OK(switchback_quantize(context, &args));
  CHECK(fabs(y[0] - derivative) < 1e-6 && fabs(y[K] - 2 * derivative) < 1e-6);
  CHECK(sums[0] == y[0] + y[K] && absmax[1] == y[K] && q[K] == 127);
}

static void rotations(void) {
  start();
  x[1] = x[2] = 0;
  switchback_quantize_args args = switchback_quantize_args_of(&mx);
  args.rotation = 4;
  args.rotated = my;
  CHECK_OK(switchback_quantize(context, &args));
  CHECK(y[0] == 0.5f && y[1] == 0.5f && y[2] == 0.5f && y[3] == -0.5f);
  args = rows_of_x();
  args.rotation = 4;
  CHECK_OK(switchback_quantize(context, &args));
  CHECK(q[0] == 127 && q[1] == 127 && q[2] == 127 && q[3] == -127 && absmax[0] == 0.5f);
}

/* Each rounding member changes the random bits. */
static void stochastic(void) {
  enum { COLS = 256 };
  static float wide[COLS];
  static int8_t nearest[COLS], first[COLS], codes[COLS];
  ref_fill(wide, COLS, 7);
  const switchback_matrix mwide = f32(wide, 1, COLS);
  switchback_quantize_args args = switchback_quantize_args_of(&mwide);
  args.q = s8(nearest, 1, COLS);
  args.absmax = absmax;
  CHECK_OK(switchback_quantize(context, &args));
  args.q.data = first;
  args.stochastic = 1;
  args.rounding_seed = 1;
  CHECK_OK(switchback_quantize(context, &args));
  CHECK(!SAME(first, nearest));
  for (int i = 0; i < COLS; ++i)
    CHECK(first[i] - nearest[i] <= 1 && nearest[i] - first[i] <= 1);
  args.q.data = codes;
  for (int member = 0; member < 5; ++member) {
    switchback_quantize_args other = args;
    if (member == 1) other.rounding_seed = 2;
    if (member == 2) other.rounding_stream = 1;
    if (member == 3) other.rounding_step = 1;
    if (member == 4) other.rounding_row0 = 1;
    CHECK_OK(switchback_quantize(context, &other));
    CHECK(SAME(codes, first) == (member == 0));
  }
}

/* Refused calls: combinations that one pass cannot compute, and operands that no result reads. */
static void refused(void) {
  start();
  switchback_quantize_args args = rows_of_x();
  args.q_scale = SWITCHBACK_SCALE_GLOBAL;
  args.column_sums = sums;
  CHECK_FAILS(SWITCHBACK_UNSUPPORTED, "use several calls", switchback_quantize(context, &args));
  args = switchback_quantize_args_of(&mx);
  CHECK_INVALID("no result is requested", switchback_quantize(context, &args));
  args.value = my;
  CHECK_INVALID("value is given without an activation", switchback_quantize(context, &args));
  args = rows_of_x();
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
  args = switchback_quantize_args_of(&mx);
  args.rotation = 4;
  args.rotated = f32(y, M, 3);
  CHECK_INVALID("rotated is [2,3]", switchback_quantize(context, &args));
  CHECK(untouched(q, sizeof(q)) && untouched(absmax, sizeof(absmax)));
  /* A matrix without elements needs no work, and the call succeeds. */
  const switchback_matrix empty = f32(NULL, 0, K);
  args = switchback_quantize_args_of(&empty);
  CHECK_OK(switchback_quantize(context, &args));
}

static void fingerprints(void) {
  uint64_t before[2], after[2];
  start();
  CHECK_OK(switchback_fingerprint(context, &mx, before));
  CHECK_OK(switchback_fingerprint(context, &mx, after));
  CHECK(SAME(before, after));
  x[K] += 1;
  CHECK_OK(switchback_fingerprint(context, &mx, after));
  CHECK(before[0] != after[0] && before[1] != after[1]);
}

void quant_tests(void) {
  context = cpu_context(2);
  one_result();
  several_results();
  strides_and_types();
  activations(SWITCHBACK_GELU_TANH, 0.84119199, 1.08296408);
  activations(SWITCHBACK_GELU_ERF, 0.84134475, 1.08331547);
  rotations();
  stochastic();
  refused();
  fingerprints();
  switchback_context_destroy(context);
}
