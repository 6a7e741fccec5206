/* SPDX-License-Identifier: Apache-2.0 */
/* Codes of blocks, their product and a layer's int8 dw through the C ABI. */
#include <stddef.h>

#include "capi/harness.h"

enum { M = 200, N = 5, K = 7, BLOCK = 128, PADDED = 256, BLOCKS = 2 };

static float x[M * K], w[N * K], g[M * N], y[M * N], y2[M * N], dx[M * K], db[N];
static float dw[N * K], dw2[N * K];
static int8_t q[M * K], q_x[K * PADDED], q_x2[K * PADDED], q_g[N * PADDED];
static float rows[M], absmax_x[BLOCKS * K], absmax_x2[BLOCKS * K], absmax_g[BLOCKS * N], sums[K];

static switchback_linear* layer_with(switchback_context* context, int32_t dw_kind,
                                     int32_t block_rows) {
  switchback_linear_options options;
  memset(&options, 0, sizeof(options));
  options.struct_size = sizeof(options);
  options.in_features = K;
  options.out_features = N;
  options.mode = SWITCHBACK_ROWWISE;
  options.dtype = SWITCHBACK_F32;
  options.dw = dw_kind;
  options.dw_block_rows = block_rows;
  switchback_linear* layer = NULL;
  CHECK_OK(switchback_linear_create(context, &options, &layer));
  return layer;
}

static switchback_gemm_blockwise_args product(void) {
  switchback_gemm_blockwise_args args;
  memset(&args, 0, sizeof(args));
  args.struct_size = sizeof(args);
  args.a = matrix_of(q_g, SWITCHBACK_S8, N, PADDED);
  args.b = matrix_of(q_x, SWITCHBACK_S8, K, PADDED);
  args.d = matrix_of(dw, SWITCHBACK_F32, N, K);
  args.absmax_a = absmax_g;
  args.absmax_b = absmax_x;
  args.block_rows = BLOCK;
  return args;
}

static void operations_and_layer(switchback_context* context) {
  const switchback_matrix mx = matrix_of(x, SWITCHBACK_F32, M, K);
  const switchback_matrix mg = matrix_of(g, SWITCHBACK_F32, M, N);
  const switchback_matrix mw = matrix_of(w, SWITCHBACK_F32, N, K);
  const switchback_matrix my = matrix_of(y, SWITCHBACK_F32, M, N);
  const switchback_matrix my2 = matrix_of(y2, SWITCHBACK_F32, M, N);
  const switchback_matrix mq = matrix_of(q, SWITCHBACK_S8, M, K);
  const switchback_matrix mq_x = matrix_of(q_x, SWITCHBACK_S8, K, PADDED);
  const switchback_matrix mq_x2 = matrix_of(q_x2, SWITCHBACK_S8, K, PADDED);
  const switchback_matrix mq_g = matrix_of(q_g, SWITCHBACK_S8, N, PADDED);
  CHECK_OK(switchback_quantize_blockwise_transpose(context, &mx, BLOCK, &mq_x, absmax_x));
  CHECK_OK(switchback_quantize_rowwise_and_blockwise_transpose(context, &mx, &mq, rows, BLOCK,
                                                               &mq_x2, absmax_x2, sums, 0));
  CHECK(memcmp(q_x, q_x2, sizeof(q_x)) == 0);
  CHECK(memcmp(absmax_x, absmax_x2, sizeof(absmax_x)) == 0);
  CHECK(q_x[M] == 0 && q_x[PADDED - 1] == 0); /* behind the last row */
  CHECK_OK(switchback_quantize_blockwise_transpose(context, &mg, BLOCK, &mq_g, absmax_g));
  switchback_gemm_blockwise_args args = product();
  CHECK_OK(switchback_gemm_blockwise(context, &args));
  /* Told where the padding begins: the same bits. A program of before 1.13 has no m to tell. */
  args.d = matrix_of(dw2, SWITCHBACK_F32, N, K);
  args.m = M;
  CHECK_OK(switchback_gemm_blockwise(context, &args));
  CHECK(memcmp(dw, dw2, sizeof(dw)) == 0);
  memset(dw2, 0, sizeof(dw2));
  args.m = 1; /* behind the struct that the call is told of, and wrong */
  args.struct_size = offsetof(switchback_gemm_blockwise_args, m);
  CHECK_OK(switchback_gemm_blockwise(context, &args));
  CHECK(memcmp(dw, dw2, sizeof(dw)) == 0);

  switchback_linear* layer = layer_with(context, SWITCHBACK_DW_INT8_BLOCK, BLOCK);
  CHECK_OK(switchback_linear_set_weight(layer, &mw, NULL));
  CHECK_OK(switchback_linear_forward(layer, &mx, &my, SWITCHBACK_SAVE_COPY));
  size_t bytes = 0;
  CHECK_OK(switchback_linear_saved_for_backward_bytes(layer, &bytes));
  CHECK(bytes == K * PADDED + BLOCKS * K * sizeof(float));
  const switchback_linear_grads grads = linear_grads(M, K, N, g, dx, dw2, db);
  CHECK_OK(switchback_linear_backward(layer, &grads));
  CHECK(memcmp(dw, dw2, sizeof(dw)) == 0);
  memset(dw2, 0, sizeof(dw2));
  memset(q_x2, 1, sizeof(q_x2));
  CHECK_OK(switchback_linear_forward_block_codes(layer, &mx, &my2, &mq_x2, absmax_x2));
  CHECK(memcmp(y, y2, sizeof(y)) == 0);
  CHECK(memcmp(q_x, q_x2, sizeof(q_x)) == 0);
  CHECK_OK(switchback_linear_backward_from_blocks(layer, &grads, &mq_x2, absmax_x2));
  CHECK(memcmp(dw, dw2, sizeof(dw)) == 0);

  /* Stochastic rounding is of dx and dw, and a function of its arguments alone. */
  static float nearest_dx[M * K], rounded_dx[M * K], rounded_dw[N * K];
  memcpy(nearest_dx, dx, sizeof(dx));
  switchback_linear_grads rounded = grads;
  rounded.rounding_seed = 7;
  CHECK_OK(switchback_linear_backward_from_blocks(layer, &rounded, &mq_x2, absmax_x2));
  CHECK(memcmp(dw, dw2, sizeof(dw)) == 0 && memcmp(dx, nearest_dx, sizeof(dx)) == 0);
  rounded.stochastic = 1;
  rounded.struct_size = offsetof(switchback_linear_grads, stochastic); /* of 1.10 */
  CHECK_OK(switchback_linear_backward_from_blocks(layer, &rounded, &mq_x2, absmax_x2));
  CHECK(memcmp(dw, dw2, sizeof(dw)) == 0 && memcmp(dx, nearest_dx, sizeof(dx)) == 0);
  rounded.struct_size = sizeof(rounded);
  CHECK_OK(switchback_linear_backward_from_blocks(layer, &rounded, &mq_x2, absmax_x2));
  CHECK(memcmp(dw, dw2, sizeof(dw)) != 0 && memcmp(dx, nearest_dx, sizeof(dx)) != 0);
  memcpy(rounded_dx, dx, sizeof(dx));
  memcpy(rounded_dw, dw2, sizeof(dw2));
  CHECK_OK(switchback_linear_backward_from_blocks(layer, &rounded, &mq_x2, absmax_x2));
  CHECK(memcmp(dw2, rounded_dw, sizeof(dw)) == 0 && memcmp(dx, rounded_dx, sizeof(dx)) == 0);
  for (int member = 0; member < 4; ++member) {
    switchback_linear_grads other = rounded;
    if (member == 0) other.rounding_seed += UINT64_C(1) << 32;
    if (member == 1) ++other.rounding_stream;
    if (member == 2) ++other.rounding_step;
    if (member == 3) ++other.rounding_row0;
    CHECK_OK(switchback_linear_backward_from_blocks(layer, &other, &mq_x2, absmax_x2));
    CHECK(memcmp(dw2, rounded_dw, sizeof(dw)) != 0 && memcmp(dx, rounded_dx, sizeof(dx)) != 0);
  }
  rounded.stochastic = 2;
  CHECK_INVALID("stochastic = 2",
                switchback_linear_backward_from_blocks(layer, &rounded, &mq_x2, absmax_x2));
  rounded.stochastic = 1;
  rounded.rounding_row0 = -1;
  CHECK_INVALID("row0 = -1",
                switchback_linear_backward_from_blocks(layer, &rounded, &mq_x2, absmax_x2));

  CHECK_INVALID("codes_t is a null",
                switchback_linear_forward_block_codes(layer, &mx, &my2, NULL, absmax_x2));
  CHECK_INVALID("absmax is a null",
                switchback_linear_forward_block_codes(layer, &mx, &my2, &mq_x2, NULL));
  CHECK_INVALID("grads is a null",
                switchback_linear_backward_from_blocks(layer, NULL, &mq_x2, absmax_x2));
  CHECK_INVALID("absmax is a null",
                switchback_linear_backward_from_blocks(layer, &grads, &mq_x2, NULL));
  switchback_linear_destroy(layer);
  /* 0 rows are 256: the same codes where that is one block either way. */
  layer = layer_with(context, SWITCHBACK_DW_INT8_BLOCK, 0);
  CHECK_OK(switchback_linear_set_weight(layer, &mw, NULL));
  CHECK_OK(switchback_linear_forward(layer, &mx, &my, SWITCHBACK_SAVE_COPY));
  CHECK_OK(switchback_linear_saved_for_backward_bytes(layer, &bytes));
  CHECK(bytes == K * 256 + K * sizeof(float));
  switchback_linear_destroy(layer);
}

static void errors(switchback_context* context) {
  const switchback_matrix mx = matrix_of(x, SWITCHBACK_F32, M, K);
  const switchback_matrix mq = matrix_of(q, SWITCHBACK_S8, M, K);
  const switchback_matrix mq_x = matrix_of(q_x, SWITCHBACK_S8, K, PADDED);
  CHECK_INVALID("block_rows = -1",
                switchback_quantize_blockwise_transpose(context, &mx, -1, &mq_x, absmax_x));
  CHECK_INVALID("q_t is [7,256]",
                switchback_quantize_blockwise_transpose(context, &mx, 512, &mq_x, absmax_x));
  CHECK_INVALID("x is a null",
                switchback_quantize_blockwise_transpose(context, NULL, BLOCK, &mq_x, absmax_x));
  CHECK_INVALID("absmax is a null",
                switchback_quantize_blockwise_transpose(context, &mx, BLOCK, &mq_x, NULL));
  CHECK_INVALID("accumulate", switchback_quantize_rowwise_and_blockwise_transpose(
                                  context, &mx, &mq, rows, BLOCK, &mq_x, absmax_x, sums, 2));
  CHECK_INVALID("absmax_rows is a null",
                switchback_quantize_rowwise_and_blockwise_transpose(context, &mx, &mq, NULL, BLOCK,
                                                                    &mq_x, absmax_x, NULL, 0));
  switchback_gemm_blockwise_args args = product();
  args.block_rows = 0;
  CHECK_INVALID("block_rows = 0", switchback_gemm_blockwise(context, &args));
  args = product();
  args.accumulate = 2;
  CHECK_INVALID("accumulate", switchback_gemm_blockwise(context, &args));
  args = product();
  args.absmax_b = NULL;
  CHECK_INVALID("absmax_b is a null", switchback_gemm_blockwise(context, &args));
  args = product();
  args.m = -1;
  CHECK_INVALID("m = -1", switchback_gemm_blockwise(context, &args));
  args.m = PADDED - BLOCK;
  CHECK_INVALID("m = 128", switchback_gemm_blockwise(context, &args));
  args.m = PADDED + 1;
  CHECK_INVALID("m = 257", switchback_gemm_blockwise(context, &args));
  args = product();
  args.engine = "no_such_engine";
  CHECK_INVALID("no_such_engine", switchback_gemm_blockwise(context, &args));
  args = product();
  args.struct_size = 8;
  CHECK_INVALID("args has struct_size", switchback_gemm_blockwise(context, &args));
  CHECK_INVALID("args is a null", switchback_gemm_blockwise(context, NULL));
  const switchback_gemm_blockwise_args right = product();
  CHECK_INVALID("context is a null", switchback_gemm_blockwise(NULL, &right));

  switchback_linear_options options;
  memset(&options, 0, sizeof(options));
  options.struct_size = sizeof(options);
  options.in_features = options.out_features = 4;
  options.mode = SWITCHBACK_STANDARD;
  options.dw = SWITCHBACK_DW_INT8_BLOCK;
  switchback_linear* layer = NULL;
  CHECK_INVALID("dw = int8_block in mode standard",
                switchback_linear_create(context, &options, &layer));
  options.mode = SWITCHBACK_ROWWISE;
  options.dw = 7;
  CHECK_INVALID("dw = 7", switchback_linear_create(context, &options, &layer));
  options.dw = SWITCHBACK_DW_INT8_BLOCK;
  options.dw_block_rows = 100;
  CHECK_INVALID("dw_block_rows = 100", switchback_linear_create(context, &options, &layer));
  /* A program of before 1.8 has a shorter struct: what lies behind it is not read. */
  options.struct_size = offsetof(switchback_linear_options, dw);
  CHECK_OK(switchback_linear_create(context, &options, &layer));
  switchback_linear_destroy(layer);
}

void blockwise_tests(void) {
  for (int i = 0; i < M * K; ++i)
    x[i] = (float)((i * 37) % 101 - 50) / 7.0f;
  for (int i = 0; i < M * N; ++i)
    g[i] = (float)((i * 53) % 89 - 44) / 11.0f;
  for (int i = 0; i < N * K; ++i)
    w[i] = (float)((i * 29) % 31 - 15) / 13.0f;
  switchback_context* context = cpu_context(2);
  operations_and_layer(context);
  errors(context);
  switchback_context_destroy(context);
}
