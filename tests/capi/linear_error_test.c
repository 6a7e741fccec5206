/* SPDX-License-Identifier: Apache-2.0 */
/* The layer through the C ABI: every rejection, and that it leaves things as they were. */
#include <stddef.h>

#include "capi/harness.h"

enum { M = 3, N = 4, K = 8 };

static switchback_context* context;
static float x[M * K], w[N * K], bias[N], g[M * N], y[M * N], dx[M * K], dw[N * K], db[N];

static switchback_linear_options options_of(int32_t mode) {
  switchback_linear_options options;
  memset(&options, 0, sizeof(options));
  options.struct_size = sizeof(options);
  options.in_features = K;
  options.out_features = N;
  options.mode = mode;
  return options;
}

static void create(void) {
  switchback_linear* const before = (switchback_linear*)(uintptr_t)0x20;
  switchback_linear* layer = before;
  switchback_linear_options options = options_of(SWITCHBACK_ROWWISE);
  CHECK_INVALID("context is a null", switchback_linear_create(NULL, &options, &layer));
  CHECK_INVALID("out is a null", switchback_linear_create(context, &options, NULL));
  options.mode = 6;
  CHECK_INVALID("mode = 6", switchback_linear_create(context, &options, &layer));
  options.mode = -1;
  CHECK_INVALID("mode = -1", switchback_linear_create(context, &options, &layer));
  options = options_of(SWITCHBACK_ROWWISE);
  options.dtype = SWITCHBACK_S8;
  CHECK_INVALID("dtype = 3", switchback_linear_create(context, &options, &layer));
  options.dtype = 77;
  CHECK_INVALID("dtype = 77", switchback_linear_create(context, &options, &layer));
  options = options_of(SWITCHBACK_ROWWISE);
  options.in_features = -1;
  CHECK_INVALID("in_features", switchback_linear_create(context, &options, &layer));
  options = options_of(SWITCHBACK_ROWWISE);
  options.out_features = -5;
  CHECK_INVALID("out_features", switchback_linear_create(context, &options, &layer));
  options = options_of(SWITCHBACK_ROWWISE);
  options.engine = "no_such";
  CHECK_INVALID("no_such", switchback_linear_create(context, &options, &layer));
  options = options_of(SWITCHBACK_ROWWISE);
  options.transposed_weight = 2;
  CHECK_INVALID("transposed_weight = 2", switchback_linear_create(context, &options, &layer));
  CHECK(layer == before);
  /* As a program of ABI 1.11 would make it. */
  options.struct_size = offsetof(switchback_linear_options, transposed_weight);
  CHECK_OK(switchback_linear_create(context, &options, &layer));
  switchback_linear_destroy(layer);
}

static void before_a_weight(void) {
  switchback_linear* layer = NULL;
  const switchback_linear_options options = options_of(SWITCHBACK_ROWWISE);
  CHECK_OK(switchback_linear_create(context, &options, &layer));
  const switchback_matrix mx = matrix_of(x, SWITCHBACK_F32, M, K);
  const switchback_matrix my = matrix_of(y, SWITCHBACK_F32, M, N);
  mark(y, sizeof(y));
  CHECK(switchback_linear_forward(layer, &mx, &my, 0) == SWITCHBACK_INVALID_STATE);
  CHECK(switchback_linear_prepare_for_eval(layer) == SWITCHBACK_INVALID_STATE);
  CHECK(untouched(y, sizeof(y)));
  switchback_linear_destroy(layer);
}

static switchback_linear_grads all_grads(void) {
  return linear_grads(M, K, N, g, dx, dw, db);
}

static void null_arguments(switchback_linear* layer) {
  const switchback_matrix mx = matrix_of(x, SWITCHBACK_F32, M, K);
  const switchback_matrix my = matrix_of(y, SWITCHBACK_F32, M, N);
  const switchback_linear_grads grads = all_grads();
  size_t bytes = 0;
  CHECK_INVALID("linear is a null", switchback_linear_set_weight(NULL, &mx, NULL));
  CHECK_INVALID("weight is a null", switchback_linear_set_weight(layer, NULL, NULL));
  CHECK_INVALID("linear is a null", switchback_linear_weight_updated(NULL));
  CHECK_INVALID("linear is a null", switchback_linear_weight_may_have_changed(NULL));
  CHECK_INVALID("linear is a null", switchback_linear_prepare_for_eval(NULL));
  switchback_linear* shared = NULL;
  CHECK_INVALID("linear is a null", switchback_linear_share(NULL, NULL, &shared));
  CHECK_INVALID("context is a null", switchback_linear_share(layer, NULL, &shared));
  CHECK_INVALID("linear is a null", switchback_linear_forward(NULL, &mx, &my, 0));
  CHECK_INVALID("x is a null", switchback_linear_forward(layer, NULL, &my, 0));
  CHECK_INVALID("y is a null", switchback_linear_forward(layer, &mx, NULL, 0));
  CHECK_INVALID("linear is a null", switchback_linear_backward(NULL, &grads));
  CHECK_INVALID("grads is a null", switchback_linear_backward(layer, NULL));
  CHECK_INVALID("linear is a null", switchback_linear_saved_for_backward_bytes(NULL, &bytes));
  CHECK_INVALID("out is a null", switchback_linear_saved_for_backward_bytes(layer, NULL));
  CHECK_INVALID("linear is a null", switchback_linear_cached_weight_bytes(NULL, &bytes));
  CHECK_INVALID("out is a null", switchback_linear_cached_weight_bytes(layer, NULL));
}

static void bad_weights(switchback_linear* layer) {
  const switchback_matrix good = matrix_of(w, SWITCHBACK_F32, N, K);
  switchback_matrix bad = matrix_of(w, SWITCHBACK_F32, K, N);
  CHECK_INVALID("weight", switchback_linear_set_weight(layer, &bad, NULL));
  bad = good;
  bad.dtype = SWITCHBACK_BF16;
  CHECK_INVALID("weight", switchback_linear_set_weight(layer, &bad, NULL));
  bad = good;
  bad.data = NULL;
  CHECK_INVALID("weight", switchback_linear_set_weight(layer, &bad, NULL));
  switchback_matrix bad_bias = matrix_of(bias, SWITCHBACK_F32, 1, N - 1);
  CHECK_INVALID("bias", switchback_linear_set_weight(layer, &good, &bad_bias));
  bad_bias = matrix_of(bias, SWITCHBACK_S8, 1, N);
  CHECK_INVALID("bias", switchback_linear_set_weight(layer, &good, &bad_bias));
  bad_bias = matrix_of(bias, 6, 1, N);
  CHECK_INVALID("bias has dtype 6", switchback_linear_set_weight(layer, &good, &bad_bias));
}

static void bad_forwards(switchback_linear* layer) {
  const switchback_matrix mx = matrix_of(x, SWITCHBACK_F32, M, K);
  const switchback_matrix my = matrix_of(y, SWITCHBACK_F32, M, N);
  mark(y, sizeof(y));
  CHECK_INVALID("save_for_backward = 4", switchback_linear_forward(layer, &mx, &my, 4));
  CHECK_INVALID("save_for_backward = -1", switchback_linear_forward(layer, &mx, &my, -1));
  switchback_matrix bad = matrix_of(x, SWITCHBACK_F32, M, K - 1);
  CHECK_INVALID("x", switchback_linear_forward(layer, &bad, &my, 0));
  bad = mx;
  bad.dtype = SWITCHBACK_F16;
  CHECK_INVALID("x", switchback_linear_forward(layer, &bad, &my, 0));
  bad = my;
  bad.rows = M - 1;
  CHECK_INVALID("y", switchback_linear_forward(layer, &mx, &bad, 0));
  bad = my;
  bad.dtype = SWITCHBACK_BF16;
  CHECK_INVALID("y", switchback_linear_forward(layer, &mx, &bad, 0));
  bad = my;
  bad.data = x;
  CHECK_INVALID("overlap", switchback_linear_forward(layer, &mx, &bad, 0));
  CHECK(untouched(y, sizeof(y)));
  /* None of them saved anything. */
  const switchback_linear_grads grads = all_grads();
  CHECK_FAILS(SWITCHBACK_INVALID_STATE, "forward", switchback_linear_backward(layer, &grads));
}

static void bad_backwards(switchback_linear* layer) {
  const switchback_matrix mx = matrix_of(x, SWITCHBACK_F32, M, K);
  const switchback_matrix my = matrix_of(y, SWITCHBACK_F32, M, N);
  CHECK_OK(switchback_linear_forward(layer, &mx, &my, SWITCHBACK_SAVE_COPY));
  mark(dx, sizeof(dx));
  mark(dw, sizeof(dw));
  mark(db, sizeof(db));
  switchback_linear_grads grads = all_grads();
  grads.accumulate = 9;
  CHECK_INVALID("accumulate = 9", switchback_linear_backward(layer, &grads));
  grads = all_grads();
  memset(&grads.g, 0, sizeof(grads.g));
  CHECK_INVALID("g", switchback_linear_backward(layer, &grads));
  grads = all_grads();
  grads.g.rows = M - 1;
  CHECK_INVALID("g is [2,4]", switchback_linear_backward(layer, &grads));
  grads = all_grads();
  grads.g.dtype = 50;
  CHECK_INVALID("g has dtype 50", switchback_linear_backward(layer, &grads));
  grads = all_grads();
  grads.dx.cols = K - 1;
  CHECK_INVALID("dx", switchback_linear_backward(layer, &grads));
  grads = all_grads();
  grads.dw.rows = N - 1;
  CHECK_INVALID("dw", switchback_linear_backward(layer, &grads));
  grads = all_grads();
  grads.db.cols = N - 1;
  CHECK_INVALID("db", switchback_linear_backward(layer, &grads));
  grads = all_grads();
  grads.dw.dtype = SWITCHBACK_F16;
  CHECK_INVALID("dw", switchback_linear_backward(layer, &grads));
  grads = all_grads();
  grads.dx.data = g;
  CHECK_INVALID("overlap", switchback_linear_backward(layer, &grads));
  CHECK(untouched(dx, sizeof(dx)) && untouched(dw, sizeof(dw)) && untouched(db, sizeof(db)));
  grads = all_grads();
  CHECK_OK(switchback_linear_backward(layer, &grads)); /* what was saved is still there */
}

static void transposed_weight(void) {
  switchback_linear* layer = NULL;
  switchback_linear_options options = options_of(SWITCHBACK_ROWWISE);
  options.transposed_weight = 1;
  CHECK_OK(switchback_linear_create(context, &options, &layer));
  const switchback_matrix mw = matrix_of(w, SWITCHBACK_F32, N, K);
  const switchback_matrix mw_t = matrix_of(w, SWITCHBACK_F32, K, N);
  CHECK_INVALID("weight is [4,8]; it must be [K,N (transposed_weight)] = [8,4]",
                switchback_linear_set_weight(layer, &mw, NULL));
  CHECK_OK(switchback_linear_set_weight(layer, &mw_t, NULL));
  const switchback_matrix mx = matrix_of(x, SWITCHBACK_F32, M, K);
  const switchback_matrix my = matrix_of(y, SWITCHBACK_F32, M, N);
  CHECK_OK(switchback_linear_forward(layer, &mx, &my, SWITCHBACK_SAVE_COPY));
  switchback_linear_grads grads = all_grads();
  mark(dw, sizeof(dw));
  CHECK_INVALID("dw is [4,8]; it must be [K,N (transposed_weight)] = [8,4]",
                switchback_linear_backward(layer, &grads));
  CHECK(untouched(dw, sizeof(dw)));
  grads.dw = matrix_of(dw, SWITCHBACK_F32, K, N);
  CHECK_OK(switchback_linear_backward(layer, &grads));
  switchback_linear_destroy(layer);
}

void linear_error_tests(void) {
  for (size_t i = 0; i < COUNT(x); ++i)
    x[i] = (float)i;
  for (size_t i = 0; i < COUNT(w); ++i)
    w[i] = (float)i - 9.0f;
  for (size_t i = 0; i < COUNT(g); ++i)
    g[i] = 1.0f;
  context = cpu_context(1);
  create();
  before_a_weight();
  transposed_weight();
  for (int32_t mode = SWITCHBACK_STANDARD; mode <= SWITCHBACK_GLOBAL_MEM_EFFICIENT; ++mode) {
    switchback_linear* layer = NULL;
    const switchback_linear_options options = options_of(mode);
    CHECK_OK(switchback_linear_create(context, &options, &layer));
    const switchback_matrix mw = matrix_of(w, SWITCHBACK_F32, N, K);
    CHECK_OK(switchback_linear_set_weight(layer, &mw, NULL));
    null_arguments(layer);
    bad_weights(layer);
    bad_forwards(layer);
    bad_backwards(layer);
    switchback_linear_destroy(layer);
  }
  switchback_context_destroy(context);
}
