/* SPDX-License-Identifier: Apache-2.0 */
/* Test support: a reference in the shortest C code for results that the library must give bit
 * for bit. All matrices are dense and f32. */
#ifndef SWITCHBACK_TESTS_CAPI_REFERENCE_H
#define SWITCHBACK_TESTS_CAPI_REFERENCE_H

#include <math.h>
#include <stdint.h>

/* Computes the codes q[rows,cols] and the scales absmax[rows] of the rows of x[rows,cols]. */
static inline void ref_quantize_rowwise(const float* x, int64_t rows, int64_t cols, int8_t* q,
                                        float* absmax) {
  for (int64_t r = 0; r < rows; ++r) {
    absmax[r] = 0.0f;
    for (int64_t c = 0; c < cols; ++c)
      absmax[r] = fmaxf(absmax[r], fabsf(x[r * cols + c]));
    for (int64_t c = 0; c < cols; ++c)
      q[r * cols + c] =
          absmax[r] == 0.0f ? 0 : (int8_t)rintf(127.0f * (x[r * cols + c] / absmax[r]));
  }
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

/* The scaled product d[m,n] of the codes a and b with their scales, absmax_b * (absmax_a * (sum *
 * c)) (+ bias); count_b, the number of b's scales, is n or 1. */
static inline void ref_gemm_dequantize(const int8_t* a, const int8_t* b, int64_t m, int64_t n,
                                       int64_t k, const float* absmax_a, const float* absmax_b,
                                       int64_t count_b, const float* bias, float* d) {
  const float scale = 0x1.040C2p-14f; /* 1 / 127^2 in f32, bits 0x38820610 */
  for (int64_t r = 0; r < m; ++r)
    for (int64_t c = 0; c < n; ++c) {
      int32_t sum = 0;
      ref_gemm_s8s8s32(a + r * k, b + c * k, 1, 1, k, &sum);
      const float y = absmax_b[count_b == 1 ? 0 : c] * (absmax_a[r] * ((float)sum * scale));
      d[r * n + c] = bias == NULL ? y : y + bias[c];
    }
}

/* d[m,n], the sums of a[r * row_a + i * step_a] * b[c * row_b + i * step_b] over k values of i. */
static inline void ref_product(const float* a, int64_t row_a, int64_t step_a, const float* b,
                               int64_t row_b, int64_t step_b, int64_t m, int64_t n, int64_t k,
                               float* d) {
  for (int64_t r = 0; r < m; ++r)
    for (int64_t c = 0; c < n; ++c) {
      float sum = 0.0f;
      for (int64_t i = 0; i < k; ++i)
        sum += a[r * row_a + i * step_a] * b[c * row_b + i * step_b];
      d[r * n + c] = sum;
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
