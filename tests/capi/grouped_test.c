/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of rows through the C ABI: every result has the bits of calls for one group after the
 * other, and slots that no group uses stay untouched. */
#include "capi/harness.h"

enum { G = 3, M = 20, T = 11, K = 40, N = 24, USED = 18 };

static switchback_context* context;
static const int32_t ends[G] = {7, 7, USED}; /* the second group is empty, two slots are unused */
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
    index_of[s] = s < USED ? (s * 5) % T : 1000; /* of unused slots it is not read */
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

/* Strided groups that read the same rows, each with its own columns: independent models, next to
 * each other. */
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

/* Strided groups whose rows of d are next to each other. */
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

static switchback_grouped_linear* new_layer(int32_t mode) {
  switchback_grouped_linear_options options;
  memset(&options, 0, sizeof(options));
  options.struct_size = sizeof(options);
  options.groups = G;
  options.in_features = K;
  options.out_features = N;
  options.mode = mode;
  options.engine = mode == SWITCHBACK_STANDARD ? "reference" : NULL;
  switchback_grouped_linear* layer = NULL;
  CHECK_OK(switchback_grouped_linear_create(context, &options, &layer));
  return layer;
}

static float y[M * N], dx[M * K], dw[G * N * K], db[G * N];
static float one_y[M * N], one_dx[M * K], one_dw[G * N * K], one_db[G * N];

/* A layer for each group, called with the group's rows alone. */
static void one_after_the_other(int32_t mode) {
  for (int group = 0; group < G; ++group) {
    const int begin = begin_of(group), rows = ends[group] - begin;
    switchback_linear_options options = linear_options(K, N, mode);
    options.engine = mode == SWITCHBACK_STANDARD ? "reference" : NULL;
    switchback_linear* layer = NULL;
    CHECK_OK(switchback_linear_create(context, &options, &layer));
    const switchback_matrix mw = matrix_of(w + group * N * K, SWITCHBACK_F32, N, K);
    const switchback_matrix mb = matrix_of(bias + group * N, SWITCHBACK_F32, 1, N);
    CHECK_OK(switchback_linear_set_weight(layer, &mw, &mb));
    const switchback_matrix mx = matrix_of(in_slots + begin * K, SWITCHBACK_F32, rows, K);
    const switchback_matrix my = matrix_of(one_y + begin * N, SWITCHBACK_F32, rows, N);
    CHECK_OK(switchback_linear_forward(layer, &mx, &my, SWITCHBACK_SAVE_COPY, NULL));
    const switchback_linear_grads grads = linear_grads(
        rows, K, N, g + begin * N, one_dx + begin * K, one_dw + group * N * K, one_db + group * N);
    CHECK_OK(switchback_linear_backward(layer, &grads, NULL));
    switchback_linear_destroy(layer);
  }
}

static switchback_grouped_linear_grads all_grads(void) {
  switchback_grouped_linear_grads grads;
  memset(&grads, 0, sizeof(grads));
  grads.struct_size = sizeof(grads);
  grads.g = matrix_of(g, SWITCHBACK_F32, M, N);
  grads.dx = matrix_of(dx, SWITCHBACK_F32, M, K);
  grads.dw = matrix_of(dw, SWITCHBACK_F32, G * N, K);
  grads.db = matrix_of(db, SWITCHBACK_F32, G, N);
  return grads;
}

static void mark_gradients(void) {
  mark(dx, sizeof(dx));
  mark(dw, sizeof(dw));
  mark(db, sizeof(db));
}

static void check_gradients(void) {
  CHECK(memcmp(dx, one_dx, USED * K * sizeof(float)) == 0);
  CHECK(untouched(dx + USED * K, (M - USED) * K * sizeof(float)));
  CHECK(memcmp(dw, one_dw, sizeof(dw)) == 0);
  CHECK(memcmp(db, one_db, sizeof(db)) == 0);
}

static void layer_in_mode(int32_t mode) {
  switchback_grouped_linear* layer = new_layer(mode);
  const switchback_matrix mw = matrix_of(w, SWITCHBACK_F32, G * N, K);
  const switchback_matrix mb = matrix_of(bias, SWITCHBACK_F32, G, N);
  CHECK_OK(switchback_grouped_linear_set_weight(layer, &mw, &mb));
  one_after_the_other(mode);
  const switchback_groups groups = packed_groups(index_of);
  const switchback_matrix mx = matrix_of(x, SWITCHBACK_F32, T, K);
  const switchback_matrix my = matrix_of(y, SWITCHBACK_F32, M, N);
  const switchback_grouped_linear_grads grads = all_grads();
  for (int32_t save = SWITCHBACK_SAVE_NOTHING; save <= SWITCHBACK_SAVE_CALLER; ++save) {
    mark(y, sizeof(y));
    CHECK_OK(switchback_grouped_linear_forward(layer, &groups, &mx, &my, save));
    CHECK(memcmp(y, one_y, USED * N * sizeof(float)) == 0);
    CHECK(untouched(y + USED * N, (M - USED) * N * sizeof(float)));
    if (save == SWITCHBACK_SAVE_NOTHING) continue;
    mark_gradients();
    if (save == SWITCHBACK_SAVE_CALLER) {
      CHECK_OK(switchback_grouped_linear_backward(layer, &grads, &groups, &mx));
    } else {
      CHECK_OK(switchback_grouped_linear_backward(layer, &grads, NULL, NULL));
    }
    check_gradients();
  }
  CHECK_INVALID("x is given without groups",
                switchback_grouped_linear_backward(layer, &grads, NULL, &mx));
  switchback_layer_info info = zero_layer_info();
  CHECK_OK(switchback_grouped_linear_get_info(layer, &info));
  CHECK(info.saved_for_backward_bytes > 0);
  CHECK((info.cached_weight_bytes > 0) == (mode != SWITCHBACK_STANDARD));

  CHECK_OK(switchback_grouped_linear_weight_updated(layer));
  CHECK_OK(switchback_grouped_linear_weight_may_have_changed(layer));
  CHECK_OK(switchback_grouped_linear_prepare_for_eval(layer));
  CHECK_OK(switchback_grouped_linear_forward(layer, &groups, &mx, &my, SWITCHBACK_SAVE_NOTHING));
  CHECK(memcmp(y, one_y, USED * N * sizeof(float)) == 0);
  CHECK_FAILS(SWITCHBACK_INVALID_STATE, "prepared for eval",
              switchback_grouped_linear_backward(layer, &grads, NULL, NULL));
  switchback_grouped_linear_destroy(layer);
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
  layer_in_mode(SWITCHBACK_STANDARD);
  layer_in_mode(SWITCHBACK_ROWWISE);
  switchback_context_destroy(context);
}
