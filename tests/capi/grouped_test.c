/* SPDX-License-Identifier: Apache-2.0 */
/* Grouped operations through the C ABI: every result has the bits of separate calls for each
 * group, and slots that no group uses stay untouched. */
#include "capi/harness.h"

enum { G = 3, M = 20, T = 11, K = 40, N = 24, USED = 18 };

static switchback_context* context;
/* Ends of three groups in M slots: the second group is empty, and two slots are unused. */
static const int32_t ends[G] = {7, 7, USED};
static int32_t index_of[M];
static float x[T * K], in_slots[M * K], w[G * N * K], bias[G * N], g[M * N];
static uint32_t seed = 1;

static float random_float(void) {
  seed = seed * 1664525u + 1013904223u;
  return (float)((int32_t)(seed >> 8) - (1 << 23)) / (float)(1 << 23);
}

static void make_data(void) {
  for (int i = 0; i < T * K; ++i)
    x[i] = random_float();
  for (int i = 0; i < G * N * K; ++i)
    w[i] = random_float();
  for (int i = 0; i < G * N; ++i)
    bias[i] = random_float();
  for (int i = 0; i < M * N; ++i)
    g[i] = random_float();
  memset(in_slots, 0, sizeof(in_slots));
  for (int s = 0; s < M; ++s) {
    index_of[s] = s < USED ? (s * 5) % T : 1000; /* the index of an unused slot is not read */
    if (s < USED) memcpy(in_slots + s * K, x + index_of[s] * K, K * sizeof(float));
  }
}

static int begin_of(int group) {
  return group == 0 ? 0 : ends[group - 1];
}

static switchback_groups packed_groups(const int32_t* row_index) {
  switchback_groups groups;
  memset(&groups, 0, sizeof(groups));
  groups.struct_size = sizeof(groups);
  groups.count = G;
  groups.ends = ends;
  groups.row_index = row_index;
  return groups;
}

static void quantize_gathers(void) {
  static int8_t got[M * K], want[M * K];
  static float got_absmax[M], want_absmax[M];
  const switchback_groups groups = packed_groups(index_of);
  const switchback_matrix mx = matrix_of(x, SWITCHBACK_F32, T, K);
  const switchback_matrix ms = matrix_of(in_slots, SWITCHBACK_F32, USED, K);
  const switchback_matrix mgot = matrix_of(got, SWITCHBACK_S8, M, K);
  const switchback_matrix mwant = matrix_of(want, SWITCHBACK_S8, USED, K);
  mark(got, sizeof(got));
  mark(got_absmax, sizeof(got_absmax));
  CHECK_OK(switchback_grouped_quantize_rowwise(context, &mx, &groups, &mgot, got_absmax));
  CHECK_OK(switchback_quantize_rowwise(context, &ms, &mwant, want_absmax));
  CHECK(memcmp(got, want, USED * K) == 0);
  CHECK(memcmp(got_absmax, want_absmax, USED * sizeof(float)) == 0);
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
  switchback_groups groups;
  memset(&groups, 0, sizeof(groups));
  groups.struct_size = sizeof(groups);
  groups.count = MODELS;
  groups.rows_of = used;
  groups.row_stride = ROWS;
  groups.column_stride = COLS;
  const switchback_matrix mx = matrix_of(x, SWITCHBACK_F32, ROWS, K);
  const switchback_matrix mgot = matrix_of(got, SWITCHBACK_S8, MODELS * ROWS, COLS);
  const switchback_matrix mwant = matrix_of(want, SWITCHBACK_S8, ROWS, COLS);
  mark(got, sizeof(got));
  CHECK_OK(switchback_grouped_quantize_rowwise(context, &mx, &groups, &mgot, got_absmax));
  for (int m = 0; m < MODELS; ++m) {
    switchback_matrix part = matrix_of(x + m * COLS, SWITCHBACK_F32, ROWS, COLS);
    part.stride = K;
    CHECK_OK(switchback_quantize_rowwise(context, &part, &mwant, want_absmax));
    const size_t bytes = (size_t)used[m] * COLS;
    CHECK(memcmp(got + m * ROWS * COLS, want, bytes) == 0);
    CHECK(memcmp(got_absmax + m * ROWS, want_absmax, (size_t)used[m] * sizeof(float)) == 0);
    CHECK(untouched(got + m * ROWS * COLS + bytes, (size_t)(ROWS - used[m]) * COLS));
  }
}

static void products(void) {
  static int8_t a[M * K], b[G * N * K];
  static float absmax_a[M], absmax_b[G * N], d[M * N], want[M * N];
  static int32_t sums[M * N], want_sums[M * N];
  const switchback_matrix ms = matrix_of(in_slots, SWITCHBACK_F32, M, K);
  const switchback_matrix mw = matrix_of(w, SWITCHBACK_F32, G * N, K);
  const switchback_matrix ma = matrix_of(a, SWITCHBACK_S8, M, K);
  const switchback_matrix mb = matrix_of(b, SWITCHBACK_S8, G * N, K);
  CHECK_OK(switchback_quantize_rowwise(context, &ms, &ma, absmax_a));
  CHECK_OK(switchback_quantize_rowwise(context, &mw, &mb, absmax_b));
  switchback_packed_weight* packed = NULL;
  CHECK_OK(switchback_packed_weight_create(&packed));
  CHECK_OK(switchback_pack_weight(context, &mb, G, packed, NULL));
  const switchback_groups groups = packed_groups(index_of); /* products do not read the index */
  for (int one_scale = 0; one_scale < 2; ++one_scale) {
    for (int group = 0; group < G; ++group) {
      const int begin = begin_of(group), rows = ends[group] - begin;
      switchback_gemm_args one;
      memset(&one, 0, sizeof(one));
      one.struct_size = sizeof(one);
      one.a = matrix_of(a + begin * K, SWITCHBACK_S8, rows, K);
      one.b = matrix_of(b + group * N * K, SWITCHBACK_S8, N, K);
      one.d = matrix_of(want + begin * N, SWITCHBACK_F32, rows, N);
      one.absmax_a = absmax_a + begin;
      one.absmax_b = absmax_b + (one_scale ? group : group * N);
      one.absmax_b_count = one_scale ? 1 : N;
      one.bias = bias + group * N;
      CHECK_OK(switchback_gemm(context, &one));
      const switchback_matrix s32 = matrix_of(want_sums + begin * N, SWITCHBACK_S32, rows, N);
      CHECK_OK(switchback_gemm_s8s8s32(context, &one.a, &one.b, &s32));
    }
    for (int is_packed = 0; is_packed < 2; ++is_packed) {
      switchback_gemm_args args;
      memset(&args, 0, sizeof(args));
      args.struct_size = sizeof(args);
      args.a = ma;
      if (!is_packed) args.b = mb;
      if (is_packed) args.packed_b = packed;
      args.d = matrix_of(d, SWITCHBACK_F32, M, N);
      args.absmax_a = absmax_a;
      args.absmax_b = absmax_b;
      args.absmax_b_count = one_scale ? G : G * N;
      args.bias = bias;
      args.groups = &groups;
      mark(d, sizeof(d));
      CHECK_OK(switchback_gemm(context, &args));
      CHECK(memcmp(d, want, USED * N * sizeof(float)) == 0);
      CHECK(untouched(d + USED * N, (M - USED) * N * sizeof(float)));
      args.d = matrix_of(sums, SWITCHBACK_S32, M, N);
      args.absmax_a = args.absmax_b = NULL;
      args.bias = NULL;
      mark(sums, sizeof(sums));
      CHECK_OK(switchback_gemm(context, &args));
      CHECK(memcmp(sums, want_sums, USED * N * sizeof(int32_t)) == 0);
      CHECK(untouched(sums + USED * N, (M - USED) * N * sizeof(int32_t)));
    }
  }
  switchback_packed_weight_destroy(packed);
}

/* Strided groups whose results are next to each other in the rows of d. */
static void products_write_columns(void) {
  enum { ROWS = 3 };
  static int8_t a[G * ROWS * K], b[G * N * K];
  static int32_t plain[G * ROWS * N], beside[ROWS * G * N];
  for (int i = 0; i < G * ROWS * K; ++i)
    a[i] = (int8_t)(i * 37 % 255 - 127);
  for (int i = 0; i < G * N * K; ++i)
    b[i] = (int8_t)(i * 101 % 255 - 127);
  switchback_gemm_args args;
  memset(&args, 0, sizeof(args));
  args.struct_size = sizeof(args);
  args.a = matrix_of(a, SWITCHBACK_S8, G * ROWS, K);
  args.b = matrix_of(b, SWITCHBACK_S8, G * N, K);
  args.d = matrix_of(plain, SWITCHBACK_S32, G * ROWS, N);
  switchback_groups groups;
  memset(&groups, 0, sizeof(groups));
  groups.struct_size = sizeof(groups);
  groups.count = G;
  groups.row_stride = ROWS;
  args.groups = &groups;
  CHECK_OK(switchback_gemm(context, &args));
  args.d = matrix_of(beside, SWITCHBACK_S32, ROWS, G * N);
  args.d_column_stride = N;
  CHECK_OK(switchback_gemm(context, &args));
  int equal = 1;
  for (int group = 0; group < G; ++group)
    for (int r = 0; r < ROWS; ++r)
      equal &= memcmp(plain + (group * ROWS + r) * N, beside + (r * G + group) * N,
                      N * sizeof(int32_t)) == 0;
  CHECK(equal);
}

static void floating_products(void) {
  static float y[M * N], want[M * N], dw[G * N * K], want_dw[G * N * K];
  switchback_gemm_standard_args args;
  memset(&args, 0, sizeof(args));
  args.struct_size = sizeof(args);
  args.a = matrix_of(in_slots, SWITCHBACK_F32, M, K);
  args.b = matrix_of(w, SWITCHBACK_F32, G * N, K);
  args.d = matrix_of(y, SWITCHBACK_F32, M, N);
  args.transpose_b = 1;
  args.bias = bias;
  args.engine = "reference";
  const switchback_groups groups = packed_groups(NULL);
  args.groups = &groups;
  mark(y, sizeof(y));
  CHECK_OK(switchback_gemm_standard(context, &args));
  CHECK(untouched(y + USED * N, (M - USED) * N * sizeof(float)));
  switchback_gemm_standard_args weight_args = args;
  weight_args.a = matrix_of(g, SWITCHBACK_F32, M, N);
  weight_args.b = matrix_of(in_slots, SWITCHBACK_F32, M, K);
  weight_args.d = matrix_of(dw, SWITCHBACK_F32, G * N, K);
  weight_args.transpose_a = 1;
  weight_args.transpose_b = 0;
  weight_args.bias = NULL;
  CHECK_OK(switchback_gemm_standard(context, &weight_args));
  for (int group = 0; group < G; ++group) {
    const int begin = begin_of(group), rows = ends[group] - begin;
    switchback_gemm_standard_args one;
    memset(&one, 0, sizeof(one));
    one.struct_size = sizeof(one);
    one.a = matrix_of(in_slots + begin * K, SWITCHBACK_F32, rows, K);
    one.b = matrix_of(w + group * N * K, SWITCHBACK_F32, N, K);
    one.d = matrix_of(want + begin * N, SWITCHBACK_F32, rows, N);
    one.transpose_b = 1;
    one.bias = bias + group * N;
    one.engine = "reference";
    CHECK_OK(switchback_gemm_standard(context, &one));
    one.a = matrix_of(g + begin * N, SWITCHBACK_F32, rows, N);
    one.b = matrix_of(in_slots + begin * K, SWITCHBACK_F32, rows, K);
    one.d = matrix_of(want_dw + group * N * K, SWITCHBACK_F32, N, K);
    one.transpose_a = 1;
    one.transpose_b = 0;
    one.bias = NULL;
    CHECK_OK(switchback_gemm_standard(context, &one));
  }
  CHECK(memcmp(y, want, USED * N * sizeof(float)) == 0);
  CHECK(memcmp(dw, want_dw, sizeof(dw)) == 0);
}

static void combining(void) {
  enum { ROWS = 2, SLOTS = 3, COLS = 2 };
  static float y[4 * COLS] = {1, 2, 10, 20, 100, 200, 1000, 2000};
  static int32_t slots[ROWS * SLOTS] = {3, -1, 0, -1, -5, -1};
  static float weights[ROWS * SLOTS] = {0.5f, 7, 2, 1, 1, 1};
  static float out[ROWS * COLS];
  const switchback_matrix my = matrix_of(y, SWITCHBACK_F32, 4, COLS);
  const switchback_matrix ms = matrix_of(slots, SWITCHBACK_S32, ROWS, SLOTS);
  const switchback_matrix mw = matrix_of(weights, SWITCHBACK_F32, ROWS, SLOTS);
  const switchback_matrix mo = matrix_of(out, SWITCHBACK_F32, ROWS, COLS);
  CHECK_OK(switchback_combine(context, &my, &ms, &mw, &mo));
  CHECK(out[0] == 502 && out[1] == 1004 && out[2] == 0 && out[3] == 0);
  CHECK_OK(switchback_combine(context, &my, &ms, NULL, &mo));
  CHECK(out[0] == 1001 && out[1] == 2002 && out[2] == 0 && out[3] == 0);
}

/* Options of a layer without groups, with which each group's results are compared. */
static switchback_linear_options options_of(int32_t mode) {
  switchback_linear_options options = linear_options(K, N, mode);
  options.engine = mode == SWITCHBACK_STANDARD ? "reference" : NULL;
  return options;
}

static switchback_linear* new_layer(switchback_linear_options options) {
  options.groups = G;
  switchback_linear* layer = NULL;
  CHECK_OK(switchback_linear_create(context, &options, &layer));
  return layer;
}

static void set_weights(switchback_linear* layer) {
  const switchback_matrix mw = matrix_of(w, SWITCHBACK_F32, G * N, K);
  const switchback_matrix mb = matrix_of(bias, SWITCHBACK_F32, G, N);
  CHECK_OK(switchback_linear_set_weight(layer, &mw, &mb));
}

static float y[M * N], dx[M * K], dw[G * N * K], db[G * N];
static float one_y[M * N], one_dx[M * K], one_dw[G * N * K], one_db[G * N];
static float one_eval_dx[M * K]; /* dX of each group's layer after prepare_for_eval */

/* Computes the expected results: a layer for each group, called with the group's rows alone. */
static void one_after_the_other(const switchback_linear_options* options) {
  for (int group = 0; group < G; ++group) {
    const int begin = begin_of(group), rows = ends[group] - begin;
    switchback_linear* layer = NULL;
    CHECK_OK(switchback_linear_create(context, options, &layer));
    const switchback_matrix mw = matrix_of(w + group * N * K, SWITCHBACK_F32, N, K);
    const switchback_matrix mb = matrix_of(bias + group * N, SWITCHBACK_F32, 1, N);
    CHECK_OK(switchback_linear_set_weight(layer, &mw, &mb));
    const switchback_matrix mx = matrix_of(in_slots + begin * K, SWITCHBACK_F32, rows, K);
    const switchback_matrix my = matrix_of(one_y + begin * N, SWITCHBACK_F32, rows, N);
    CHECK_OK(switchback_linear_forward(layer, &mx, &my, SWITCHBACK_SAVE_COPY, NULL));
    switchback_linear_grads grads = linear_grads(rows, K, N, g + begin * N, one_dx + begin * K,
                                                 one_dw + group * N * K, one_db + group * N);
    CHECK_OK(switchback_linear_backward(layer, &grads, NULL));
    CHECK_OK(switchback_linear_prepare_for_eval(layer));
    const switchback_kept_input kept = kept_of(&mx, NULL, 0);
    grads.dx.data = one_eval_dx + begin * K;
    CHECK_OK(switchback_linear_backward(layer, &grads, &kept));
    switchback_linear_destroy(layer);
  }
}

static switchback_linear_grads all_grads(void) {
  switchback_linear_grads grads = linear_grads(M, K, N, g, dx, dw, db);
  grads.dw.rows = G * N;
  grads.db.rows = G;
  return grads;
}

static void mark_gradients(void) {
  mark(dx, sizeof(dx));
  mark(dw, sizeof(dw));
  mark(db, sizeof(db));
}

static void check_output(void) {
  CHECK(memcmp(y, one_y, USED * N * sizeof(float)) == 0);
  CHECK(untouched(y + USED * N, (M - USED) * N * sizeof(float)));
}

static void check_gradients(const float* want_dx) {
  CHECK(memcmp(dx, want_dx, USED * K * sizeof(float)) == 0);
  CHECK(untouched(dx + USED * K, (M - USED) * K * sizeof(float)));
  CHECK(memcmp(dw, one_dw, sizeof(dw)) == 0);
  CHECK(memcmp(db, one_db, sizeof(db)) == 0);
}

static void layer_with(switchback_linear_options options) {
  switchback_linear* layer = new_layer(options);
  set_weights(layer);
  one_after_the_other(&options);
  const switchback_groups groups = packed_groups(index_of);
  const switchback_matrix mx = matrix_of(x, SWITCHBACK_F32, T, K);
  const switchback_matrix my = matrix_of(y, SWITCHBACK_F32, M, N);
  const switchback_linear_grads grads = all_grads();
  for (int32_t save = SWITCHBACK_SAVE_NOTHING; save <= SWITCHBACK_SAVE_CALLER; ++save) {
    mark(y, sizeof(y));
    CHECK_OK(switchback_linear_forward_groups(layer, &groups, &mx, &my, save));
    check_output();
    if (save == SWITCHBACK_SAVE_NOTHING) continue;
    mark_gradients();
    if (save == SWITCHBACK_SAVE_CALLER) {
      CHECK_OK(switchback_linear_backward_groups(layer, &grads, &groups, &mx));
    } else {
      CHECK_OK(switchback_linear_backward(layer, &grads, NULL));
    }
    check_gradients(one_dx);
  }
  switchback_layer_info info = zero_layer_info();
  CHECK_OK(switchback_linear_get_info(layer, &info));
  CHECK(info.saved_for_backward_bytes > 0);
  CHECK((info.cached_weight_bytes > 0) == (options.mode != SWITCHBACK_STANDARD));
  int32_t forward_mode = -1, dx_mode = -1;
  CHECK_OK(switchback_linear_pass_modes(layer, M, SWITCHBACK_SAVE_COPY, &forward_mode, &dx_mode));
  CHECK(forward_mode == options.mode && dx_mode == options.mode);

  CHECK_OK(switchback_linear_weight_updated(layer));
  CHECK_OK(switchback_linear_weight_may_have_changed(layer));
  CHECK_OK(switchback_linear_prepare_for_eval(layer));
  mark(y, sizeof(y));
  CHECK_OK(switchback_linear_forward_groups(layer, &groups, &mx, &my, SWITCHBACK_SAVE_NOTHING));
  check_output();
  CHECK_FAILS(SWITCHBACK_INVALID_STATE, "prepared for eval",
              switchback_linear_backward(layer, &grads, NULL));
  mark_gradients();
  CHECK_OK(switchback_linear_backward_groups(layer, &grads, &groups, &mx));
  check_gradients(one_eval_dx);
  switchback_linear_destroy(layer);
}

static void layers(void) {
  layer_with(options_of(SWITCHBACK_STANDARD));
  layer_with(options_of(SWITCHBACK_ROWWISE));
  layer_with(options_of(SWITCHBACK_ROWWISE_SHARED));
  switchback_linear_options options = options_of(SWITCHBACK_ROWWISE);
  options.rotation = 4;
  layer_with(options);
  options = options_of(SWITCHBACK_ROWWISE);
  options.dw = SWITCHBACK_DW_INT8_BLOCK;
  options.dw_block_rows = 128;
  layer_with(options);
  options.activation = SWITCHBACK_GELU_TANH;
  layer_with(options);
}

/* The weight codes of all groups are read from a layer, given to another layer, and shared. */
static void codes_of_the_weight(int32_t mode) {
  static int8_t codes[G * N * K], want[G * N * K];
  static float absmax[G * N], want_absmax[G * N];
  const int one_scale = mode == SWITCHBACK_GLOBAL;
  const int64_t count = one_scale ? G : G * N;
  const switchback_matrix mcodes = matrix_of(codes, SWITCHBACK_S8, G * N, K);
  const switchback_matrix mb = matrix_of(bias, SWITCHBACK_F32, G, N);
  const switchback_linear_options options = options_of(mode);
  one_after_the_other(&options);
  switchback_linear* layer = new_layer(options);
  set_weights(layer);
  CHECK_OK(switchback_linear_prepare_for_eval(layer));
  CHECK_OK(switchback_linear_quantized_weight(layer, &mcodes, absmax, count));
  for (int group = 0; group < G; ++group) {
    const switchback_matrix mw = matrix_of(w + group * N * K, SWITCHBACK_F32, N, K);
    const switchback_matrix mwant = matrix_of(want + group * N * K, SWITCHBACK_S8, N, K);
    if (one_scale) {
      CHECK_OK(switchback_quantize_global(context, &mw, &mwant, want_absmax + group));
    } else {
      CHECK_OK(switchback_quantize_rowwise(context, &mw, &mwant, want_absmax + group * N));
    }
  }
  CHECK(memcmp(codes, want, sizeof(codes)) == 0);
  CHECK(memcmp(absmax, want_absmax, (size_t)count * sizeof(float)) == 0);

  switchback_linear* of_codes = new_layer(options);
  CHECK_OK(switchback_linear_set_quantized_weight(of_codes, &mcodes, absmax, count, &mb));
  CHECK_INVALID("absmax",
                switchback_linear_set_quantized_weight(of_codes, &mcodes, absmax, count - 1, &mb));
  switchback_linear* shared = NULL;
  CHECK_OK(switchback_linear_share(layer, context, &shared));
  const switchback_groups groups = packed_groups(index_of);
  const switchback_matrix mx = matrix_of(x, SWITCHBACK_F32, T, K);
  const switchback_matrix my = matrix_of(y, SWITCHBACK_F32, M, N);
  switchback_linear* const layers_of_codes[] = {of_codes, shared};
  for (size_t i = 0; i < COUNT(layers_of_codes); ++i) {
    mark(y, sizeof(y));
    CHECK_OK(switchback_linear_forward_groups(layers_of_codes[i], &groups, &mx, &my,
                                              SWITCHBACK_SAVE_NOTHING));
    check_output();
  }
  switchback_linear_destroy(layer);
  switchback_linear_destroy(of_codes);
  switchback_linear_destroy(shared);
}

static void refusals(void) {
  switchback_linear_options options = options_of(SWITCHBACK_ROWWISE);
  switchback_linear* layer = new_layer(options);
  set_weights(layer);
  switchback_linear* none = NULL;
  options.groups = G;
  options.transposed_weight = 1;
  CHECK_INVALID("transposed_weight with 3 groups",
                switchback_linear_create(context, &options, &none));
  CHECK(none == NULL);

  const switchback_groups groups = packed_groups(NULL);
  switchback_groups too_few = groups;
  too_few.count = 2;
  const switchback_matrix mx = matrix_of(in_slots, SWITCHBACK_F32, M, K);
  const switchback_matrix my = matrix_of(y, SWITCHBACK_F32, M, N);
  const switchback_kept_input kept = kept_of(&mx, NULL, 0);
  switchback_linear_grads grads = all_grads();
  mark(y, sizeof(y));
  mark_gradients();
  CHECK_INVALID("it must be the layer's number of groups, 3",
                switchback_linear_forward_groups(layer, &too_few, &mx, &my, 0));
  CHECK_INVALID("it must be the layer's number of groups, 3",
                switchback_linear_backward_groups(layer, &grads, &too_few, &mx));
  CHECK_INVALID("the layer has 3 groups", switchback_linear_forward(layer, &mx, &my, 0, NULL));
  CHECK_INVALID("the layer has 3 groups", switchback_linear_backward(layer, &grads, &kept));
  CHECK_FAILS(SWITCHBACK_INVALID_STATE, "no forward has saved anything",
              switchback_linear_backward(layer, &grads, NULL));
  grads.stochastic = 1;
  CHECK_INVALID("rounding is given with groups",
                switchback_linear_backward_groups(layer, &grads, &groups, &mx));
  CHECK(untouched(y, sizeof(y)) && untouched(dx, sizeof(dx)));
  CHECK(untouched(dw, sizeof(dw)) && untouched(db, sizeof(db)));
  /* Without dw the backward does not read x: dx and db do not need it. */
  grads.stochastic = 0;
  grads.dw.data = NULL;
  CHECK_OK(switchback_linear_backward_groups(layer, &grads, &groups, NULL));
  CHECK(!untouched(dx, USED * K * sizeof(float)));
  switchback_linear_destroy(layer);
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
  layers();
  codes_of_the_weight(SWITCHBACK_ROWWISE);
  codes_of_the_weight(SWITCHBACK_GLOBAL);
  refusals();
  switchback_context_destroy(context);
}
