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
  return (switchback_matrix){data, dtype, rows, cols, cols};
}
static inline switchback_matrix f32(float* data, int64_t rows, int64_t cols) {
  return matrix_of(data, SWITCHBACK_F32, rows, cols);
}
static inline switchback_matrix s8(int8_t* data, int64_t rows, int64_t cols) {
  return matrix_of(data, SWITCHBACK_S8, rows, cols);
}

/* A context on the CPU with this number of threads; NULL (and a failed check) if it cannot be
 * created. */
static inline switchback_context* cpu_context(int32_t threads) {
  const switchback_context_options options = {
      .struct_size = sizeof(options), .device = "cpu", .threads = threads};
  switchback_context* context = NULL;
  CHECK_OK(switchback_context_create(&options, &context));
  return context;
}

static inline switchback_context_info info_of(const switchback_context* context) {
  switchback_context_info info = {.struct_size = sizeof(info)};
  CHECK_OK(switchback_context_get_info(context, &info));
  return info;
}

/* Options of an f32 layer with K inputs and N outputs. */
static inline switchback_linear_options linear_options(int64_t k, int64_t n, int32_t mode) {
  return (switchback_linear_options){.struct_size = sizeof(switchback_linear_options),
                                     .in_features = k,
                                     .out_features = n,
                                     .mode = mode,
                                     .dtype = SWITCHBACK_F32};
}

/* A layer without a weight. */
static inline switchback_linear* layer_of(switchback_context* context,
                                          switchback_linear_options options) {
  switchback_linear* layer = NULL;
  CHECK_OK(switchback_linear_create(context, &options, &layer));
  return layer;
}

/* Gradients of an f32 layer: all four matrices. */
static inline switchback_linear_grads linear_grads(int64_t m, int64_t k, int64_t n, float* g,
                                                   float* dx, float* dw, float* db) {
  return (switchback_linear_grads){.struct_size = sizeof(switchback_linear_grads),
                                   .g = f32(g, m, n),
                                   .dx = f32(dx, m, k),
                                   .dw = f32(dw, n, k),
                                   .db = f32(db, 1, n)};
}

/* A layer's input, as the caller keeps it between forward and backward. */
static inline switchback_kept_input kept_of(switchback_matrix x, float* absmax, int32_t in_blocks) {
  return (switchback_kept_input){sizeof(switchback_kept_input), x, absmax, in_blocks};
}

static inline switchback_layer_info info_of_layer(const switchback_linear* layer) {
  switchback_layer_info info = {.struct_size = sizeof(info)};
  CHECK_OK(switchback_linear_get_info(layer, &info));
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

/* Whether two arrays of one size have the same bytes. */
#define SAME(a, b) (memcmp((a), (b), sizeof(a)) == 0)
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
