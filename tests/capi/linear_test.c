/* SPDX-License-Identifier: Apache-2.0 */
/* The linear layer through the C ABI: every option, matrix and gradient is passed to the right
 * place, and objects live as long as they are needed. The suites of tests/linear check the
 * values. */
#include "capi/harness.h"
#include "capi/reference.h"

enum { M = 6, N = 5, K = 16, BLOCK = 128 };

/* The operands are small integers (see ref_fill), so that floating point products are exact in
 * any order. */
static float x[M * K], other_x[M * K], w[N * K], bias[N], g[M * N];
static float y[M * N], y2[M * N], dx[M * K], dx2[M * K], dw[N * K], dw2[N * K], db[N], db2[N];
static int8_t codes[M * K], wq[N * K], blocks[K * BLOCK];
static float absmax[M], w_absmax[N], block_absmax[K];
static switchback_context* context;
static switchback_matrix mx, mother, mw, mbias, mg, my, my2, mcodes, mwq, mblocks;

static void fill(void) {
  ref_fill(x, M * K, 1);
  ref_fill(w, N * K, 2);
  ref_fill(bias, N, 3);
  ref_fill(g, M * N, 4);
  ref_fill(other_x, M * K, 5);
  mx = f32(x, M, K);
  mother = f32(other_x, M, K);
  mw = f32(w, N, K);
  mbias = f32(bias, 1, N);
  mg = f32(g, M, N);
  my = f32(y, M, N);
  my2 = f32(y2, M, N);
  mcodes = s8(codes, M, K);
  mwq = s8(wq, N, K);
  mblocks = s8(blocks, K, BLOCK);
}

static switchback_linear* layer_with(switchback_linear_options options, switchback_matrix weight) {
  switchback_linear* layer = layer_of(context, options);
  CHECK_OK(switchback_linear_set_weight(layer, &weight, &mbias));
  return layer;
}
static switchback_linear* layer_in(int32_t mode) {
  return layer_with(linear_options(K, N, mode), mw);
}

/* A forward that keeps nothing. */
static void forward(switchback_linear* layer, switchback_matrix from, switchback_matrix to) {
  CHECK_OK(switchback_linear_forward(layer, &from, &to, SWITCHBACK_SAVE_NOTHING, NULL));
}

static switchback_linear_grads first(void) {
  return linear_grads(M, K, N, g, dx, dw, db);
}
static switchback_linear_grads second(void) {
  return linear_grads(M, K, N, g, dx2, dw2, db2);
}
static int same_gradients(void) {
  return SAME(dx, dx2) && SAME(dw, dw2) && SAME(db, db2);
}

/* In mode standard every result must be the exact sum, because the operands are small integers. */
static void standard_step(void) {
  switchback_linear* layer = layer_in(SWITCHBACK_STANDARD);
  CHECK(info_of_layer(layer).saved_for_backward_bytes == 0);
  CHECK_OK(switchback_linear_forward(layer, &mx, &my, SWITCHBACK_SAVE_COPY, NULL));
  CHECK(info_of_layer(layer).saved_for_backward_bytes >= sizeof(x));
  ref_product(x, K, 1, w, K, 1, M, N, K, y2);
  for (int i = 0; i < M * N; ++i)
    CHECK(y[i] == y2[i] + bias[i % N]);
  const float ones[M] = {1, 1, 1, 1, 1, 1};
  ref_product(g, N, 1, w, 1, K, M, K, N, dx2);
  ref_product(g, 1, N, x, 1, K, N, K, M, dw2);
  ref_product(ones, 0, 1, g, 1, N, 1, N, M, db2);
  memset(x, 0xFF, sizeof(x)); /* a forward with SAVE_COPY has copied x */
  switchback_linear_grads grads = first();
  CHECK_OK(switchback_linear_backward(layer, &grads, NULL));
  CHECK(same_gradients());
  grads.accumulate = 1;
  CHECK_OK(switchback_linear_backward(layer, &grads, NULL));
  CHECK(SAME(dx, dx2) && dw[3] == 2.0f * dw2[3] && db[1] == 2.0f * db2[1]);

  /* Each gradient can be skipped. */
  mark(dx, sizeof(dx));
  mark(dw, sizeof(dw));
  mark(db, sizeof(db));
  grads = first();
  grads.dx.data = grads.dw.data = grads.db.data = NULL;
  grads.db.dtype = 1234; /* the type of a missing matrix is not read */
  CHECK_OK(switchback_linear_backward(layer, &grads, NULL));
  CHECK(untouched(dx, sizeof(dx)) && untouched(dw, sizeof(dw)) && untouched(db, sizeof(db)));
  fill();
  switchback_linear_destroy(layer);
}

/* A forward and a backward of one layer, with every owner of the kept input. */
static void int8_step(switchback_linear* layer, int32_t mode) {
  const switchback_linear_grads grads = first(), grads2 = second();
  CHECK_OK(switchback_linear_forward(layer, &mx, &my, SWITCHBACK_SAVE_BORROW, NULL));
  CHECK_OK(switchback_linear_backward(layer, &grads, NULL));

  /* If the caller passes `kept`, a forward returns the codes of x there, and computes with them. */
  switchback_kept_input kept = kept_of(mcodes, absmax, 0);
  CHECK_INVALID("if kept is given, it must be caller (3)",
                switchback_linear_forward(layer, &mx, &my2, SWITCHBACK_SAVE_COPY, &kept));
  CHECK_OK(switchback_linear_forward(layer, &mx, &my2, SWITCHBACK_SAVE_CALLER, &kept));
  CHECK(SAME(y, y2));
  int8_t want_codes[M * K];
  float want_absmax[M];
  ref_quantize_rowwise(x, M, K, want_codes, want_absmax);
  CHECK(SAME(codes, want_codes) && SAME(absmax, want_absmax));

  /* With SAVE_CALLER, a backward reads x or its codes from the caller, whatever forwards ran
   * since. */
  CHECK_OK(switchback_linear_forward(layer, &mother, &my2, SWITCHBACK_SAVE_CALLER, NULL));
  const switchback_kept_input kept_x = kept_of(mx, NULL, 0);
  const int keeps_codes = mode == SWITCHBACK_GLOBAL_MEM_EFFICIENT;
  CHECK_OK(switchback_linear_backward(layer, &grads2, keeps_codes ? &kept : &kept_x));
  CHECK(same_gradients());
  kept.absmax = NULL;
  CHECK_INVALID("absmax", switchback_linear_backward(layer, &grads2, &kept));
  /* A backward without dw needs nothing of x, so `kept` may be empty. */
  memset(&kept.x, 0, sizeof(kept.x));
  CHECK_INVALID("x", switchback_linear_backward(layer, &grads2, &kept));
  switchback_linear_grads without_dw = second();
  without_dw.dw.data = NULL;
  memset(dx2, 0, sizeof(dx2));
  CHECK_OK(switchback_linear_backward(layer, &without_dw, &kept));
  CHECK(SAME(dx, dx2));
}

/* The weight changes. A layer without a bias gets NULL, or a matrix without data. */
static void changed_weight(switchback_linear* layer) {
  forward(layer, mx, my2);
  ref_fill(w, N * K, 9);
  CHECK_OK(switchback_linear_weight_updated(layer));
  forward(layer, mx, my);
  CHECK(!SAME(y, y2));
  fill();
  CHECK_OK(switchback_linear_weight_may_have_changed(layer));
  forward(layer, mx, my);
  CHECK(SAME(y, y2));
  const switchback_matrix none = {.data = NULL};
  CHECK_OK(switchback_linear_set_weight(layer, &mw, NULL));
  forward(layer, mx, my);
  CHECK(!SAME(y, y2));
  CHECK_OK(switchback_linear_set_weight(layer, &mw, &none));
  forward(layer, mx, my2);
  CHECK(SAME(y, y2));
  CHECK_OK(switchback_linear_set_weight(layer, &mw, &mbias));
}

/* A layer that is prepared for eval is shared with another context, and outlives the first layer.
 * Then it runs from given codes alone. */
static void eval(switchback_linear* layer, int64_t scales) {
  switchback_context* other = cpu_context(1);
  switchback_linear* shared = NULL;
  forward(layer, mx, my);
  CHECK_FAILS(SWITCHBACK_INVALID_STATE, "prepare_for_eval",
              switchback_linear_share(layer, other, &shared));
  CHECK_OK(switchback_linear_prepare_for_eval(layer));
  const switchback_linear_grads grads = first();
  CHECK_FAILS(SWITCHBACK_INVALID_STATE, "eval", switchback_linear_backward(layer, &grads, NULL));
  CHECK_OK(switchback_linear_share(layer, other, &shared));
  CHECK(info_of_layer(layer).cached_weight_bytes == info_of_layer(shared).cached_weight_bytes);
  CHECK(info_of_layer(layer).cached_weight_bytes >= sizeof(wq));
  int8_t read_codes[N * K];
  float read_absmax[N];
  const switchback_matrix mread = s8(read_codes, N, K);
  CHECK_OK(switchback_linear_quantized_weight(layer, &mread, read_absmax, scales));
  CHECK(SAME(read_codes, wq));
  CHECK(memcmp(read_absmax, w_absmax, (size_t)scales * sizeof(float)) == 0);
  switchback_linear_destroy(layer);
  memset(w, 0xFF, sizeof(w)); /* may be freed */
  CHECK(info_of(other).workspace_bytes == 0);
  forward(shared, mx, my2);
  CHECK(SAME(y, y2) && info_of(other).workspace_bytes > 0);
  switchback_context_destroy(other);
  CHECK_OK(switchback_linear_set_quantized_weight(shared, &mread, read_absmax, scales, &mbias));
  memset(read_codes, 0, sizeof(read_codes)); /* may be freed */
  mark(y2, sizeof(y2));
  forward(shared, mx, my2);
  CHECK(SAME(y, y2));
  CHECK_FAILS(SWITCHBACK_INVALID_STATE, "set_weight", switchback_linear_weight_updated(shared));
  switchback_linear_destroy(shared);
  fill();
}

static void int8_layer(int32_t mode) {
  if (mode == SWITCHBACK_ROWWISE)
    CHECK_OK(switchback_quantize_rowwise(context, &mw, &mwq, w_absmax));
  else
    CHECK_OK(switchback_quantize_global(context, &mw, &mwq, w_absmax));
  switchback_linear* layer = layer_in(mode);
  int8_step(layer, mode);
  changed_weight(layer);
  eval(layer, mode == SWITCHBACK_ROWWISE ? N : 1);
}

/* A layer with an activation gives the results of a plain layer on the activated input. */
static void activations(void) {
  static float a[M * K], from_g[M * N];
  const switchback_matrix ma = f32(a, M, K), mfrom_g = f32(from_g, M, N);
  switchback_linear_options options = linear_options(K, N, SWITCHBACK_ROWWISE);
  switchback_linear* plain = layer_with(options, mw);
  options.activation = SWITCHBACK_GELU_ERF;
  options.overlap_dw = 1; /* has no effect on a CPU */
  switchback_linear* layer = layer_with(options, mw);
  switchback_quantize_args args = switchback_quantize_args_of(&mx);
  args.activation = SWITCHBACK_GELU_ERF;
  args.value = ma;
  CHECK_OK(switchback_quantize(context, &args));
  CHECK_OK(switchback_linear_forward(layer, &mx, &my, SWITCHBACK_SAVE_COPY, NULL));
  CHECK_OK(switchback_linear_forward(plain, &ma, &my2, SWITCHBACK_SAVE_COPY, NULL));
  CHECK(SAME(y, y2));
  switchback_linear_grads grads = first(), grads2 = second();
  CHECK_OK(switchback_linear_backward(plain, &grads2, NULL));
  grads.dx_of_activation = 1;
  CHECK_OK(switchback_linear_backward(layer, &grads, NULL));
  CHECK(same_gradients());
  grads.dx_of_activation = 0;
  CHECK_OK(switchback_linear_backward(layer, &grads, NULL));
  CHECK(!SAME(dx, dx2));
  /* With y_activation, g is the gradient of GELU(y). */
  args = switchback_quantize_args_of(&my2);
  args.g = mg;
  args.activation = SWITCHBACK_GELU_TANH;
  args.value = mfrom_g;
  CHECK_OK(switchback_quantize(context, &args));
  grads.y = my2;
  grads.y_activation = SWITCHBACK_GELU_TANH;
  CHECK_OK(switchback_linear_backward(plain, &grads, NULL));
  grads2.g = mfrom_g;
  CHECK_OK(switchback_linear_backward(plain, &grads2, NULL));
  CHECK(same_gradients());
  switchback_linear_destroy(layer);
  switchback_linear_destroy(plain);
}

/* A rotated layer gives the results of a plain layer on rotated matrices. A weight given as its
 * transpose gives the same results. */
static void rotation_and_transposed_weight(void) {
  static float rx[M * K], rw[N * K], w_t[K * N];
  switchback_quantize_args args = switchback_quantize_args_of(&mx);
  args.rotation = 16;
  args.rotated = f32(rx, M, K);
  CHECK_OK(switchback_quantize(context, &args));
  args.x = mw;
  args.rotated = f32(rw, N, K);
  CHECK_OK(switchback_quantize(context, &args));
  for (int i = 0; i < N * K; ++i)
    w_t[i % K * N + i / K] = w[i];
  switchback_linear_options options = linear_options(K, N, SWITCHBACK_ROWWISE);
  options.transposed_weight = 1;
  switchback_linear* transposed = layer_with(options, f32(w_t, K, N));
  switchback_linear* plain = layer_in(SWITCHBACK_ROWWISE);
  forward(transposed, mx, my);
  forward(plain, mx, my2);
  CHECK(SAME(y, y2));
  options = linear_options(K, N, SWITCHBACK_ROWWISE);
  options.rotation = 16;
  switchback_linear* rotated = layer_with(options, mw);
  const switchback_matrix mrw = f32(rw, N, K);
  CHECK_OK(switchback_linear_set_weight(plain, &mrw, &mbias));
  forward(rotated, mx, my);
  forward(plain, f32(rx, M, K), my2);
  CHECK(SAME(y, y2));
  switchback_linear_destroy(transposed);
  switchback_linear_destroy(plain);
  switchback_linear_destroy(rotated);
}

/* dW in int8 is the product of blockwise codes. With stochastic rounding, each member of the
 * rounding options changes the result. */
static void int8_dw(void) {
  int8_t g_blocks[N * BLOCK];
  float g_absmax[N];
  switchback_linear_options options = linear_options(K, N, SWITCHBACK_ROWWISE);
  options.dw = SWITCHBACK_DW_INT8_BLOCK;
  options.dw_block_rows = BLOCK;
  switchback_linear* layer = layer_with(options, mw);
  CHECK_OK(switchback_linear_forward(layer, &mx, &my, SWITCHBACK_SAVE_COPY, NULL));
  switchback_linear_grads grads = first(), grads2 = second();
  CHECK_OK(switchback_linear_backward(layer, &grads, NULL));
  const switchback_kept_input kept = kept_of(mblocks, block_absmax, 1);
  CHECK_OK(switchback_linear_forward(layer, &mx, &my2, SWITCHBACK_SAVE_CALLER, &kept));
  CHECK(SAME(y, y2));
  CHECK_OK(switchback_linear_backward(layer, &grads2, &kept));
  CHECK(same_gradients());
  switchback_quantize_args quantize = switchback_quantize_args_of(&mg);
  quantize.q_t = s8(g_blocks, N, BLOCK);
  quantize.absmax_t = g_absmax;
  quantize.block_rows = BLOCK;
  CHECK_OK(switchback_quantize(context, &quantize));
  switchback_gemm_blockwise_args args = {.struct_size = sizeof(args),
                                         .a = quantize.q_t,
                                         .b = mblocks,
                                         .d = f32(dw2, N, K),
                                         .absmax_a = g_absmax,
                                         .absmax_b = block_absmax,
                                         .block_rows = BLOCK};
  CHECK_OK(switchback_gemm_blockwise(context, &args));
  CHECK(SAME(dw, dw2));
  args.accumulate = 1;
  args.m = M; /* the row where the padding begins */
  CHECK_OK(switchback_gemm_blockwise(context, &args));
  CHECK(dw2[3] == 2.0f * dw[3]);

  grads.rounding_seed = 7;
  CHECK_OK(switchback_linear_backward(layer, &grads, &kept));
  CHECK(SAME(dx, dx2)); /* the seed has no effect, because `stochastic` is 0 */
  grads.stochastic = 1;
  CHECK_OK(switchback_linear_backward(layer, &grads, &kept));
  CHECK(!SAME(dx, dx2));
  for (int member = 0; member < 5; ++member) {
    switchback_linear_grads other = grads;
    other.dx = grads2.dx;
    if (member == 1) other.rounding_seed += UINT64_C(1) << 32;
    if (member == 2) ++other.rounding_stream;
    if (member == 3) ++other.rounding_step;
    if (member == 4) ++other.rounding_row0;
    CHECK_OK(switchback_linear_backward(layer, &other, &kept));
    CHECK(SAME(dx, dx2) == (member == 0));
  }
  switchback_linear_destroy(layer);
}

static void layer_outlives_the_callers_context(void) {
  switchback_context* const kept = context;
  switchback_linear* layer = layer_in(SWITCHBACK_ROWWISE);
  forward(layer, mx, my2);
  switchback_linear_destroy(layer);
  context = cpu_context(2);
  layer = layer_in(SWITCHBACK_ROWWISE);
  switchback_context_destroy(context);
  context = kept;
  forward(layer, mx, my);
  CHECK(SAME(y, y2));
  switchback_linear_destroy(layer);
}

void linear_tests(void) {
  context = cpu_context(2);
  fill();
  standard_step();
  int8_layer(SWITCHBACK_ROWWISE);
  int8_layer(SWITCHBACK_GLOBAL);
  int8_layer(SWITCHBACK_GLOBAL_MEM_EFFICIENT);
  activations();
  rotation_and_transposed_weight();
  int8_dw();
  layer_outlives_the_callers_context();
  switchback_context_destroy(context);
}
