/* SPDX-License-Identifier: Apache-2.0 */
/* The fragmented layer through the C ABI. With one fragment every row selects all of its input with
 * weight 1, so that the results have the bits of a plain layer. */
#include "capi/harness.h"
#include "capi/reference.h"

enum { B = 5, K = 24, N = 10, R = 3 };

static switchback_context* context;
static float x[B * K], w[N * K], s[K], down[R * K], up[N * R], g[B * N];
static float y[B * N], dx[B * K], dw[N * K], ds[K], ddown[R * K], dup[N * R];
static float want_y[B * N], want_dx[B * K], want_dw[N * K];

static void plain_layer(void) {
  const switchback_matrix mx = f32(x, B, K), mwant = f32(want_y, B, N), mw = f32(w, N, K);
  switchback_linear* plain = layer_of(context, linear_options(K, N, SWITCHBACK_ROWWISE));
  CHECK_OK(switchback_linear_set_weight(plain, &mw, NULL));
  CHECK_OK(switchback_linear_forward(plain, &mx, &mwant, SWITCHBACK_SAVE_BORROW, NULL));
  const switchback_linear_grads grads = linear_grads(B, K, N, g, want_dx, want_dw, NULL);
  CHECK_OK(switchback_linear_backward(plain, &grads, NULL));
  switchback_linear_destroy(plain);
}

static switchback_layer_info info_of_fragments(const switchback_fragmented_linear* layer) {
  switchback_layer_info info = {.struct_size = sizeof(info)};
  CHECK_OK(switchback_fragmented_linear_get_info(layer, &info));
  return info;
}

static void one_fragment_is_a_layer(void) {
  const switchback_matrix mx = f32(x, B, K), my = f32(y, B, N);
  const switchback_fragmented_linear_options options = {.struct_size = sizeof(options),
                                                        .in_features = K,
                                                        .out_features = N,
                                                        .fragments = 1,
                                                        .rank = R,
                                                        .mode = SWITCHBACK_ROWWISE};
  const switchback_fragmented_weights weights = {.struct_size = sizeof(weights),
                                                 .weight = f32(w, N, K),
                                                 .selector = f32(s, 1, K),
                                                 .down = f32(down, R, K),
                                                 .up = f32(up, N, R)};
  switchback_fragmented_linear_grads grads = {.struct_size = sizeof(grads),
                                              .g = f32(g, B, N),
                                              .dx = f32(dx, B, K),
                                              .dweight = f32(dw, N, K),
                                              .dselector = f32(ds, 1, K),
                                              .ddown = f32(ddown, R, K),
                                              .dup = f32(dup, N, R)};
  switchback_fragmented_linear* layer = NULL;
  CHECK_OK(switchback_fragmented_linear_create(context, &options, &layer));
  CHECK_OK(switchback_fragmented_linear_set_weights(layer, &weights));
  for (int borrowed = 0; borrowed < 2; ++borrowed) {
    mark(y, sizeof(y));
    mark(dw, sizeof(dw));
    mark(dx, sizeof(dx));
    mark(ds, sizeof(ds));
    CHECK_OK(switchback_fragmented_linear_forward(
        layer, &mx, &my, borrowed ? SWITCHBACK_SAVE_BORROW : SWITCHBACK_SAVE_CALLER));
    CHECK(info_of_fragments(layer).saved_for_backward_bytes == (borrowed ? sizeof(x) : 0));
    CHECK_OK(switchback_fragmented_linear_backward(layer, &grads, borrowed ? NULL : &mx));
    CHECK(SAME(y, want_y) && SAME(dx, want_dx) && SAME(dw, want_dw));
    for (int i = 0; i < K; ++i)
      CHECK(ds[i] == 0.0f); /* a softmax over one logit has a gradient of zero */
  }
  grads.accumulate = 1;
  CHECK_OK(switchback_fragmented_linear_backward(layer, &grads, NULL));
  CHECK(SAME(dx, want_dx) && dw[3] == 2.0f * want_dw[3]);
  for (int is_for_eval = 0; is_for_eval < 2; ++is_for_eval) {
    if (is_for_eval) CHECK_OK(switchback_fragmented_linear_prepare_for_eval(layer));
    mark(y, sizeof(y));
    CHECK_OK(switchback_fragmented_linear_forward_hard(layer, &mx, &my));
    CHECK(SAME(y, want_y));
  }
  CHECK(info_of_fragments(layer).cached_weight_bytes >= N * K);
  CHECK_FAILS(SWITCHBACK_INVALID_STATE, "prepared for eval",
              switchback_fragmented_linear_forward(layer, &mx, &my, 0));
  CHECK_OK(switchback_fragmented_linear_weights_updated(layer));
  CHECK_OK(switchback_fragmented_linear_forward(layer, &mx, &my, 0));
  CHECK(SAME(y, want_y));
  switchback_fragmented_linear_destroy(layer);
}

void fragmented_tests(void) {
  context = cpu_context(2);
  ref_fill(x, B * K, 1);
  ref_fill(w, N * K, 2);
  ref_fill(s, K, 3);
  ref_fill(down, R * K, 4);
  ref_fill(up, N * R, 5);
  ref_fill(g, B * N, 6);
  plain_layer();
  one_fragment_is_a_layer();
  switchback_context_destroy(context);
}
