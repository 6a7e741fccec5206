/* SPDX-License-Identifier: Apache-2.0 */
/* Tuned configurations through the C ABI: the options of a context, its counters, and layers in
 * mode auto. */
#include <stddef.h>

#include "capi/harness.h"

static switchback_context* context_with(const char* tune, const char* cache) {
  switchback_context_options options;
  memset(&options, 0, sizeof(options));
  options.struct_size = sizeof(options);
  options.device = "cpu";
  options.threads = 1;
  options.tune = tune;
  options.tune_cache = cache;
  switchback_context* context = NULL;
  CHECK_OK(switchback_context_create(&options, &context));
  return context;
}

static void quantize_something(switchback_context* context, switchback_status wanted) {
  float x[6] = {1, -2, 3, 0.5f, 0, -1};
  int8_t q[6];
  float absmax[2];
  const switchback_matrix from = matrix_of(x, SWITCHBACK_F32, 2, 3);
  const switchback_matrix to = matrix_of(q, SWITCHBACK_S8, 2, 3);
  CHECK(switchback_quantize_rowwise(context, &from, &to, absmax) == wanted);
}

static void modes_and_counters(void) {
  const char* warnings = NULL;
  switchback_context* context = context_with("off", NULL);
  quantize_something(context, SWITCHBACK_OK);
  switchback_context_info info = info_of(context);
  CHECK(info.tune_hits == 0 && info.tune_misses == 0 && info.tune_refused == 0);
  CHECK_OK(switchback_context_tune_warnings(context, &warnings));
  CHECK(warnings != NULL && warnings[0] == '\0');
  switchback_context_destroy(context);

  /* A cache directory that does not exist counts as empty, and reading does not create it. */
  context = context_with("read", "no such folder");
  quantize_something(context, SWITCHBACK_OK);
  quantize_something(context, SWITCHBACK_OK);
  info = info_of(context);
  CHECK(info.tune_hits == 0 && info.tune_misses == 2 && info.tune_refused == 0);
  switchback_context_destroy(context);

  context = context_with("require", "no such folder");
  quantize_something(context, SWITCHBACK_UNSUPPORTED);
  CHECK(strstr(switchback_last_error(), "is not in the cache") != NULL);
  switchback_context_destroy(context);
}

static void layers_in_mode_auto(void) {
  switchback_context* context = context_with("read", "no such folder");
  switchback_linear_options options = linear_options(4, 4, SWITCHBACK_AUTO);
  switchback_linear* layer = NULL;
  CHECK_OK(switchback_linear_create(context, &options, &layer));
  float w[16], x[8], y[8];
  for (int i = 0; i < 16; ++i)
    w[i] = (float)(i % 5) - 2;
  for (int i = 0; i < 8; ++i)
    x[i] = (float)(i % 3) - 1;
  const switchback_matrix weight = matrix_of(w, SWITCHBACK_F32, 4, 4);
  const switchback_matrix in = matrix_of(x, SWITCHBACK_F32, 2, 4);
  const switchback_matrix out = matrix_of(y, SWITCHBACK_F32, 2, 4);
  CHECK_OK(switchback_linear_set_weight(layer, &weight, NULL));
  CHECK_OK(switchback_linear_forward(layer, &in, &out, SWITCHBACK_SAVE_NOTHING, NULL));
  int exact = 1; /* nothing is tuned, so auto is standard, with exact sums */
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 4; ++j) {
      float sum = 0;
      for (int k = 0; k < 4; ++k)
        sum += x[4 * i + k] * w[4 * j + k];
      exact = exact && sum == y[4 * i + j];
    }
  CHECK(exact);
  int32_t forward = -1, dx = -1;
  CHECK_OK(switchback_linear_pass_modes(layer, 2, SWITCHBACK_SAVE_COPY, &forward, &dx));
  CHECK(forward == SWITCHBACK_STANDARD && dx == SWITCHBACK_STANDARD);
  switchback_linear_destroy(layer);

  layer = NULL;
  options.allow = 1u << SWITCHBACK_ROWWISE;
  CHECK_OK(switchback_linear_create(context, &options, &layer));
  CHECK_OK(switchback_linear_set_weight(layer, &weight, NULL));
  CHECK_OK(switchback_linear_pass_modes(layer, 2, SWITCHBACK_SAVE_COPY, &forward, &dx));
  CHECK(forward == SWITCHBACK_ROWWISE && dx == SWITCHBACK_ROWWISE);
  switchback_linear_destroy(layer);

  layer = NULL;
  options.allow = 1u << SWITCHBACK_ROWWISE_SHARED;
  CHECK_OK(switchback_linear_create(context, &options, &layer));
  CHECK_OK(switchback_linear_set_weight(layer, &weight, NULL));
  CHECK_OK(switchback_linear_pass_modes(layer, 2, SWITCHBACK_SAVE_COPY, &forward, &dx));
  CHECK(forward == SWITCHBACK_ROWWISE_SHARED && dx == SWITCHBACK_ROWWISE_SHARED);
  switchback_linear_destroy(layer);
  switchback_context_destroy(context);
}

void tune_tests(void) {
  modes_and_counters();
  layers_in_mode_auto();
}
