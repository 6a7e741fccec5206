/* SPDX-License-Identifier: Apache-2.0 */
/* The linear layer through the C ABI: every option, matrix and gradient is passed to the right
 * place, and objects live as long as they are needed. The suites of tests/linear check the
 * values. */
#include <stddef.h>

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
  mx = matrix_of(x, SWITCHBACK_F32, M, K);
  mother = matrix_of(other_x, SWITCHBACK_F32, M, K);
  mw = matrix_of(w, SWITCHBACK_F32, N, K);
  mbias = matrix_of(bias, SWITCHBACK_F32, 1, N);
  mg = matrix_of(g, SWITCHBACK_F32, M, N);
  my = matrix_of(y, SWITCHBACK_F32, M, N);
  my2 = matrix_of(y2, SWITCHBACK_F32, M, N);
  mcodes = matrix_of(codes, SWITCHBACK_S8, M, K);
  mwq = matrix_of(wq, SWITCHBACK_S8, N, K);
  mblocks = matrix_of(blocks, SWITCHBACK_S8, K, BLOCK);
}

static switchback_linear* layer_of(const switchback_linear_options* options,
                                   const switchback_matrix* weight) {
  switchback_linear* layer = NULL;
  CHECK_OK(switchback_linear_create(context, options, &layer));
  CHECK_OK(switchback_linear_set_weight(layer, weight, &mbias));
  return layer;
}

static switchback_linear* layer_in(int32_t mode) {
  const switchback_linear_options options = linear_options(K, N, mode);
  return layer_of(&options, &mw);
}

static switchback_linear_grads first(void) {
  return linear_grads(M, K, N, g, dx, dw, db);
}
static switchback_linear_grads second(void) {
  return linear_grads(M, K, N, g, dx2, dw2, db2);
}
static int same_dx(void) {
  return memcmp(dx, dx2, sizeof(dx)) == 0;
}
static int same_dw_and_db(void) {
  return memcmp(dw, dw2, sizeof(dw)) == 0 && memcmp(db, db2, sizeof(db)) == 0;
}

/* In mode standard every result must be the exact sum, because the operands are small integers. */
static void standard_step(void) {
  switchback_linear* layer = layer_in(SWITCHBACK_STANDARD);
  switchback_layer_info info = zero_layer_info();
  CHECK_OK(switchback_linear_get_info(layer, &info));
  CHECK(info.saved_for_backward_bytes == 0);
  CHECK_OK(switchback_linear_forward(layer, &mx, &my, SWITCHBACK_SAVE_COPY, NULL));
  CHECK_OK(switchback_linear_get_info(layer, &info));
  CHECK(info.saved_for_backward_bytes >= sizeof(x));
  const switchback_matrix* const operands[3][3] = {
      {&mx, &mw, &my2}, {&mg, &mw, NULL}, {&mg, &mx, NULL}};
  const switchback_matrix mdx2 = matrix_of(dx2, SWITCHBACK_F32, M, K);
  const switchback_matrix mdw2 = matrix_of(dw2, SWITCHBACK_F32, N, K);
  const switchback_matrix* const results[3] = {&my2, &mdx2, &mdw2};
  for (int product = 0; product < 3; ++product) {
    switchback_gemm_standard_args args;
    memset(&args, 0, sizeof(args));
    args.struct_size = sizeof(args);
    args.a = *operands[product][0];
    args.b = *operands[product][1];
    args.d = *results[product];
    args.transpose_a = product == 2;
    args.transpose_b = product == 0;
    args.bias = product == 0 ? bias : NULL;
    CHECK_OK(switchback_gemm_standard(context, &args));
  }
  switchback_quantize_args sums = switchback_quantize_args_of(&mg);
  sums.column_sums = db2;
  CHECK_OK(switchback_quantize(context, &sums));
  CHECK(memcmp(y, y2, sizeof(y)) == 0);
  memset(x, 0xFF, sizeof(x)); /* a forward with SAVE_COPY has copied x */
  switchback_linear_grads grads = first();
  CHECK_OK(switchback_linear_backward(layer, &grads, NULL));
  CHECK(same_dx() && same_dw_and_db());
  grads.accumulate = 1;
  CHECK_OK(switchback_linear_backward(layer, &grads, NULL));
  CHECK(same_dx() && dw[3] == 2.0f * dw2[3] && db[1] == 2.0f * db2[1]);

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

static void int8_step(int32_t mode) {
  switchback_linear* layer = layer_in(mode);
  CHECK_OK(switchback_linear_forward(layer, &mx, &my, SWITCHBACK_SAVE_BORROW, NULL));
  const switchback_linear_grads grads = first(), grads2 = second();
  CHECK_OK(switchback_linear_backward(layer, &grads, NULL));

  /* If the caller passes `kept`, a forward returns the codes of x there, and computes with them. */
  const switchback_kept_input kept_x = kept_of(&mx, NULL, 0);
  switchback_kept_input kept = kept_of(&mcodes, absmax, 0);
  CHECK_INVALID("if kept is given, it must be caller (3)",
                switchback_linear_forward(layer, &mx, &my2, SWITCHBACK_SAVE_COPY, &kept));
  CHECK_OK(switchback_linear_forward(layer, &mx, &my2, SWITCHBACK_SAVE_CALLER, &kept));
  CHECK(memcmp(y, y2, sizeof(y)) == 0);
  int8_t want_codes[M * K];
  float want_absmax[M];
  ref_quantize_rowwise(x, M, K, want_codes, want_absmax);
  CHECK(memcmp(codes, want_codes, sizeof(codes)) == 0);
  CHECK(memcmp(absmax, want_absmax, sizeof(absmax)) == 0);
  const int scales = mode == SWITCHBACK_ROWWISE ? N : 1;
  if (mode == SWITCHBACK_ROWWISE)
    CHECK_OK(switchback_quantize_rowwise(context, &mw, &mwq, w_absmax));
  else
    CHECK_OK(switchback_quantize_global(context, &mw, &mwq, w_absmax));
  ref_gemm_dequantize(codes, wq, M, N, K, absmax, w_absmax, scales, bias, y2);
  CHECK(memcmp(y, y2, sizeof(y)) == 0);

  /* With SAVE_CALLER, a backward reads x or its codes from the caller, whatever forwards ran
   * since. */
  CHECK_OK(switchback_linear_forward(layer, &mother, &my2, SWITCHBACK_SAVE_CALLER, NULL));
  if (mode != SWITCHBACK_GLOBAL_MEM_EFFICIENT) {
    CHECK_OK(switchback_linear_backward(layer, &grads2, &kept_x));
    CHECK(same_dx() && same_dw_and_db());
  } else {
    CHECK_OK(switchback_linear_backward(layer, &grads2, &kept));
    CHECK(same_dx() && same_dw_and_db());
  }
  kept.absmax = NULL;
  CHECK_INVALID("absmax", switchback_linear_backward(layer, &grads2, &kept));
  /* A backward without dw needs nothing of x, so `kept` may be empty. */
  memset(&kept.x, 0, sizeof(kept.x));
  CHECK_FAILS(SWITCHBACK_INVALID_ARGUMENT, "x", switchback_linear_backward(layer, &grads2, &kept));
  switchback_linear_grads without_dw = second();
  without_dw.dw.data = NULL;
  memset(dx2, 0, sizeof(dx2));
  CHECK_OK(switchback_linear_backward(layer, &without_dw, &kept));
  CHECK(same_dx());

  /* The weight changes. A layer without a bias gets NULL, or a matrix without data. */
  ref_fill(w, N * K, 9);
  CHECK_OK(switchback_linear_weight_updated(layer));
  CHECK_OK(switchback_linear_forward(layer, &mx, &my, SWITCHBACK_SAVE_NOTHING, NULL));
  CHECK(memcmp(y, y2, sizeof(y)) != 0);
  fill();
  CHECK_OK(switchback_linear_weight_may_have_changed(layer));
  CHECK_OK(switchback_linear_set_weight(layer, &mw, NULL));
  CHECK_OK(switchback_linear_forward(layer, &mx, &my, SWITCHBACK_SAVE_NOTHING, NULL));
  switchback_matrix none;
  memset(&none, 0, sizeof(none));
  CHECK_OK(switchback_linear_set_weight(layer, &mw, &none));
  CHECK_OK(switchback_linear_forward(layer, &mx, &my2, SWITCHBACK_SAVE_NOTHING, NULL));
  CHECK(memcmp(y, y2, sizeof(y)) == 0);
  CHECK_OK(switchback_linear_set_weight(layer, &mw, &mbias));
  CHECK_OK(switchback_linear_forward(layer, &mx, &my, SWITCHBACK_SAVE_NOTHING, NULL));
  CHECK(memcmp(y, y2, sizeof(y)) != 0);

  /* A layer that is prepared for eval is shared with another context, and outlives the first
   * layer. Then it runs from given codes alone. */
  switchback_context* other = cpu_context(1);
  switchback_linear* shared = NULL;
  CHECK_FAILS(SWITCHBACK_INVALID_STATE, "prepare_for_eval",
              switchback_linear_share(layer, other, &shared));
  CHECK_OK(switchback_linear_prepare_for_eval(layer));
  CHECK_FAILS(SWITCHBACK_INVALID_STATE, "eval", switchback_linear_backward(layer, &grads, NULL));
  CHECK_OK(switchback_linear_share(layer, other, &shared));
  switchback_layer_info info = zero_layer_info(), shared_info = zero_layer_info();
  CHECK_OK(switchback_linear_get_info(layer, &info));
  CHECK_OK(switchback_linear_get_info(shared, &shared_info));
  CHECK(info.cached_weight_bytes == shared_info.cached_weight_bytes);
  CHECK(info.cached_weight_bytes >= sizeof(wq));
  int8_t read_codes[N * K];
  float read_absmax[N];
  const switchback_matrix mread = matrix_of(read_codes, SWITCHBACK_S8, N, K);
  CHECK_OK(switchback_linear_quantized_weight(layer, &mread, read_absmax, scales));
  CHECK(memcmp(read_codes, wq, sizeof(wq)) == 0);
  CHECK(memcmp(read_absmax, w_absmax, (size_t)scales * sizeof(float)) == 0);
  switchback_linear_destroy(layer);
  switchback_context_destroy(other);
  memset(w, 0xFF, sizeof(w)); /* may be freed */
  CHECK_OK(switchback_linear_forward(shared, &mx, &my2, SWITCHBACK_SAVE_NOTHING, NULL));
  CHECK(memcmp(y, y2, sizeof(y)) == 0);
  CHECK_OK(switchback_linear_set_quantized_weight(shared, &mread, read_absmax, scales, &mbias));
  mark(y2, sizeof(y2));
  CHECK_OK(switchback_linear_forward(shared, &mx, &my2, SWITCHBACK_SAVE_NOTHING, NULL));
  CHECK(memcmp(y, y2, sizeof(y)) == 0);
  CHECK_FAILS(SWITCHBACK_INVALID_STATE, "set_weight", switchback_linear_weight_updated(shared));
  switchback_linear_destroy(shared);
  fill();
}

/* A layer with an activation gives the results of a plain layer on the activated input. */
static void activations(void) {
  static float a[M * K], from_g[M * N];
  const switchback_matrix ma = matrix_of(a, SWITCHBACK_F32, M, K);
  const switchback_matrix mfrom_g = matrix_of(from_g, SWITCHBACK_F32, M, N);
  switchback_linear_options options = linear_options(K, N, SWITCHBACK_ROWWISE);
  switchback_linear* plain = layer_of(&options, &mw);
  options.activation = SWITCHBACK_GELU_ERF;
  options.overlap_dw = 1; /* has no effect on a CPU */
  switchback_linear* layer = layer_of(&options, &mw);
  switchback_quantize_args args = switchback_quantize_args_of(&mx);
  args.activation = SWITCHBACK_GELU_ERF;
  args.value = ma;
  CHECK_OK(switchback_quantize(context, &args));
  CHECK_OK(switchback_linear_forward(layer, &mx, &my, SWITCHBACK_SAVE_COPY, NULL));
  CHECK_OK(switchback_linear_forward(plain, &ma, &my2, SWITCHBACK_SAVE_COPY, NULL));
  CHECK(memcmp(y, y2, sizeof(y)) == 0);
  switchback_linear_grads grads = first(), grads2 = second();
  CHECK_OK(switchback_linear_backward(plain, &grads2, NULL));
  grads.dx_of_activation = 1;
  CHECK_OK(switchback_linear_backward(layer, &grads, NULL));
  CHECK(same_dx() && same_dw_and_db());
  grads.dx_of_activation = 0;
  CHECK_OK(switchback_linear_backward(layer, &grads, NULL));
  CHECK(!same_dx());
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
  CHECK(same_dx() && same_dw_and_db());
  switchback_linear_destroy(layer);
  switchback_linear_destroy(plain);
}

/* A rotated layer gives the results of a plain layer on rotated matrices. A weight given as its
 * transpose gives the same results. */
static void rotation_and_transposed_weight(void) {
  static float rx[M * K], rw[N * K], w_t[K * N];
  const switchback_matrix mrx = matrix_of(rx, SWITCHBACK_F32, M, K);
  const switchback_matrix mrw = matrix_of(rw, SWITCHBACK_F32, N, K);
  const switchback_matrix mw_t = matrix_of(w_t, SWITCHBACK_F32, K, N);
  switchback_quantize_args args = switchback_quantize_args_of(&mx);
  args.rotation = 16;
  args.rotated = mrx;
  CHECK_OK(switchback_quantize(context, &args));
  args.x = mw;
  args.rotated = mrw;
  CHECK_OK(switchback_quantize(context, &args));
  for (int i = 0; i < N * K; ++i)
    w_t[i % K * N + i / K] = w[i];
  switchback_linear_options options = linear_options(K, N, SWITCHBACK_ROWWISE);
  options.transposed_weight = 1;
  switchback_linear* plain = layer_of(&options, &mw_t);
  CHECK_OK(switchback_linear_forward(plain, &mx, &my, SWITCHBACK_SAVE_NOTHING, NULL));
  switchback_linear* layer = layer_in(SWITCHBACK_ROWWISE);
  CHECK_OK(switchback_linear_forward(layer, &mx, &my2, SWITCHBACK_SAVE_NOTHING, NULL));
  CHECK(memcmp(y, y2, sizeof(y)) == 0);
  CHECK_OK(switchback_linear_set_weight(layer, &mrw, &mbias));
  CHECK_OK(switchback_linear_forward(layer, &mrx, &my, SWITCHBACK_SAVE_NOTHING, NULL));
  switchback_linear_destroy(layer);
  switchback_linear_destroy(plain);
  options.transposed_weight = 0;
  options.rotation = 16;
  layer = layer_of(&options, &mw);
  CHECK_OK(switchback_linear_forward(layer, &mx, &my2, SWITCHBACK_SAVE_NOTHING, NULL));
  CHECK(memcmp(y, y2, sizeof(y)) == 0);
  switchback_linear_destroy(layer);
}

/* dW in int8 is the product of blockwise codes. With stochastic rounding, each member of the
 * rounding options changes the result. */
static void int8_dw(void) {
  int8_t g_blocks[N * BLOCK];
  float g_absmax[N];
  const switchback_matrix mg_blocks = matrix_of(g_blocks, SWITCHBACK_S8, N, BLOCK);
  switchback_linear_options options = linear_options(K, N, SWITCHBACK_ROWWISE);
  options.dw = SWITCHBACK_DW_INT8_BLOCK;
  options.dw_block_rows = BLOCK;
  switchback_linear* layer = layer_of(&options, &mw);
  CHECK_OK(switchback_linear_forward(layer, &mx, &my, SWITCHBACK_SAVE_COPY, NULL));
  switchback_linear_grads grads = first(), grads2 = second();
  CHECK_OK(switchback_linear_backward(layer, &grads, NULL));
  const switchback_kept_input kept = kept_of(&mblocks, block_absmax, 1);
  CHECK_OK(switchback_linear_forward(layer, &mx, &my2, SWITCHBACK_SAVE_CALLER, &kept));
  CHECK(memcmp(y, y2, sizeof(y)) == 0);
  CHECK_OK(switchback_linear_backward(layer, &grads2, &kept));
  CHECK(same_dx() && same_dw_and_db());
  switchback_quantize_args quantize = switchback_quantize_args_of(&mg);
  quantize.q_t = mg_blocks;
  quantize.absmax_t = g_absmax;
  quantize.block_rows = BLOCK;
  CHECK_OK(switchback_quantize(context, &quantize));
  switchback_gemm_blockwise_args args;
  memset(&args, 0, sizeof(args));
  args.struct_size = sizeof(args);
  args.a = mg_blocks;
  args.b = mblocks;
  args.d = matrix_of(dw2, SWITCHBACK_F32, N, K);
  args.absmax_a = g_absmax;
  args.absmax_b = block_absmax;
  args.block_rows = BLOCK;
  for (args.accumulate = 0; args.accumulate < 2; ++args.accumulate) {
    args.m = args.accumulate == 0 ? 0 : M; /* m: the row where the padding begins; 0: not given */
    if (args.accumulate == 1) memset(dw2, 0, sizeof(dw2));
    CHECK_OK(switchback_gemm_blockwise(context, &args));
    CHECK(memcmp(dw, dw2, sizeof(dw)) == 0);
  }
  CHECK_OK(switchback_gemm_blockwise(context,
                                     &(switchback_gemm_blockwise_args){.struct_size = sizeof(args),
                                                                       .a = args.a,
                                                                       .b = args.b,
                                                                       .d = args.d,
                                                                       .absmax_a = g_absmax,
                                                                       .absmax_b = block_absmax,
                                                                       .block_rows = BLOCK,
                                                                       .accumulate = 1}));
  CHECK(dw2[3] == 2.0f * dw[3]);

  grads.rounding_seed = 7;
  CHECK_OK(switchback_linear_backward(layer, &grads, &kept));
  CHECK(same_dx()); /* the seed has no effect, because `stochastic` is 0 */
  grads.stochastic = 1;
  CHECK_OK(switchback_linear_backward(layer, &grads, &kept));
  CHECK(!same_dx());
  for (int member = 0; member < 5; ++member) {
    switchback_linear_grads other = grads;
    other.dx = grads2.dx;
    if (member == 1) other.rounding_seed += UINT64_C(1) << 32;
    if (member == 2) ++other.rounding_stream;
    if (member == 3) ++other.rounding_step;
    if (member == 4) ++other.rounding_row0;
    CHECK_OK(switchback_linear_backward(layer, &other, &kept));
    CHECK(same_dx() == (member == 0));
  }
  switchback_linear_destroy(layer);
}

static void layer_outlives_the_callers_context(void) {
  switchback_context* const kept = context;
  switchback_linear* layer = layer_in(SWITCHBACK_ROWWISE);
  CHECK_OK(switchback_linear_forward(layer, &mx, &my2, SWITCHBACK_SAVE_NOTHING, NULL));
  switchback_linear_destroy(layer);
  context = cpu_context(2);
  layer = layer_in(SWITCHBACK_ROWWISE);
  switchback_context_destroy(context);
  context = kept;
  CHECK_OK(switchback_linear_forward(layer, &mx, &my, SWITCHBACK_SAVE_NOTHING, NULL));
  CHECK(memcmp(y, y2, sizeof(y)) == 0);
  switchback_linear_destroy(layer);
}

void linear_tests(void) {
  context = cpu_context(2);
  fill();
  standard_step();
  int8_step(SWITCHBACK_ROWWISE);
  int8_step(SWITCHBACK_GLOBAL);
  int8_step(SWITCHBACK_GLOBAL_MEM_EFFICIENT);
  activations();
  rotation_and_transposed_weight();
  int8_dw();
  layer_outlives_the_callers_context();
  switchback_context_destroy(context);
}
