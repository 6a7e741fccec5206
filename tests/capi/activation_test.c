/* SPDX-License-Identifier: Apache-2.0 */
/* Activations through the C ABI: the operations, and the layer's options and gradients. */
#include <math.h>
#include <stddef.h>

#include "capi/harness.h"

enum { M = 5, N = 4, K = 9 };

static float x[M * K], w[N * K], g[M * N], y[M * N], y2[M * N], a[M * K], da[M * K];
static float dx[M * K], dx2[M * K], dw[N * K], dw2[N * K], db[N], db2[N], dy[M * N];
static int8_t q[M * K], q2[M * K], qg[M * N], qg2[M * N];
static float absmax[M], absmax2[M], sums[N], sums2[N];

static void fill(void) {
  for (int i = 0; i < M * K; ++i)
    x[i] = (float)((i * 37) % 29 - 14) / 5.0f;
  for (int i = 0; i < N * K; ++i)
    w[i] = (float)((i * 23) % 19 - 9) / 20.0f;
  for (int i = 0; i < M * N; ++i)
    g[i] = (float)((i * 11) % 17 - 8) / 30.0f;
}

static void operations(switchback_context* context) {
  const switchback_matrix mx = matrix_of(x, SWITCHBACK_F32, M, K);
  const switchback_matrix ma = matrix_of(a, SWITCHBACK_F32, M, K);
  const switchback_matrix mq = matrix_of(q, SWITCHBACK_S8, M, K);
  const switchback_matrix mq2 = matrix_of(q2, SWITCHBACK_S8, M, K);
  const int32_t both[] = {SWITCHBACK_GELU_TANH, SWITCHBACK_GELU_ERF};
  for (size_t i = 0; i < COUNT(both); ++i) {
    CHECK_OK(switchback_activation_forward(context, &mx, both[i], &ma));
    for (int e = 0; e < M * K; ++e) {
      const double v = x[e];
      const double want =
          both[i] == SWITCHBACK_GELU_ERF
              ? v / 2 * (1 + erf(v / sqrt(2.0)))
              : v / 2 * (1 + tanh(sqrt(2 / 3.14159265358979) * (v + 0.044715 * v * v * v)));
      CHECK(fabs(a[e] - want) < 1e-6); /* 2^-22 . |x| is 7e-7 at most */
    }
    CHECK_OK(switchback_quantize_rowwise(context, &ma, &mq, absmax));
    CHECK_OK(switchback_activation_forward_quantize(context, &mx, both[i], &mq2, absmax2, NULL));
    CHECK(memcmp(q, q2, sizeof(q)) == 0 && memcmp(absmax, absmax2, sizeof(absmax)) == 0);

    const switchback_matrix mg = matrix_of(g, SWITCHBACK_F32, M, N);
    const switchback_matrix my = matrix_of(x, SWITCHBACK_F32, M, N);
    const switchback_matrix mdy = matrix_of(dy, SWITCHBACK_F32, M, N);
    const switchback_matrix mdy2 = matrix_of(y2, SWITCHBACK_F32, M, N);
    const switchback_matrix mqg = matrix_of(qg, SWITCHBACK_S8, M, N);
    const switchback_matrix mqg2 = matrix_of(qg2, SWITCHBACK_S8, M, N);
    CHECK_OK(switchback_activation_backward(context, &mg, &my, both[i], &mdy));
    CHECK_OK(switchback_quantize_rowwise_column_sums(context, &mdy, &mqg, absmax, sums, 0));
    CHECK_OK(switchback_activation_backward_quantize(context, &mg, &my, both[i], &mdy2, &mqg2,
                                                     absmax2, sums2, 0));
    CHECK(memcmp(dy, y2, sizeof(dy)) == 0 && memcmp(qg, qg2, sizeof(qg)) == 0);
    CHECK(memcmp(absmax, absmax2, sizeof(absmax)) == 0);
    CHECK(memcmp(sums, sums2, sizeof(sums)) == 0);
    CHECK_OK(switchback_activation_backward_quantize(context, &mg, &my, both[i], &mdy2, &mqg2,
                                                     absmax2, NULL, 0));
  }
  mark(a, sizeof(a));
  CHECK_INVALID("activation_forward: activation = 7; it must be gelu_tanh (1) or gelu_erf (2)",
                switchback_activation_forward(context, &mx, 7, &ma));
  CHECK_INVALID("activation_forward: y is a null pointer",
                switchback_activation_forward(context, &mx, SWITCHBACK_GELU_ERF, NULL));
  CHECK_INVALID("activation_backward: g is a null pointer",
                switchback_activation_backward(context, NULL, &mx, SWITCHBACK_GELU_ERF, &ma));
  CHECK_INVALID(
      "activation_forward_quantize: context is a null pointer",
      switchback_activation_forward_quantize(NULL, &mx, SWITCHBACK_GELU_ERF, &mq, absmax, NULL));
  CHECK_INVALID("activation_backward_quantize: accumulate = 2; it must be 0 or 1",
                switchback_activation_backward_quantize(context, &mx, &mx, SWITCHBACK_GELU_ERF, &ma,
                                                        &mq, absmax, NULL, 2));
  CHECK(untouched(a, sizeof(a)));
}

static switchback_linear* layer_with(switchback_context* context, int32_t activation, size_t size) {
  switchback_linear_options options;
  memset(&options, 0xFF, sizeof(options)); /* what is beyond `size` is not looked at */
  options.struct_size = size;
  options.in_features = K;
  options.out_features = N;
  options.mode = SWITCHBACK_ROWWISE;
  options.dtype = SWITCHBACK_F32;
  options.engine = NULL;
  options.allow = 0;
  if (size == sizeof(options)) {
    options.activation = activation;
    options.overlap_dw = 1; /* of no effect on a CPU */
    options.dw = SWITCHBACK_DW_FLOATING;
    options.dw_block_rows = 0;
    options.rotation = 0;
    options.transposed_weight = 0;
  }
  switchback_linear* layer = NULL;
  CHECK_OK(switchback_linear_create(context, &options, &layer));
  const switchback_matrix mw = matrix_of(w, SWITCHBACK_F32, N, K);
  CHECK_OK(switchback_linear_set_weight(layer, &mw, NULL));
  return layer;
}

static switchback_linear_grads grads_into(float* to_dx, float* to_dw, float* to_db) {
  return linear_grads(M, K, N, g, to_dx, to_dw, to_db);
}

static void layers(switchback_context* context) {
  const switchback_matrix mx = matrix_of(x, SWITCHBACK_F32, M, K);
  const switchback_matrix ma = matrix_of(a, SWITCHBACK_F32, M, K);
  const switchback_matrix mda = matrix_of(da, SWITCHBACK_F32, M, K);
  const switchback_matrix mdx2 = matrix_of(dx2, SWITCHBACK_F32, M, K);
  const switchback_matrix my = matrix_of(y, SWITCHBACK_F32, M, N);
  const switchback_matrix my2 = matrix_of(y2, SWITCHBACK_F32, M, N);
  switchback_linear_options known;
  switchback_linear* fused = layer_with(context, SWITCHBACK_GELU_ERF, sizeof(known));
  /* As a program of ABI 1.3 would make it, with padding that nobody set. */
  switchback_linear* plain =
      layer_with(context, 0, offsetof(switchback_linear_options, activation));
  CHECK_OK(switchback_activation_forward(context, &mx, SWITCHBACK_GELU_ERF, &ma));
  CHECK_OK(switchback_linear_forward(fused, &mx, &my, SWITCHBACK_SAVE_COPY));
  CHECK_OK(switchback_linear_forward(plain, &ma, &my2, SWITCHBACK_SAVE_COPY));
  CHECK(memcmp(y, y2, sizeof(y)) == 0);

  switchback_linear_grads grads = grads_into(dx, dw, db);
  switchback_linear_grads old_grads = grads_into(da, dw2, db2);
  old_grads.struct_size = offsetof(switchback_linear_grads, y);
  old_grads.reserved = -1;
  old_grads.dx_of_activation = 77; /* beyond the struct */
  CHECK_OK(switchback_linear_backward(fused, &grads));
  CHECK_OK(switchback_linear_backward(plain, &old_grads));
  CHECK(memcmp(dw, dw2, sizeof(dw)) == 0 && memcmp(db, db2, sizeof(db)) == 0);
  CHECK_OK(switchback_activation_backward(context, &mda, &mx, SWITCHBACK_GELU_ERF, &mdx2));
  CHECK(memcmp(dx, dx2, sizeof(dx)) == 0);
  grads.dx_of_activation = 1;
  CHECK_OK(switchback_linear_backward(fused, &grads));
  CHECK(memcmp(dx, da, sizeof(dx)) == 0);

  /* g as the gradient of GELU(y). */
  const switchback_matrix mg = matrix_of(g, SWITCHBACK_F32, M, N);
  const switchback_matrix mdy = matrix_of(dy, SWITCHBACK_F32, M, N);
  CHECK_OK(switchback_activation_backward(context, &mg, &my2, SWITCHBACK_GELU_TANH, &mdy));
  grads = grads_into(dx, dw, db);
  grads.y = my2;
  grads.y_activation = SWITCHBACK_GELU_TANH;
  CHECK_OK(switchback_linear_backward(plain, &grads));
  old_grads = grads_into(dx2, dw2, db2);
  old_grads.g = mdy;
  CHECK_OK(switchback_linear_backward(plain, &old_grads));
  CHECK(memcmp(dx, dx2, sizeof(dx)) == 0);
  CHECK(memcmp(dw, dw2, sizeof(dw)) == 0 && memcmp(db, db2, sizeof(db)) == 0);

  grads.y.data = NULL;
  CHECK_INVALID("backward: y is [0,0]; it must be [M of the saved forward,N] = [5,4]",
                switchback_linear_backward(plain, &grads));
  grads.y_activation = 5;
  CHECK_INVALID("y_activation = 5", switchback_linear_backward(plain, &grads));
  grads.y_activation = SWITCHBACK_NO_ACTIVATION;
  grads.dx_of_activation = 2;
  CHECK_INVALID("dx_of_activation = 2; it must be 0 or 1",
                switchback_linear_backward(plain, &grads));
  switchback_linear_destroy(fused);
  switchback_linear_destroy(plain);

  switchback_linear_options options;
  memset(&options, 0, sizeof(options));
  options.struct_size = sizeof(options);
  options.in_features = options.out_features = 4;
  options.mode = SWITCHBACK_ROWWISE;
  options.activation = 3;
  switchback_linear* none = NULL;
  CHECK_INVALID("linear: activation = 3; it must be none (0), gelu_tanh (1) or gelu_erf (2)",
                switchback_linear_create(context, &options, &none));
  CHECK(none == NULL);
  options.activation = 0;
  options.overlap_dw = 3;
  CHECK_INVALID("linear_create: overlap_dw = 3; it must be 0 or 1",
                switchback_linear_create(context, &options, &none));
  CHECK(none == NULL);
}

void activation_tests(void) {
  switchback_context* context = cpu_context(1);
  fill();
  operations(context);
  layers(context);
  switchback_context_destroy(context);
}
