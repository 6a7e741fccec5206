/* SPDX-License-Identifier: Apache-2.0 */
/* Uses an installed switchback from C: quantizes two rows, and reads an error. */
#include <stdio.h>
#include <string.h>

#include <switchback/switchback.h>

int main(void) {
  float x[2][3] = {{1.0f, -2.0f, 0.5f}, {0.0f, 0.0f, 0.0f}};
  float absmax[2] = {-1.0f, -1.0f};
  int8_t q[2][3];
  const int8_t want[2][3] = {{64, -127, 32}, {0, 0, 0}}; /* 63.5 rounds to even, 31.75 to nearest */
  const switchback_matrix mx = {x, SWITCHBACK_F32, 2, 3, 3};
  const switchback_matrix mq = {q, SWITCHBACK_S8, 2, 3, 3};
  switchback_context_options options;
  switchback_context* context = NULL;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.device = "cpu";
  if ((switchback_abi_version() >> 16) != SWITCHBACK_ABI_VERSION_MAJOR) return 1;
  if (switchback_context_create(&options, &context) != SWITCHBACK_OK ||
      switchback_quantize_rowwise(context, &mx, &mq, absmax) != SWITCHBACK_OK) {
    fprintf(stderr, "consumer: %s\n", switchback_last_error());
    return 1;
  }
  if (memcmp(q, want, sizeof q) != 0 || absmax[0] != 2.0f || absmax[1] != 0.0f) {
    fprintf(stderr, "consumer: wrong codes\n");
    return 1;
  }
  if (switchback_quantize_rowwise(context, &mx, NULL, absmax) != SWITCHBACK_INVALID_ARGUMENT ||
      strstr(switchback_last_error(), "q is a null pointer") == NULL) {
    fprintf(stderr, "consumer: the error says '%s'\n", switchback_last_error());
    return 1;
  }
  switchback_context_destroy(context);
  printf("C: switchback %s\n", switchback_version_string());
  return 0;
}
