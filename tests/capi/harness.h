/* SPDX-License-Identifier: Apache-2.0 */
/* Test support for tests in plain C: checks that count failures, and matrices on arrays. */
#ifndef SWITCHBACK_TESTS_CAPI_HARNESS_H
#define SWITCHBACK_TESTS_CAPI_HARNESS_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "switchback/switchback.h"

extern int checks_failed;
extern int checks_made;

static inline int check_at(int ok, const char* file, int line, const char* what) {
  ++checks_made;
  if (!ok) {
    ++checks_failed;
    fprintf(stderr, "%s:%d: failed: %s\n  last error: \"%s\"\n", file, line, what,
            switchback_last_error());
  }
  return ok;
}
#define CHECK(condition) check_at((condition) ? 1 : 0, __FILE__, __LINE__, #condition)
#define CHECK_OK(call) CHECK((call) == SWITCHBACK_OK)

/* Checks that the call failed with this status, and that the last error contains this text. */
static inline void check_error_at(switchback_status got, switchback_status want, const char* text,
                                  const char* file, int line, const char* what) {
  const int right = got == want && strstr(switchback_last_error(), text) != NULL;
  if (!check_at(right, file, line, what))
    fprintf(stderr, "  status %s, wanted %s; the error should contain \"%s\"\n",
            switchback_status_name(got), switchback_status_name(want), text);
}
#define CHECK_FAILS(want, text, call) \
  check_error_at((call), (want), (text), __FILE__, __LINE__, #call)
#define CHECK_INVALID(text, call) CHECK_FAILS(SWITCHBACK_INVALID_ARGUMENT, text, call)

static inline switchback_matrix matrix_of(void* data, int32_t dtype, int64_t rows, int64_t cols) {
  switchback_matrix m;
  memset(&m, 0, sizeof(m));
  m.data = data;
  m.dtype = dtype;
  m.rows = rows;
  m.cols = cols;
  m.stride = cols;
  return m;
}

/* A context on the CPU with this number of threads; NULL (and a failed check) if it cannot be
 * created. */
static inline switchback_context* cpu_context(int32_t threads) {
  switchback_context_options options;
  memset(&options, 0, sizeof(options));
  options.struct_size = sizeof(options);
  options.device = "cpu";
  options.threads = threads;
  switchback_context* context = NULL;
  CHECK_OK(switchback_context_create(&options, &context));
  return context;
}

static inline switchback_context_info info_of(const switchback_context* context) {
  switchback_context_info info;
  memset(&info, 0, sizeof(info));
  info.struct_size = sizeof(info);
  CHECK_OK(switchback_context_get_info(context, &info));
  return info;
}

/* Options of an f32 layer with K inputs and N outputs. */
static inline switchback_linear_options linear_options(int64_t k, int64_t n, int32_t mode) {
  switchback_linear_options options;
  memset(&options, 0, sizeof(options));
  options.struct_size = sizeof(options);
  options.in_features = k;
  options.out_features = n;
  options.mode = mode;
  options.dtype = SWITCHBACK_F32;
  return options;
}

/* An f32 layer without a weight. */
static inline switchback_linear* new_linear(switchback_context* context, int64_t k, int64_t n,
                                            int32_t mode) {
  const switchback_linear_options options = linear_options(k, n, mode);
  switchback_linear* layer = NULL;
  CHECK_OK(switchback_linear_create(context, &options, &layer));
  return layer;
}

/* Gradients of an f32 layer: all four matrices. */
static inline switchback_linear_grads linear_grads(int64_t m, int64_t k, int64_t n, float* g,
                                                   float* dx, float* dw, float* db) {
  switchback_linear_grads grads;
  memset(&grads, 0, sizeof(grads));
  grads.struct_size = sizeof(grads);
  grads.g = matrix_of(g, SWITCHBACK_F32, m, n);
  grads.dx = matrix_of(dx, SWITCHBACK_F32, m, k);
  grads.dw = matrix_of(dw, SWITCHBACK_F32, n, k);
  grads.db = matrix_of(db, SWITCHBACK_F32, 1, n);
  return grads;
}

/* A layer's input, as the caller keeps it between forward and backward. */
static inline switchback_kept_input kept_of(const switchback_matrix* x, float* absmax,
                                            int32_t in_blocks) {
  switchback_kept_input kept;
  memset(&kept, 0, sizeof(kept));
  kept.struct_size = sizeof(kept);
  kept.x = *x;
  kept.absmax = absmax;
  kept.in_blocks = in_blocks;
  return kept;
}

static inline switchback_layer_info zero_layer_info(void) {
  switchback_layer_info info;
  memset(&info, 0, sizeof(info));
  info.struct_size = sizeof(info);
  return info;
}

/* Outputs are filled with this byte before calls that must fail, and checked afterwards. */
enum { untouched_byte = 0x5A };
static inline void mark(void* data, size_t bytes) {
  memset(data, untouched_byte, bytes);
}
static inline int untouched(const void* data, size_t bytes) {
  const unsigned char* p = (const unsigned char*)data;
  for (size_t i = 0; i < bytes; ++i)
    if (p[i] != untouched_byte) return 0;
  return 1;
}

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* The test suites that main.c runs. */
void layout_tests(void);
void context_tests(void);
void quant_tests(void);
void gemm_tests(void);
void linear_tests(void);
void tune_tests(void);
void grouped_tests(void);
void fragmented_tests(void);

#endif
