/* SPDX-License-Identifier: Apache-2.0 */
/* The C ABI as a program in C uses it: compiled as C11, linked to the shared library that users
 * install. */
#include "capi/harness.h"

int checks_failed = 0;
int checks_made = 0;

static void run(const char* name, void (*suite)(void)) {
  const int made = checks_made;
  const int failed = checks_failed;
  suite();
  printf("%s: %d checks, %d failed\n", name, checks_made - made, checks_failed - failed);
  if (checks_made == made) { /* a suite without checks is a failure */
    ++checks_failed;
    fprintf(stderr, "%s made no checks\n", name);
  }
}

int main(void) {
  run("layout", layout_tests);
  run("context", context_tests);
  run("quant", quant_tests);
  run("gemm", gemm_tests);
  run("linear", linear_tests);
  run("tune", tune_tests);
  run("groups", grouped_tests);
  run("fragments", fragmented_tests);
  printf("%d checks, %d failed\n", checks_made, checks_failed);
  return checks_failed == 0 ? 0 : 1;
}
