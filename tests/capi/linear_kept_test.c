/* SPDX-License-Identifier: Apache-2.0 */
/* The layer through the C ABI where the caller keeps the input, and where the weight comes as
 * codes. */
#include <stddef.h>

#include "capi/harness.h"
#include "capi/reference.h"

enum { M = 5, N = 4, K = 9 };

static float x[M * K], other_x[M * K], w[N * K], bias[N], g[M * N];
static float y[M * N], y2[M * N], dx[M * K], dw[N * K], db[N], dx2[M * K], dw2[N * K], db2[N];
static int8_t codes[M * K], wq[N * K];
static float absmax[M], w_absmax[N];

static switchback_linear* new_layer(switchback_context* context, int32_t mode) {
  return new_linear(context, K, N, mode);
}

static switchback_linear_grads grads_into(float* to_dx, float* to_dw, float* to_db) {
  return linear_grads(M, K, N, g, to_dx, to_dw, to_db);
}

/* The gradients of a forward that saved are those of one whose caller kept x, whatever ran since.
 */
static void kept_input(switchback_context* context, int32_t mode) {
  switchback_linear* layer = new_layer(context, mode);
  const switchback_matrix mw = matrix_of(w, SWITCHBACK_F32, N, K);
  const switchback_matrix mbias = matrix_of(bias, SWITCHBACK_F32, 1, N);
  const switchback_matrix mx = matrix_of(x, SWITCHBACK_F32, M, K);
  const switchback_matrix mother = matrix_of(other_x, SWITCHBACK_F32, M, K);
  const switchback_matrix my = matrix_of(y, SWITCHBACK_F32, M, N);
  const switchback_matrix my2 = matrix_of(y2, SWITCHBACK_F32, M, N);
  CHECK_OK(switchback_linear_set_weight(layer, &mw, &mbias));
  CHECK_OK(switchback_linear_forward(layer, &mx, &my, SWITCHBACK_SAVE_COPY));
  switchback_linear_grads grads = grads_into(dx, dw, db);
  CHECK_OK(switchback_linear_backward(layer, &grads));
  CHECK_OK(switchback_linear_forward(layer, &mx, &my2, SWITCHBACK_SAVE_CALLER));
  CHECK(memcmp(y, y2, sizeof(y)) == 0);
  CHECK_OK(switchback_linear_forward(layer, &mother, &my2, SWITCHBACK_SAVE_CALLER));
  switchback_linear_grads grads2 = grads_into(dx2, dw2, db2);
  CHECK_OK(switchback_linear_backward_from(layer, &grads2, &mx, NULL));
  CHECK(memcmp(dx, dx2, sizeof(dx)) == 0);
  CHECK(memcmp(db, db2, sizeof(db)) == 0);
  if (mode != SWITCHBACK_GLOBAL_MEM_EFFICIENT) CHECK(memcmp(dw, dw2, sizeof(dw)) == 0);

  const switchback_matrix mcodes = matrix_of(codes, SWITCHBACK_S8, M, K);
  if (mode == SWITCHBACK_STANDARD) {
    CHECK_INVALID("standard", switchback_linear_forward_codes(layer, &mx, &my2, &mcodes, absmax));
  } else {
    int8_t want_codes[M * K];
    float want_absmax[M];
    ref_quantize_rowwise(x, M, K, want_codes, want_absmax);
    CHECK_OK(switchback_linear_forward_codes(layer, &mx, &my2, &mcodes, absmax));
    CHECK(memcmp(y, y2, sizeof(y)) == 0);
    CHECK(memcmp(codes, want_codes, sizeof(codes)) == 0);
    CHECK(memcmp(absmax, want_absmax, sizeof(absmax)) == 0);
    CHECK_OK(switchback_linear_backward_from(layer, &grads2, &mcodes, absmax));
    CHECK(memcmp(dx, dx2, sizeof(dx)) == 0);
    if (mode == SWITCHBACK_GLOBAL_MEM_EFFICIENT) CHECK(memcmp(dw, dw2, sizeof(dw)) == 0);
    CHECK_INVALID("absmax", switchback_linear_backward_from(layer, &grads2, &mcodes, NULL));
    CHECK_INVALID("codes is a null",
                  switchback_linear_forward_codes(layer, &mx, &my2, NULL, absmax));
    CHECK_INVALID("absmax is a null",
                  switchback_linear_forward_codes(layer, &mx, &my2, &mcodes, NULL));
  }
  CHECK_INVALID("x ", switchback_linear_backward_from(layer, &grads2, NULL, NULL));
  CHECK_INVALID("grads is a null", switchback_linear_backward_from(layer, NULL, &mx, NULL));
  grads2.dw.data = NULL;
  CHECK_OK(switchback_linear_backward_from(layer, &grads2, NULL, NULL));
  CHECK(memcmp(dx, dx2, sizeof(dx)) == 0);
  switchback_linear_destroy(layer);
}

static void quantized_weight(switchback_context* context, int32_t mode) {
  switchback_linear* trained = new_layer(context, mode);
  const switchback_matrix mw = matrix_of(w, SWITCHBACK_F32, N, K);
  const switchback_matrix mbias = matrix_of(bias, SWITCHBACK_F32, 1, N);
  const switchback_matrix mx = matrix_of(x, SWITCHBACK_F32, M, K);
  const switchback_matrix my = matrix_of(y, SWITCHBACK_F32, M, N);
  const switchback_matrix my2 = matrix_of(y2, SWITCHBACK_F32, M, N);
  const switchback_matrix mwq = matrix_of(wq, SWITCHBACK_S8, N, K);
  CHECK_OK(switchback_linear_set_weight(trained, &mw, &mbias));
  CHECK_OK(switchback_linear_forward(trained, &mx, &my, SWITCHBACK_SAVE_NOTHING));
  const int64_t scales = mode == SWITCHBACK_ROWWISE ? N : 1;
  if (mode == SWITCHBACK_ROWWISE)
    CHECK_OK(switchback_quantize_rowwise(context, &mw, &mwq, w_absmax));
  else
    CHECK_OK(switchback_quantize_global(context, &mw, &mwq, w_absmax));
  switchback_linear* layer = new_layer(context, mode);
  CHECK_INVALID("absmax",
                switchback_linear_set_quantized_weight(layer, &mwq, w_absmax, scales + 1, &mbias));
  CHECK_INVALID("absmax_count = -1",
                switchback_linear_set_quantized_weight(layer, &mwq, w_absmax, -1, &mbias));
  CHECK_INVALID("absmax is a null",
                switchback_linear_set_quantized_weight(layer, &mwq, NULL, scales, &mbias));
  CHECK_INVALID("codes has dtype f32",
                switchback_linear_set_quantized_weight(layer, &mw, w_absmax, scales, &mbias));
  CHECK(switchback_linear_forward(layer, &mx, &my2, 0) == SWITCHBACK_INVALID_STATE);
  CHECK_OK(switchback_linear_set_quantized_weight(layer, &mwq, w_absmax, scales, &mbias));
  int8_t read_codes[N * K];
  float read_absmax[N];
  const switchback_matrix mread = matrix_of(read_codes, SWITCHBACK_S8, N, K);
  CHECK_INVALID("linear is a null",
                switchback_linear_quantized_weight(NULL, &mread, read_absmax, scales));
  CHECK_INVALID("codes is a null",
                switchback_linear_quantized_weight(layer, NULL, read_absmax, scales));
  CHECK_INVALID("codes has dtype f32",
                switchback_linear_quantized_weight(layer, &my2, read_absmax, scales));
  CHECK_INVALID("absmax is a null",
                switchback_linear_quantized_weight(layer, &mread, NULL, scales));
  CHECK_INVALID("absmax_count = -1",
                switchback_linear_quantized_weight(layer, &mread, read_absmax, -1));
  CHECK_INVALID("absmax holds",
                switchback_linear_quantized_weight(layer, &mread, read_absmax, scales + 1));
  CHECK_FAILS(SWITCHBACK_INVALID_STATE, "prepare_for_eval",
              switchback_linear_quantized_weight(trained, &mread, read_absmax, scales));
  CHECK_OK(switchback_linear_quantized_weight(layer, &mread, read_absmax, scales));
  CHECK(memcmp(read_codes, wq, sizeof(wq)) == 0);
  CHECK(memcmp(read_absmax, w_absmax, (size_t)scales * sizeof(float)) == 0);
  memset(wq, 1, sizeof(wq));
  memset(w_absmax, 0, sizeof(w_absmax));
  CHECK_OK(switchback_linear_forward(layer, &mx, &my2, SWITCHBACK_SAVE_NOTHING));
  CHECK(memcmp(y, y2, sizeof(y)) == 0);
  CHECK_FAILS(SWITCHBACK_INVALID_STATE, "set_weight", switchback_linear_weight_updated(layer));
  CHECK_FAILS(SWITCHBACK_INVALID_STATE, "set_weight",
              switchback_linear_weight_may_have_changed(layer));
  switchback_linear_destroy(layer);
  switchback_linear_destroy(trained);
}

/* A layer on a second context reads the weight of the first, also after that is gone. */
static void shared_weight(switchback_context* context, int32_t mode) {
  switchback_linear* first = new_layer(context, mode);
  switchback_context* second = cpu_context(1);
  switchback_linear* layer = NULL;
  const switchback_matrix mw = matrix_of(w, SWITCHBACK_F32, N, K);
  const switchback_matrix mbias = matrix_of(bias, SWITCHBACK_F32, 1, N);
  const switchback_matrix mx = matrix_of(x, SWITCHBACK_F32, M, K);
  const switchback_matrix my = matrix_of(y, SWITCHBACK_F32, M, N);
  const switchback_matrix my2 = matrix_of(y2, SWITCHBACK_F32, M, N);
  CHECK_OK(switchback_linear_set_weight(first, &mw, &mbias));
  CHECK_FAILS(SWITCHBACK_INVALID_STATE, "prepare_for_eval",
              switchback_linear_share(first, second, &layer));
  CHECK_OK(switchback_linear_prepare_for_eval(first));
  CHECK_OK(switchback_linear_forward(first, &mx, &my, SWITCHBACK_SAVE_NOTHING));
  CHECK_INVALID("out is a null", switchback_linear_share(first, second, NULL));
  CHECK(layer == NULL);
  CHECK_OK(switchback_linear_share(first, second, &layer));
  size_t of_first = 0, of_layer = 0;
  CHECK_OK(switchback_linear_cached_weight_bytes(first, &of_first));
  CHECK_OK(switchback_linear_cached_weight_bytes(layer, &of_layer));
  CHECK(of_first == of_layer);
  switchback_linear_grads grads = grads_into(dx, NULL, NULL);
  CHECK_OK(switchback_linear_backward_from(first, &grads, NULL, NULL));
  switchback_linear_destroy(first);
  mark(y2, sizeof(y2));
  CHECK_OK(switchback_linear_forward(layer, &mx, &my2, SWITCHBACK_SAVE_NOTHING));
  CHECK(memcmp(y, y2, sizeof(y)) == 0);
  switchback_linear_grads grads2 = grads_into(dx2, NULL, NULL);
  CHECK_OK(switchback_linear_backward_from(layer, &grads2, NULL, NULL));
  CHECK(memcmp(dx, dx2, sizeof(dx)) == 0);
  switchback_context_destroy(second);
  switchback_linear_destroy(layer);
}

void linear_kept_tests(void) {
  ref_fill(x, M * K, 1);
  ref_fill(other_x, M * K, 5);
  ref_fill(w, N * K, 2);
  ref_fill(bias, N, 3);
  ref_fill(g, M * N, 4);
  switchback_context* context = cpu_context(2);
  CHECK_INVALID("no stream", switchback_context_set_stream(context, (void*)(uintptr_t)1));
  CHECK_INVALID("context is a null", switchback_context_set_stream(NULL, NULL));
  for (int32_t mode = SWITCHBACK_STANDARD; mode <= SWITCHBACK_GLOBAL_MEM_EFFICIENT; ++mode) {
    kept_input(context, mode);
    shared_weight(context, mode);
    if (mode != SWITCHBACK_STANDARD) quantized_weight(context, mode);
  }
  switchback_context_destroy(context);
}
