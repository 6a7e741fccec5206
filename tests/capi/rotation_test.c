/* SPDX-License-Identifier: Apache-2.0 */
/* Rotation through the C ABI: the operations, and the layer's option. */
#include <math.h>
#include <stddef.h>

#include "capi/harness.h"

enum { M = 5, N = 4, K = 32 };

static float x[M * K], rotated[M * K], again[M * K], w[N * K], w_rotated[N * K];
static float y[M * N], y2[M * N], dx[M * K], dx2[M * K], g[M * N];
static int8_t q[M * K], q2[M * K], qw[N * K];
static float absmax[M], absmax2[M], absmax_w[N];

static void fill(void) {
  for (int i = 0; i < M * K; ++i)
    x[i] = (float)((i * 37) % 29 - 14) / 5.0f;
  for (int i = 0; i < N * K; ++i)
    w[i] = (float)((i * 23) % 19 - 9) / 20.0f;
  for (int i = 0; i < M * N; ++i)
    g[i] = (float)((i * 11) % 17 - 8) / 30.0f;
}

/* Element (r, c) of H4, or of H4 kron H4: H4 is 1/2 everywhere but on the other diagonal, where it
 * is -1/2. */
static double dense(int group, int r, int c) {
  const double low = r % 4 + c % 4 == 3 ? -0.5 : 0.5;
  const double high = r / 4 + c / 4 == 3 ? -0.5 : 0.5;
  return group == 4 ? low : low * high;
}

static void operations(switchback_context* context, int group) {
  const switchback_matrix mx = matrix_of(x, SWITCHBACK_F32, M, K);
  const switchback_matrix mr = matrix_of(rotated, SWITCHBACK_F32, M, K);
  const switchback_matrix mq = matrix_of(q, SWITCHBACK_S8, M, K);
  const switchback_matrix mq2 = matrix_of(q2, SWITCHBACK_S8, M, K);
  CHECK_OK(switchback_rotate(context, &mx, group, &mr));
  for (int r = 0; r < M; ++r)
    for (int c = 0; c < K; ++c) {
      double want = 0;
      for (int i = 0; i < group; ++i)
        want += dense(group, c % group, i) * x[r * K + c / group * group + i];
      CHECK(fabs(rotated[r * K + c] - want) < 1e-5); /* |x| <= 3, 16 of them, 2^-24 each */
    }
  CHECK_OK(switchback_quantize_rowwise(context, &mr, &mq, absmax));
  CHECK_OK(
      switchback_rotate_quantize(context, &mx, SWITCHBACK_NO_ACTIVATION, group, &mq2, absmax2));
  CHECK(memcmp(q, q2, sizeof(q)) == 0 && memcmp(absmax, absmax2, sizeof(absmax)) == 0);

  const switchback_matrix ma = matrix_of(again, SWITCHBACK_F32, M, K);
  CHECK_OK(switchback_activation_forward(context, &mx, SWITCHBACK_GELU_ERF, &ma));
  CHECK_OK(switchback_rotate(context, &ma, group, &ma)); /* in place */
  CHECK_OK(switchback_quantize_rowwise(context, &ma, &mq, absmax));
  CHECK_OK(switchback_rotate_quantize(context, &mx, SWITCHBACK_GELU_ERF, group, &mq2, absmax2));
  CHECK(memcmp(q, q2, sizeof(q)) == 0 && memcmp(absmax, absmax2, sizeof(absmax)) == 0);

  mark(again, sizeof(again));
  CHECK_INVALID("rotate: rotation = 0; it must be one of hadamard_4 (4), hadamard_16 (16)",
                switchback_rotate(context, &mx, 0, &ma));
  CHECK_INVALID("rotate: K = 32; it must be a multiple of the rotation's group, 64",
                switchback_rotate(context, &mx, 64, &ma));
  CHECK_INVALID("rotate: y is a null pointer", switchback_rotate(context, &mx, group, NULL));
  CHECK_INVALID("rotate: x is a null pointer", switchback_rotate(context, NULL, group, &ma));
  CHECK_INVALID("rotate: context is a null pointer", switchback_rotate(NULL, &mx, group, &ma));
  CHECK_INVALID("rotate_quantize: q is a null pointer",
                switchback_rotate_quantize(context, &mx, 0, group, NULL, absmax));
  CHECK_INVALID("rotate_quantize: activation = 7; it must be gelu_tanh (1) or gelu_erf (2)",
                switchback_rotate_quantize(context, &mx, 7, group, &mq, absmax));
  CHECK(untouched(again, sizeof(again)));
}

static switchback_linear* create(switchback_context* context, int32_t rotation) {
  switchback_linear_options options;
  memset(&options, 0, sizeof(options));
  options.struct_size = sizeof(options);
  options.in_features = K;
  options.out_features = N;
  options.mode = SWITCHBACK_ROWWISE;
  options.rotation = rotation;
  switchback_linear* layer = NULL;
  CHECK_OK(switchback_linear_create(context, &options, &layer));
  return layer;
}

static void layers(switchback_context* context, int group) {
  const switchback_matrix mx = matrix_of(x, SWITCHBACK_F32, M, K);
  const switchback_matrix mr = matrix_of(rotated, SWITCHBACK_F32, M, K);
  const switchback_matrix mw = matrix_of(w, SWITCHBACK_F32, N, K);
  const switchback_matrix mwr = matrix_of(w_rotated, SWITCHBACK_F32, N, K);
  const switchback_matrix mqw = matrix_of(qw, SWITCHBACK_S8, N, K);
  const switchback_matrix my = matrix_of(y, SWITCHBACK_F32, M, N);
  const switchback_matrix my2 = matrix_of(y2, SWITCHBACK_F32, M, N);
  const switchback_matrix mdx = matrix_of(dx, SWITCHBACK_F32, M, K);
  const switchback_matrix mdx2 = matrix_of(dx2, SWITCHBACK_F32, M, K);
  switchback_linear* layer = create(context, group);
  switchback_linear* plain = create(context, 0);
  CHECK_OK(switchback_rotate(context, &mx, group, &mr));
  CHECK_OK(switchback_rotate(context, &mw, group, &mwr));
  CHECK_OK(switchback_linear_set_weight(layer, &mw, NULL));
  CHECK_OK(switchback_linear_set_weight(plain, &mwr, NULL));
  CHECK_OK(switchback_linear_forward(layer, &mx, &my, SWITCHBACK_SAVE_COPY));
  CHECK_OK(switchback_linear_forward(plain, &mr, &my2, SWITCHBACK_SAVE_COPY));
  CHECK(memcmp(y, y2, sizeof(y)) == 0);
  switchback_linear_grads grads = linear_grads(M, K, N, g, dx, NULL, NULL);
  grads.dw.data = grads.db.data = NULL;
  CHECK_OK(switchback_linear_backward(layer, &grads));
  grads.dx = mdx2;
  CHECK_OK(switchback_linear_backward(plain, &grads));
  CHECK_OK(switchback_rotate(context, &mdx2, group, &mdx2));
  CHECK(memcmp(dx, dx2, sizeof(dx)) == 0);
  (void)mdx;

  /* Codes of the rotated weight, as a checkpoint holds them. */
  CHECK_OK(
      switchback_rotate_quantize(context, &mw, SWITCHBACK_NO_ACTIVATION, group, &mqw, absmax_w));
  CHECK_OK(switchback_linear_set_quantized_weight(layer, &mqw, absmax_w, N, NULL));
  CHECK_OK(switchback_linear_forward(layer, &mx, &my2, SWITCHBACK_SAVE_NOTHING));
  CHECK(memcmp(y, y2, sizeof(y)) == 0);
  switchback_linear_destroy(layer);
  switchback_linear_destroy(plain);
}

static void refused_layers(switchback_context* context) {
  switchback_linear_options options;
  memset(&options, 0, sizeof(options));
  options.struct_size = sizeof(options);
  options.in_features = K;
  options.out_features = N;
  options.mode = SWITCHBACK_ROWWISE;
  options.rotation = 64;
  switchback_linear* none = NULL;
  CHECK_INVALID("linear: in_features = 32; it must be a multiple of the rotation's group, 64",
                switchback_linear_create(context, &options, &none));
  options.rotation = 8;
  CHECK_INVALID("linear: rotation = 8; it must be one of hadamard_4 (4)",
                switchback_linear_create(context, &options, &none));
  options.rotation = 16;
  options.mode = SWITCHBACK_STANDARD;
  CHECK_INVALID("linear: rotation = 16 in mode standard",
                switchback_linear_create(context, &options, &none));
  /* As a program of ABI 1.8 would make it. */
  options.mode = SWITCHBACK_ROWWISE;
  options.rotation = 8;
  options.struct_size = offsetof(switchback_linear_options, rotation);
  CHECK_OK(switchback_linear_create(context, &options, &none));
  switchback_linear_destroy(none);
}

void rotation_tests(void) {
  switchback_context* context = cpu_context(1);
  fill();
  for (int group = 4; group <= 16; group *= 4) {
    operations(context, group);
    layers(context, group);
  }
  refused_layers(context);
  switchback_context_destroy(context);
}
