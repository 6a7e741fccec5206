/* SPDX-License-Identifier: Apache-2.0 */
/* Test support: a reference in the shortest C code for results that the library must give bit
 * for bit. All matrices are dense and f32. */
#ifndef SWITCHBACK_TESTS_CAPI_REFERENCE_H
#define SWITCHBACK_TESTS_CAPI_REFERENCE_H

#include <math.h>
#include <stdint.h>

/* The largest |x| of n elements that are `step` apart. */
static inline float ref_absmax(const float* x, int64_t n, int64_t step) {
  float absmax = 0.0f;
  for (int64_t i = 0; i < n; ++i)
    absmax = fmaxf(absmax, fabsf(x[i * step]));
  return absmax;
}

static inline int8_t ref_code(float x, float absmax) {
  return absmax == 0.0f ? 0 : (int8_t)rintf(127.0f * (x / absmax));
}

/* Computes the codes q[rows,cols] and the scales absmax[rows] of the rows of x[rows,cols]. */
static inline void ref_quantize_rowwise(const float* x, int64_t rows, int64_t cols, int8_t* q,
                                        float* absmax) {
  for (int64_t r = 0; r < rows; ++r) {
    absmax[r] = ref_absmax(x + r * cols, cols, 1);
    for (int64_t c = 0; c < cols; ++c)
      q[r * cols + c] = ref_code(x[r * cols + c], absmax[r]);
  }
}

/* Computes the codes q_t[cols,rows] and the scales absmax[cols] of the columns of x[rows,cols]. */
static inline void ref_quantize_columnwise_transpose(const float* x, int64_t rows, int64_t cols,
                                                     int8_t* q_t, float* absmax) {
  for (int64_t c = 0; c < cols; ++c) {
    absmax[c] = ref_absmax(x + c, rows, cols);
    for (int64_t r = 0; r < rows; ++r)
      q_t[c * rows + r] = ref_code(x[r * cols + c], absmax[c]);
  }
}

/* Computes the codes q[rows,cols], their transpose q_t[cols,rows], and the one scale absmax[1]
 * of x[rows,cols]. */
static inline void ref_quantize_global(const float* x, int64_t rows, int64_t cols, int8_t* q,
                                       int8_t* q_t, float* absmax) {
  *absmax = ref_absmax(x, rows * cols, 1);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c)
      q[r * cols + c] = q_t[c * rows + r] = ref_code(x[r * cols + c], *absmax);
}

/* int32 sums: d[m,n] = a[m,k] . b[n,k]^T */
static inline void ref_gemm_s8s8s32(const int8_t* a, const int8_t* b, int64_t m, int64_t n,
                                    int64_t k, int32_t* d) {
  for (int64_t r = 0; r < m; ++r)
    for (int64_t c = 0; c < n; ++c) {
      int32_t sum = 0;
      for (int64_t i = 0; i < k; ++i)
        sum += (int32_t)a[r * k + i] * b[c * k + i];
      d[r * n + c] = sum;
    }
}

/* One element of a result: absmax_b * (absmax_a * (sum * c)) (+ bias). */
static inline float ref_dequantize(int32_t sum, float absmax_a, float absmax_b, const float* bias) {
  const float c = 0x1.040C2p-14f; /* 1 / 127^2 in f32, bits 0x38820610 */
  const float y = absmax_b * (absmax_a * ((float)sum * c));
  return bias == NULL ? y : y + *bias;
}

/* The scaled product d[m,n] of the codes a and b with their scales; count_b, the number of b's
 * scales, is n or 1. */
static inline void ref_gemm_dequantize(const int8_t* a, const int8_t* b, int64_t m, int64_t n,
                                       int64_t k, const float* absmax_a, const float* absmax_b,
                                       int64_t count_b, const float* bias, float* d) {
  for (int64_t r = 0; r < m; ++r)
    for (int64_t c = 0; c < n; ++c) {
      int32_t sum = 0;
      ref_gemm_s8s8s32(a + r * k, b + c * k, 1, 1, k, &sum);
      d[r * n + c] = ref_dequantize(sum, absmax_a[r], absmax_b[count_b == 1 ? 0 : c],
                                    bias == NULL ? NULL : bias + c);
    }
}

/* Fills x with integers from -16 to 16, in an irregular order: every product, and every sum of a
 * few thousand products, is exact in f32. */
static inline void ref_fill(float* x, int64_t n, uint32_t seed) {
  uint32_t state = seed * 2654435761u + 12345u;
  for (int64_t i = 0; i < n; ++i) {
    state = state * 1664525u + 1013904223u;
    x[i] = (float)((int32_t)(state >> 24) % 33 - 16);
  }
}

#endif
