/* SPDX-License-Identifier: Apache-2.0 */
/* Tuned configurations through the C ABI: the options of a context, its counters, and layers in
 * mode auto. */
#include "capi/harness.h"

static switchback_context* context_with(const char* tune) {
  /* A cache directory that does not exist counts as empty, and reading does not create it. */
  const switchback_context_options options = {.struct_size = sizeof(options),
                                              .device = "cpu",
                                              .threads = 1,
                                              .tune = tune,
                                              .tune_cache = "no such folder"};
  switchback_context* context = NULL;
  CHECK_OK(switchback_context_create(&options, &context));
  return context;
}

/* Quantizes twice in a context of this mode, and checks the number of misses. */
static void quantize_with(const char* tune, switchback_status wanted, int64_t misses) {
  float x[6] = {1, -2, 3, 0.5f, 0, -1};
  int8_t q[6];
  float absmax[2];
  const switchback_matrix from = f32(x, 2, 3), to = s8(q, 2, 3);
  switchback_context* context = context_with(tune);
  for (int i = 0; i < 2; ++i)
    CHECK(switchback_quantize_rowwise(context, &from, &to, absmax) == wanted);
  const switchback_context_info info = info_of(context);
  CHECK(info.tune_hits == 0 && info.tune_misses == misses && info.tune_refused == 0);
  const char* warnings = NULL;
  CHECK_OK(switchback_context_tune_warnings(context, &warnings));
  CHECK(warnings != NULL && warnings[0] == '\0');
  switchback_context_destroy(context);
}

/* Checks in which mode the passes of a layer in mode auto run, if it may use only some modes. */
static void layer_in_mode_auto(uint32_t allow, int32_t mode) {
  switchback_context* context = context_with("read");
  switchback_linear_options options = linear_options(4, 4, SWITCHBACK_AUTO);
  options.allow = allow;
  switchback_linear* layer = layer_of(context, options);
  float w[16] = {1, 2, 3};
  const switchback_matrix weight = f32(w, 4, 4);
  CHECK_OK(switchback_linear_set_weight(layer, &weight, NULL));
  int32_t forward = -1, dx = -1;
  CHECK_OK(switchback_linear_pass_modes(layer, 2, SWITCHBACK_SAVE_COPY, &forward, &dx));
  CHECK(forward == mode && dx == mode);
  switchback_linear_destroy(layer);
  switchback_context_destroy(context);
}

void tune_tests(void) {
  quantize_with("off", SWITCHBACK_OK, 0);
  quantize_with("read", SWITCHBACK_OK, 2);
  quantize_with("require", SWITCHBACK_UNSUPPORTED, 2);
  CHECK(strstr(switchback_last_error(), "is not in the cache") != NULL);
  layer_in_mode_auto(0, SWITCHBACK_STANDARD); /* nothing is tuned */
  layer_in_mode_auto(1u << SWITCHBACK_ROWWISE, SWITCHBACK_ROWWISE);
  layer_in_mode_auto(1u << SWITCHBACK_ROWWISE_SHARED, SWITCHBACK_ROWWISE_SHARED);
}
