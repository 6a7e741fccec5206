/* SPDX-License-Identifier: Apache-2.0 */
/* How structs that begin with struct_size may differ from the library's: older, newer, nonsense. */
#include <stddef.h>

#include "capi/harness.h"

/* A struct from the future: ours, and a tail that we do not know. */
union future_options {
  switchback_context_options known;
  unsigned char bytes[4200];
};

static void refused_sizes(void) {
  static union future_options options;
  memset(&options, 0, sizeof(options));
  options.known.device = "cpu";
  options.known.threads = 1;
  const size_t now = sizeof(switchback_context_options);
  const size_t first = offsetof(switchback_context_options, isa);
  const size_t second = offsetof(switchback_context_options, allocate);
  const size_t third = offsetof(switchback_context_options, tune);
  switchback_context* context = NULL;
  int accepted = 0;
  for (size_t size = 0; size <= sizeof(options.bytes); ++size) {
    options.known.struct_size = size;
    const switchback_status status = switchback_context_create(&options.known, &context);
    const int known =
        size == first || size == second || size == third || (size >= now && size <= 4096);
    if (known) {
      ++accepted;
      if (status != SWITCHBACK_OK) CHECK(status == SWITCHBACK_OK);
      switchback_context_destroy(context);
      context = NULL;
    } else {
      if (status != SWITCHBACK_INVALID_ARGUMENT) CHECK(status == SWITCHBACK_INVALID_ARGUMENT);
      if (context != NULL) CHECK(context == NULL);
    }
  }
  CHECK(accepted == (int)(3 + 4096 - now + 1));
  options.known.struct_size = SIZE_MAX;
  CHECK_INVALID("struct_size", switchback_context_create(&options.known, &context));
  options.known.struct_size = 0;
  CHECK_INVALID("struct_size = 0; it must be sizeof the struct",
                switchback_context_create(&options.known, &context));
  CHECK(context == NULL);
}

static void older_struct_gets_defaults(void) {
  switchback_context_options options;
  memset(&options, 0, sizeof(options));
  options.struct_size = offsetof(switchback_context_options, isa);
  options.device = "cpu";
  options.threads = 1;
  options.isa = "no such level"; /* beyond the struct: not even looked at */
  switchback_context* context = NULL;
  CHECK_OK(switchback_context_create(&options, &context));
  switchback_context_destroy(context);
}

static void unknown_tail_must_be_zero(void) {
  static union future_options options;
  memset(&options, 0, sizeof(options));
  options.known.device = "cpu";
  options.known.threads = 1;
  options.known.struct_size = sizeof(options.known) + 16;
  switchback_context* context = NULL;
  CHECK_OK(switchback_context_create(&options.known, &context));
  switchback_context_destroy(context);
  context = NULL;
  options.bytes[sizeof(options.known) + 15] = 1;
  CHECK_INVALID("does not know; it must be zero",
                switchback_context_create(&options.known, &context));
  CHECK(context == NULL);
  options.known.struct_size = sizeof(options.known) + 15; /* the byte is outside now */
  CHECK_OK(switchback_context_create(&options.known, &context));
  switchback_context_destroy(context);
}

/* Every struct that has a struct_size follows the rules. */
static void every_struct(void) {
  switchback_context* context = cpu_context(1);
  static const size_t bad_sizes[] = {0, 1, sizeof(size_t), 24, 4097, SIZE_MAX};
  for (size_t i = 0; i < COUNT(bad_sizes); ++i) {
    switchback_gemm_args gemm;
    memset(&gemm, 0, sizeof(gemm));
    gemm.struct_size = bad_sizes[i];
    CHECK_INVALID("args has struct_size", switchback_gemm_dequantize(context, &gemm));
    switchback_gemm_standard_args standard;
    memset(&standard, 0, sizeof(standard));
    standard.struct_size = bad_sizes[i];
    CHECK_INVALID("args has struct_size", switchback_gemm_standard(context, &standard));
    switchback_linear_options options;
    memset(&options, 0, sizeof(options));
    options.struct_size = bad_sizes[i];
    switchback_linear* linear = NULL;
    CHECK_INVALID("options has struct_size", switchback_linear_create(context, &options, &linear));
    CHECK(linear == NULL);
    options.struct_size = sizeof(options);
    options.in_features = options.out_features = 4;
    options.mode = SWITCHBACK_ROWWISE;
    CHECK_OK(switchback_linear_create(context, &options, &linear));
    switchback_linear_grads grads;
    memset(&grads, 0, sizeof(grads));
    grads.struct_size = bad_sizes[i];
    CHECK_INVALID("grads has struct_size", switchback_linear_backward(linear, &grads));
    switchback_linear_destroy(linear);
  }
  CHECK_INVALID("args is a null", switchback_gemm_dequantize(context, NULL));
  CHECK_INVALID("args is a null", switchback_gemm_standard(context, NULL));
  switchback_linear* linear = NULL;
  CHECK_INVALID("options is a null", switchback_linear_create(context, NULL, &linear));
  switchback_context_destroy(context);
}

void struct_size_tests(void) {
  refused_sizes();
  older_struct_gets_defaults();
  unknown_tail_must_be_zero();
  every_struct();
}
