/* SPDX-License-Identifier: Apache-2.0 */
/* The fragmented layer through the C ABI. With one fragment every row selects all of its input with
 * weight 1, so that the results have the bits of a plain layer. */
#include "capi/harness.h"

enum { B = 5, K = 24, N = 10, F = 4, R = 3 };

static switchback_context* context;
static float x[B * K], w[N * K], s[K], down[R * K], up[N * R], g[B * N];
static float y[B * N], dx[B * K], dw[N * K], ds[K], ddown[R * K], dup[N * R];
static float want_y[B * N], want_dx[B * K], want_dw[N * K];
static uint32_t seed = 1;

static void fill(float* values, int count) {
  for (int i = 0; i < count; ++i) {
    seed = seed * 1664525u + 1013904223u;
    values[i] = (float)((int32_t)(seed >> 8) - (1 << 23)) / (float)(1 << 23);
  }
}

static switchback_fragmented_linear_options good_options(int64_t fragments) {
  switchback_fragmented_linear_options options;
  memset(&options, 0, sizeof(options));
  options.struct_size = sizeof(options);
  options.in_features = K;
  options.out_features = N;
  options.fragments = fragments;
  options.rank = R;
  options.mode = SWITCHBACK_ROWWISE;
  return options;
}

static switchback_fragmented_weights good_weights(int64_t fragments) {
  switchback_fragmented_weights weights;
  memset(&weights, 0, sizeof(weights));
  weights.struct_size = sizeof(weights);
  weights.weight = matrix_of(w, SWITCHBACK_F32, N, K);
  weights.selector = matrix_of(s, SWITCHBACK_F32, fragments, K / fragments);
  weights.down = matrix_of(down, SWITCHBACK_F32, R, K);
  weights.up = matrix_of(up, SWITCHBACK_F32, N, R);
  return weights;
}

static switchback_fragmented_linear_grads good_grads(int64_t fragments) {
  switchback_fragmented_linear_grads grads;
  memset(&grads, 0, sizeof(grads));
  grads.struct_size = sizeof(grads);
  grads.g = matrix_of(g, SWITCHBACK_F32, B, N);
  grads.dx = matrix_of(dx, SWITCHBACK_F32, B, K);
  grads.dweight = matrix_of(dw, SWITCHBACK_F32, N, K);
  grads.dselector = matrix_of(ds, SWITCHBACK_F32, fragments, K / fragments);
  grads.ddown = matrix_of(ddown, SWITCHBACK_F32, R, K);
  grads.dup = matrix_of(dup, SWITCHBACK_F32, N, R);
  return grads;
}

static switchback_fragmented_linear* new_layer(int64_t fragments) {
  const switchback_fragmented_linear_options options = good_options(fragments);
  const switchback_fragmented_weights weights = good_weights(fragments);
  switchback_fragmented_linear* layer = NULL;
  CHECK_OK(switchback_fragmented_linear_create(context, &options, &layer));
  CHECK_OK(switchback_fragmented_linear_set_weights(layer, &weights));
  return layer;
}

static int same(const float* a, const float* b, int count) {
  for (int i = 0; i < count; ++i)
    if (!(a[i] == b[i])) return 0;
  return 1;
}

static void one_fragment_is_a_layer(void) {
  const switchback_matrix mx = matrix_of(x, SWITCHBACK_F32, B, K);
  const switchback_matrix my = matrix_of(y, SWITCHBACK_F32, B, N);
  const switchback_matrix mwant = matrix_of(want_y, SWITCHBACK_F32, B, N);
  const switchback_matrix mw = matrix_of(w, SWITCHBACK_F32, N, K);
  switchback_linear* plain = new_linear(context, K, N, SWITCHBACK_ROWWISE);
  CHECK_OK(switchback_linear_set_weight(plain, &mw, NULL));
  CHECK_OK(switchback_linear_forward(plain, &mx, &mwant, SWITCHBACK_SAVE_BORROW, NULL));
  switchback_linear_grads plain_grads = linear_grads(B, K, N, g, want_dx, want_dw, NULL);
  CHECK_OK(switchback_linear_backward(plain, &plain_grads, NULL));

  switchback_fragmented_linear* layer = new_layer(1);
  const switchback_fragmented_linear_grads grads = good_grads(1);
  switchback_layer_info info = zero_layer_info();
  for (int borrowed = 0; borrowed < 2; ++borrowed) {
    memset(y, 0x55, sizeof(y));
    memset(dw, 0x55, sizeof(dw));
    memset(dx, 0x55, sizeof(dx));
    CHECK_OK(switchback_fragmented_linear_forward(
        layer, &mx, &my, borrowed ? SWITCHBACK_SAVE_BORROW : SWITCHBACK_SAVE_CALLER));
    if (borrowed) {
      CHECK_OK(switchback_fragmented_linear_get_info(layer, &info));
      CHECK(info.saved_for_backward_bytes == sizeof(x));
      CHECK_OK(switchback_fragmented_linear_backward(layer, &grads, NULL));
    } else {
      CHECK_OK(switchback_fragmented_linear_backward(layer, &grads, &mx));
    }
    CHECK(same(y, want_y, B * N));
    CHECK(same(dx, want_dx, B * K));
    CHECK(same(dw, want_dw, N * K));
    for (int i = 0; i < K; ++i) /* a softmax over one logit has a gradient of zero */
      CHECK(ds[i] == 0.0f);
  }
  memset(y, 0x55, sizeof(y));
  CHECK_OK(switchback_fragmented_linear_forward_hard(layer, &mx, &my));
  CHECK(same(y, want_y, B * N));
  CHECK_OK(switchback_fragmented_linear_prepare_for_eval(layer));
  CHECK_OK(switchback_fragmented_linear_get_info(layer, &info));
  CHECK(info.cached_weight_bytes >= N * K);
  memset(y, 0x55, sizeof(y));
  CHECK_OK(switchback_fragmented_linear_forward_hard(layer, &mx, &my));
  CHECK(same(y, want_y, B * N));
  CHECK_FAILS(SWITCHBACK_INVALID_STATE, "prepared for eval",
              switchback_fragmented_linear_forward(layer, &mx, &my, 0));
  CHECK_OK(switchback_fragmented_linear_weights_updated(layer));
  CHECK_OK(switchback_fragmented_linear_forward(layer, &mx, &my, 0));
  CHECK(same(y, want_y, B * N));
  switchback_fragmented_linear_destroy(layer);
  switchback_linear_destroy(plain);
}

void fragmented_tests(void) {
  context = cpu_context(2);
  fill(x, B * K);
  fill(w, N * K);
  fill(s, K);
  fill(down, R * K);
  fill(up, N * R);
  fill(g, B * N);
  one_fragment_is_a_layer();
  switchback_context_destroy(context);
}
