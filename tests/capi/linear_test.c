/* SPDX-License-Identifier: Apache-2.0 */
/* The layer through the C ABI: a training step in every mode, evaluation, lifetimes. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>

#include "capi/harness.h"
#include "capi/reference.h"

enum { M = 6, N = 5, K = 11 };

/* Small integers, so that floating point products are exact in any order; see ref_fill. */
static float x[M * K], w[N * K], bias[N], g[M * N];
static float y[M * N], dx[M * K], dw[N * K], db[N];
static float want_y[M * N], want_dx[M * K], want_dw[N * K], want_db[N];

static void fill(void) {
  ref_fill(x, M * K, 1);
  ref_fill(w, N * K, 2);
  ref_fill(bias, N, 3);
  ref_fill(g, M * N, 4);
}

static void want_gradients_of_weight(const float* saved_x) {
  for (int n = 0; n < N; ++n) {
    want_db[n] = 0.0f;
    for (int m = 0; m < M; ++m)
      want_db[n] += g[m * N + n];
    for (int k = 0; k < K; ++k) {
      want_dw[n * K + k] = 0.0f;
      for (int m = 0; m < M; ++m)
        want_dw[n * K + k] += g[m * N + n] * saved_x[m * K + k];
    }
  }
}

/* What the mode's definition says, step by step. */
static void want_step(int32_t mode) {
  static int8_t xq[M * K], wq[N * K], wq_t[K * N], gq[M * N];
  static float xs[M], gs[M], ws[N], ws_t[K], x_back[M * K];
  if (mode == SWITCHBACK_STANDARD) {
    for (int m = 0; m < M; ++m) {
      for (int n = 0; n < N; ++n) {
        want_y[m * N + n] = bias[n];
        for (int k = 0; k < K; ++k)
          want_y[m * N + n] += x[m * K + k] * w[n * K + k];
      }
      for (int k = 0; k < K; ++k) {
        want_dx[m * K + k] = 0.0f;
        for (int n = 0; n < N; ++n)
          want_dx[m * K + k] += g[m * N + n] * w[n * K + k];
      }
    }
    want_gradients_of_weight(x);
    return;
  }
  const int rowwise = mode == SWITCHBACK_ROWWISE;
  ref_quantize_rowwise(x, M, K, xq, xs);
  ref_quantize_rowwise(g, M, N, gq, gs);
  if (rowwise) {
    ref_quantize_rowwise(w, N, K, wq, ws);
    ref_quantize_columnwise_transpose(w, N, K, wq_t, ws_t);
  } else {
    ref_quantize_global(w, N, K, wq, wq_t, ws);
    ws_t[0] = ws[0];
  }
  ref_gemm_dequantize(xq, wq, M, N, K, xs, ws, rowwise ? N : 1, bias, want_y);
  ref_gemm_dequantize(gq, wq_t, M, K, N, gs, ws_t, rowwise ? K : 1, NULL, want_dx);
  for (int i = 0; i < M * K; ++i)
    x_back[i] = xs[i / K] * ((float)xq[i] / 127.0f);
  want_gradients_of_weight(mode == SWITCHBACK_GLOBAL_MEM_EFFICIENT ? x_back : x);
}

static switchback_linear* new_layer(switchback_context* context, int32_t mode) {
  switchback_linear* layer = new_linear(context, K, N, mode);
  const switchback_matrix mw = matrix_of(w, SWITCHBACK_F32, N, K);
  const switchback_matrix mbias = matrix_of(bias, SWITCHBACK_F32, 1, N);
  CHECK_OK(switchback_linear_set_weight(layer, &mw, &mbias));
  return layer;
}

static switchback_linear_grads all_grads(void) {
  return linear_grads(M, K, N, g, dx, dw, db);
}

/* dw of the memory-efficient mode sums M products that are not integers: each of |g| <= 16 and
 * |x| <= 16, so that M roundings in either order differ by less than 2 * M * M * 256 * 2^-24. */
static int close_dw(int32_t mode, float factor) {
  const float bound =
      mode == SWITCHBACK_GLOBAL_MEM_EFFICIENT ? 2.0f * M * M * 256.0f * 0x1p-24f * factor : 0.0f;
  for (int i = 0; i < N * K; ++i)
    if (!(fabsf(dw[i] - factor * want_dw[i]) <= bound)) return 0;
  return 1;
}

static void train_step(switchback_context* context, int32_t mode, int32_t save) {
  fill();
  want_step(mode);
  switchback_linear* layer = new_layer(context, mode);
  const switchback_matrix mx = matrix_of(x, SWITCHBACK_F32, M, K);
  const switchback_matrix my = matrix_of(y, SWITCHBACK_F32, M, N);
  size_t bytes = 1;
  CHECK_OK(switchback_linear_saved_for_backward_bytes(layer, &bytes));
  CHECK(bytes == 0);
  CHECK_OK(switchback_linear_forward(layer, &mx, &my, save));
  CHECK(memcmp(y, want_y, sizeof(y)) == 0);
  CHECK_OK(switchback_linear_saved_for_backward_bytes(layer, &bytes));
  CHECK(bytes >= (mode == SWITCHBACK_GLOBAL_MEM_EFFICIENT ? M * K + M * sizeof(float)
                                                          : M * K * sizeof(float)));
  if (save == SWITCHBACK_SAVE_COPY) memset(x, 0xFF, sizeof(x)); /* the copy is what counts */

  switchback_linear_grads grads = all_grads();
  mark(dx, sizeof(dx));
  mark(dw, sizeof(dw));
  mark(db, sizeof(db));
  CHECK_OK(switchback_linear_backward(layer, &grads));
  CHECK(memcmp(dx, want_dx, sizeof(dx)) == 0);
  CHECK(memcmp(db, want_db, sizeof(db)) == 0);
  CHECK(close_dw(mode, 1.0f));

  grads.accumulate = 1;
  CHECK_OK(switchback_linear_backward(layer, &grads));
  CHECK(memcmp(dx, want_dx, sizeof(dx)) == 0);
  CHECK(close_dw(mode, 2.0f));
  for (int n = 0; n < N; ++n)
    CHECK(db[n] == 2.0f * want_db[n]);

  /* Each gradient can be skipped. */
  grads = all_grads();
  memset(&grads.dx, 0, sizeof(grads.dx));
  memset(&grads.db, 0, sizeof(grads.db));
  grads.db.dtype = 1234; /* not looked at */
  mark(dx, sizeof(dx));
  mark(db, sizeof(db));
  CHECK_OK(switchback_linear_backward(layer, &grads));
  CHECK(untouched(dx, sizeof(dx)) && untouched(db, sizeof(db)));
  CHECK(close_dw(mode, 1.0f));
  memset(&grads.dw, 0, sizeof(grads.dw));
  grads.dx = matrix_of(dx, SWITCHBACK_F32, M, K);
  mark(dw, sizeof(dw));
  CHECK_OK(switchback_linear_backward(layer, &grads));
  CHECK(memcmp(dx, want_dx, sizeof(dx)) == 0 && untouched(dw, sizeof(dw)));
  switchback_linear_destroy(layer);
}

static void weight_changes(switchback_context* context, int32_t mode) {
  fill();
  switchback_linear* layer = new_layer(context, mode);
  const switchback_matrix mx = matrix_of(x, SWITCHBACK_F32, M, K);
  const switchback_matrix my = matrix_of(y, SWITCHBACK_F32, M, N);
  CHECK_OK(switchback_linear_forward(layer, &mx, &my, SWITCHBACK_SAVE_NOTHING));
  ref_fill(w, N * K, 9);
  ref_fill(bias, N, 10);
  want_step(mode);
  CHECK_OK(switchback_linear_weight_updated(layer));
  CHECK_OK(switchback_linear_forward(layer, &mx, &my, SWITCHBACK_SAVE_NOTHING));
  CHECK(memcmp(y, want_y, sizeof(y)) == 0);

  /* No bias: NULL, or a matrix without data. */
  memset(bias, 0, sizeof(bias));
  want_step(mode);
  const switchback_matrix mw = matrix_of(w, SWITCHBACK_F32, N, K);
  switchback_matrix none;
  memset(&none, 0, sizeof(none));
  CHECK_OK(switchback_linear_set_weight(layer, &mw, NULL));
  CHECK_OK(switchback_linear_forward(layer, &mx, &my, SWITCHBACK_SAVE_NOTHING));
  CHECK(memcmp(y, want_y, sizeof(y)) == 0);
  CHECK_OK(switchback_linear_set_weight(layer, &mw, &none));
  CHECK_OK(switchback_linear_forward(layer, &mx, &my, SWITCHBACK_SAVE_NOTHING));
  CHECK(memcmp(y, want_y, sizeof(y)) == 0);
  switchback_linear_destroy(layer);
}

static void evaluation(switchback_context* context, int32_t mode) {
  fill();
  want_step(mode);
  switchback_linear* layer = new_layer(context, mode);
  const switchback_matrix mx = matrix_of(x, SWITCHBACK_F32, M, K);
  const switchback_matrix my = matrix_of(y, SWITCHBACK_F32, M, N);
  CHECK_OK(switchback_linear_forward(layer, &mx, &my, SWITCHBACK_SAVE_COPY));
  CHECK_OK(switchback_linear_prepare_for_eval(layer));
  size_t bytes = 0;
  CHECK_OK(switchback_linear_cached_weight_bytes(layer, &bytes));
  if (mode != SWITCHBACK_STANDARD) {
    CHECK(bytes >= (size_t)N * K);
    memset(w, 0xFF, sizeof(w)); /* may be freed */
  }
  mark(y, sizeof(y));
  CHECK_OK(switchback_linear_forward(layer, &mx, &my, SWITCHBACK_SAVE_NOTHING));
  CHECK(memcmp(y, want_y, sizeof(y)) == 0);
  const switchback_linear_grads grads = all_grads();
  mark(dx, sizeof(dx));
  CHECK(switchback_linear_backward(layer, &grads) == SWITCHBACK_INVALID_STATE);
  CHECK(untouched(dx, sizeof(dx)));
  switchback_linear_destroy(layer);
}

static void layer_outlives_the_callers_context(void) {
  fill();
  want_step(SWITCHBACK_ROWWISE);
  switchback_context* context = cpu_context(2);
  switchback_linear* layer = new_layer(context, SWITCHBACK_ROWWISE);
  switchback_context_destroy(context);
  const switchback_matrix mx = matrix_of(x, SWITCHBACK_F32, M, K);
  const switchback_matrix my = matrix_of(y, SWITCHBACK_F32, M, N);
  CHECK_OK(switchback_linear_forward(layer, &mx, &my, SWITCHBACK_SAVE_NOTHING));
  CHECK(memcmp(y, want_y, sizeof(y)) == 0);
  switchback_linear_destroy(layer);
  switchback_linear_destroy(NULL);
}

void linear_tests(void) {
  for (int32_t threads = 1; threads <= 3; threads += 2) {
    switchback_context* context = cpu_context(threads);
    for (int32_t mode = SWITCHBACK_STANDARD; mode <= SWITCHBACK_GLOBAL_MEM_EFFICIENT; ++mode) {
      train_step(context, mode, SWITCHBACK_SAVE_COPY);
      train_step(context, mode, SWITCHBACK_SAVE_BORROW);
      weight_changes(context, mode);
      evaluation(context, mode);
    }
    switchback_context_destroy(context);
  }
  layer_outlives_the_callers_context();
}
