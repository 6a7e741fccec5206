/* SPDX-License-Identifier: Apache-2.0 */
/* Grouped operations through the C ABI: each argument is passed to the right place, and slots that
 * no group uses stay untouched. The suites of tests/grouped and tests/linear check the values. */
#include "capi/harness.h"
#include "capi/reference.h"

enum { G = 3, M = 20, T = 11, K = 40, N = 24, USED = 18 };

static switchback_context* context;
/* Ends of three groups in M slots: the second group is empty, and two slots are unused. */
static const int32_t ends[G] = {7, 7, USED};
static int32_t index_of[M];
static float x[T * K], in_slots[M * K], w[G * N * K], bias[G * N], g[M * N];

static void make_data(void) {
  ref_fill(x, T * K, 1);
  ref_fill(w, G * N * K, 2);
  ref_fill(bias, G * N, 3);
  ref_fill(g, M * N, 4);
  for (int s = 0; s < M; ++s) {
    index_of[s] = s < USED ? (s * 5) % T : 1000; /* the index of an unused slot is not read */
    if (s < USED) memcpy(in_slots + s * K, x + index_of[s] * K, K * sizeof(float));
  }
}

static int begin_of(int group) {
  return group == 0 ? 0 : ends[group - 1];
}

static switchback_groups packed_groups(const int32_t* row_index) {
  return (switchback_groups){
      .struct_size = sizeof(switchback_groups), .count = G, .ends = ends, .row_index = row_index};
}

static void quantize_gathers(void) {
  static int8_t got[M * K], want[USED * K];
  static float got_absmax[M], want_absmax[USED];
  const switchback_groups groups = packed_groups(index_of);
  const switchback_matrix mx = f32(x, T, K), mgot = s8(got, M, K);
  mark(got, sizeof(got));
  mark(got_absmax, sizeof(got_absmax));
  CHECK_OK(switchback_grouped_quantize_rowwise(context, &mx, &groups, &mgot, got_absmax));
  ref_quantize_rowwise(in_slots, USED, K, want, want_absmax);
  CHECK(SAME(want, got) && SAME(want_absmax, got_absmax));
  CHECK(untouched(got + USED * K, (M - USED) * K));
  CHECK(untouched(got_absmax + USED, (M - USED) * sizeof(float)));
}

/* Strided groups that read the same rows, each with its own columns: independent models whose
 * inputs are next to each other. */
static void quantize_reads_columns(void) {
  enum { ROWS = 4, MODELS = 3, COLS = 10 };
  static int8_t got[MODELS * ROWS * COLS], want[ROWS * COLS];
  static float got_absmax[MODELS * ROWS], want_absmax[ROWS];
  static const int32_t used[MODELS] = {4, 0, 3};
  const switchback_groups groups = {.struct_size = sizeof(groups),
                                    .count = MODELS,
                                    .rows_of = used,
                                    .row_stride = ROWS,
                                    .column_stride = COLS};
  const switchback_matrix mx = f32(x, ROWS, K), mgot = s8(got, MODELS * ROWS, COLS);
  const switchback_matrix mwant = s8(want, ROWS, COLS);
  mark(got, sizeof(got));
  CHECK_OK(switchback_grouped_quantize_rowwise(context, &mx, &groups, &mgot, got_absmax));
  for (int m = 0; m < MODELS; ++m) {
    switchback_matrix part = f32(x + m * COLS, ROWS, COLS);
    part.stride = K;
    CHECK_OK(switchback_quantize_rowwise(context, &part, &mwant, want_absmax));
    const size_t bytes = (size_t)used[m] * COLS;
    CHECK(memcmp(got + m * ROWS * COLS, want, bytes) == 0);
    CHECK(memcmp(got_absmax + m * ROWS, want_absmax, (size_t)used[m] * sizeof(float)) == 0);
    CHECK(untouched(got + m * ROWS * COLS + bytes, (size_t)(ROWS - used[m]) * COLS));
  }
}

/* Products with b, which has a scale for each group, and with b packed, a scale for each row. */
static void products(void) {
  static int8_t a[M * K], b[G * N * K];
  static float absmax_a[M], absmax_b[G * N], d[M * N], want[USED * N];
  ref_quantize_rowwise(in_slots, M, K, a, absmax_a);
  ref_quantize_rowwise(w, G * N, K, b, absmax_b);
  const switchback_matrix mb = s8(b, G * N, K);
  switchback_packed_weight* packed = NULL;
  CHECK_OK(switchback_packed_weight_create(&packed));
  CHECK_OK(switchback_pack_weight(context, &mb, G, packed, NULL));
  const switchback_groups groups = packed_groups(index_of); /* products do not read the index */
  for (int is_packed = 0; is_packed < 2; ++is_packed) {
    const int scales = is_packed ? N : 1; /* of each group */
    for (int group = 0; group < G; ++group) {
      const int begin = begin_of(group);
      ref_gemm_dequantize(a + begin * K, b + group * N * K, ends[group] - begin, N, K,
                          absmax_a + begin, absmax_b + group * scales, scales, bias + group * N,
                          want + begin * N);
    }
    switchback_gemm_args args = {.struct_size = sizeof(args),
                                 .a = s8(a, M, K),
                                 .d = f32(d, M, N),
                                 .absmax_a = absmax_a,
                                 .absmax_b = absmax_b,
                                 .absmax_b_count = G * scales,
                                 .bias = bias,
                                 .groups = &groups};
    if (!is_packed) args.b = mb;
    if (is_packed) args.packed_b = packed;
    mark(d, sizeof(d));
    CHECK_OK(switchback_gemm(context, &args));
    CHECK(SAME(want, d) && untouched(d + USED * N, (M - USED) * N * sizeof(float)));
  }
  switchback_packed_weight_destroy(packed);
}

/* Strided groups whose int32 sums are next to each other in the rows of d. */
static void products_write_columns(void) {
  enum { ROWS = 3 };
  static int8_t a[G * ROWS * K], b[G * N * K];
  static int32_t plain[ROWS * N], strided[ROWS * G * N];
  for (int i = 0; i < G * ROWS * K; ++i)
    a[i] = (int8_t)(i * 37 % 255 - 127);
  for (int i = 0; i < G * N * K; ++i)
    b[i] = (int8_t)(i * 101 % 255 - 127);
  const switchback_groups groups = {.struct_size = sizeof(groups), .count = G, .row_stride = ROWS};
  const switchback_gemm_args args = {.struct_size = sizeof(args),
                                     .a = s8(a, G * ROWS, K),
                                     .b = s8(b, G * N, K),
                                     .d = matrix_of(strided, SWITCHBACK_S32, ROWS, G * N),
                                     .groups = &groups,
                                     .d_column_stride = N};
  CHECK_OK(switchback_gemm(context, &args));
  for (int group = 0; group < G; ++group) {
    ref_gemm_s8s8s32(a + group * ROWS * K, b + group * N * K, ROWS, N, K, plain);
    for (int r = 0; r < ROWS; ++r)
      CHECK(memcmp(plain + r * N, strided + (r * G + group) * N, N * sizeof(int32_t)) == 0);
  }
}

/* Y and dW of each group; the operands are small integers, so that their sums are exact. */
static void floating_products(void) {
  static float y[M * N], want[USED * N], dw[G * N * K], want_dw[G * N * K];
  const switchback_groups groups = packed_groups(NULL);
  switchback_gemm_standard_args args = {.struct_size = sizeof(args),
                                        .a = f32(in_slots, M, K),
                                        .b = f32(w, G * N, K),
                                        .d = f32(y, M, N),
                                        .transpose_b = 1,
                                        .bias = bias,
                                        .groups = &groups};
  mark(y, sizeof(y));
  CHECK_OK(switchback_gemm_standard(context, &args));
  args.a = f32(g, M, N);
  args.b = f32(in_slots, M, K);
  args.d = f32(dw, G * N, K);
  args.transpose_a = 1;
  args.transpose_b = 0;
  args.bias = NULL;
  CHECK_OK(switchback_gemm_standard(context, &args));
  for (int group = 0; group < G; ++group) {
    const int begin = begin_of(group), rows = ends[group] - begin;
    ref_product(in_slots + begin * K, K, 1, w + group * N * K, K, 1, rows, N, K, want + begin * N);
    for (int i = 0; i < rows * N; ++i)
      want[begin * N + i] += bias[group * N + i % N];
    ref_product(g + begin * N, 1, N, in_slots + begin * K, 1, K, N, K, rows,
                want_dw + group * N * K);
  }
  CHECK(SAME(want, y) && untouched(y + USED * N, (M - USED) * N * sizeof(float)));
  CHECK(SAME(want_dw, dw));
}

static void combining(void) {
  enum { ROWS = 2, SLOTS = 3, COLS = 2 };
  static float y[4 * COLS] = {1, 2, 10, 20, 100, 200, 1000, 2000};
  static int32_t slots[ROWS * SLOTS] = {3, -1, 0, -1, -5, -1};
  static float weights[ROWS * SLOTS] = {0.5f, 7, 2, 1, 1, 1};
  static float out[ROWS * COLS];
  const switchback_matrix my = f32(y, 4, COLS), mw = f32(weights, ROWS, SLOTS);
  const switchback_matrix ms = matrix_of(slots, SWITCHBACK_S32, ROWS, SLOTS);
  const switchback_matrix mo = f32(out, ROWS, COLS);
  CHECK_OK(switchback_combine(context, &my, &ms, &mw, &mo));
  CHECK(out[0] == 502 && out[1] == 1004 && out[2] == 0 && out[3] == 0);
  CHECK_OK(switchback_combine(context, &my, &ms, NULL, &mo));
  CHECK(out[0] == 1001 && out[1] == 2002 && out[2] == 0 && out[3] == 0);
}

static float y[M * N], dx[M * K], dw[G * N * K], db[G * N];
static float one_y[USED * N], one_dx[USED * K], one_dw[G * N * K], one_db[G * N];

/* Computes the expected results, and the codes and scales of the weight, with a layer for each
 * group, which is called with the group's rows alone. */
static void one_after_the_other(int32_t mode, int8_t* codes, float* absmax) {
  const int scales = mode == SWITCHBACK_GLOBAL ? 1 : N;
  for (int group = 0; group < G; ++group) {
    const int begin = begin_of(group), rows = ends[group] - begin;
    switchback_linear* layer = layer_of(context, linear_options(K, N, mode));
    const switchback_matrix mw = f32(w + group * N * K, N, K), mb = f32(bias + group * N, 1, N);
    CHECK_OK(switchback_linear_set_weight(layer, &mw, &mb));
    const switchback_matrix mx = f32(in_slots + begin * K, rows, K);
    const switchback_matrix my = f32(one_y + begin * N, rows, N);
    CHECK_OK(switchback_linear_forward(layer, &mx, &my, SWITCHBACK_SAVE_COPY, NULL));
    const switchback_linear_grads grads = linear_grads(
        rows, K, N, g + begin * N, one_dx + begin * K, one_dw + group * N * K, one_db + group * N);
    CHECK_OK(switchback_linear_backward(layer, &grads, NULL));
    CHECK_OK(switchback_linear_prepare_for_eval(layer));
    const switchback_matrix mcodes = s8(codes + group * N * K, N, K);
    CHECK_OK(switchback_linear_quantized_weight(layer, &mcodes, absmax + group * scales, scales));
    switchback_linear_destroy(layer);
  }
}

/* Checks the forward of a layer, and, unless it is prepared for eval, its backward. */
static void check_step(switchback_linear* layer, int32_t save, int is_for_eval) {
  const switchback_groups groups = packed_groups(index_of);
  const switchback_matrix mx = f32(x, T, K), my = f32(y, M, N);
  mark(y, sizeof(y));
  CHECK_OK(switchback_linear_forward_groups(layer, &groups, &mx, &my, save));
  CHECK(SAME(one_y, y) && untouched(y + USED * N, (M - USED) * N * sizeof(float)));
  if (is_for_eval) return;
  switchback_linear_grads grads = linear_grads(M, K, N, g, dx, dw, db);
  grads.dw.rows = G * N;
  grads.db.rows = G;
  mark(dx, sizeof(dx));
  if (save == SWITCHBACK_SAVE_CALLER) {
    CHECK_OK(switchback_linear_backward_groups(layer, &grads, &groups, &mx));
  } else {
    CHECK_OK(switchback_linear_backward(layer, &grads, NULL));
  }
  CHECK(SAME(one_dx, dx) && untouched(dx + USED * K, (M - USED) * K * sizeof(float)));
  CHECK(SAME(one_dw, dw) && SAME(one_db, db));
  grads.dw.data = NULL; /* without dw the backward does not read x */
  mark(dx, sizeof(dx));
  CHECK_OK(switchback_linear_backward_groups(layer, &grads, &groups, NULL));
  CHECK(SAME(one_dx, dx));
}

/* A step, and the weight's codes of all groups: read from the layer, given to another, shared. */
static void layers(int32_t mode) {
  static int8_t codes[G * N * K], want[G * N * K];
  static float absmax[G * N], want_absmax[G * N];
  const int64_t count = mode == SWITCHBACK_GLOBAL ? G : G * N;
  one_after_the_other(mode, want, want_absmax);
  switchback_linear_options options = linear_options(K, N, mode);
  options.groups = G;
  switchback_linear* layer = layer_of(context, options);
  const switchback_matrix mw = f32(w, G * N, K), mb = f32(bias, G, N);
  CHECK_OK(switchback_linear_set_weight(layer, &mw, &mb));
  check_step(layer, SWITCHBACK_SAVE_BORROW, 0);
  check_step(layer, SWITCHBACK_SAVE_CALLER, 0);

  const switchback_matrix mcodes = s8(codes, G * N, K);
  CHECK_OK(switchback_linear_prepare_for_eval(layer));
  CHECK_OK(switchback_linear_quantized_weight(layer, &mcodes, absmax, count));
  CHECK(SAME(codes, want) && memcmp(absmax, want_absmax, (size_t)count * sizeof(float)) == 0);
  switchback_linear* of_codes = layer_of(context, options);
  CHECK_INVALID("absmax",
                switchback_linear_set_quantized_weight(of_codes, &mcodes, absmax, count - 1, &mb));
  CHECK_OK(switchback_linear_set_quantized_weight(of_codes, &mcodes, absmax, count, &mb));
  switchback_linear* shared = NULL;
  CHECK_OK(switchback_linear_share(layer, context, &shared));
  check_step(of_codes, SWITCHBACK_SAVE_NOTHING, 1);
  check_step(shared, SWITCHBACK_SAVE_NOTHING, 1);
  switchback_linear_destroy(layer);
  switchback_linear_destroy(of_codes);
  switchback_linear_destroy(shared);
}

void grouped_tests(void) {
  context = cpu_context(2);
  make_data();
  quantize_gathers();
  quantize_reads_columns();
  products();
  products_write_columns();
  floating_products();
  combining();
  layers(SWITCHBACK_ROWWISE);
  layers(SWITCHBACK_GLOBAL);
  switchback_context_destroy(context);
}
