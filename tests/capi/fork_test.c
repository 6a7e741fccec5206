/* SPDX-License-Identifier: Apache-2.0 */
/* fork() after the library was used: the child continues with the parent's context, creates
 * another, and destroys both. The child's results equal the parent's to the bit, and the child
 * ends. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "capi/harness.h"

int checks_failed = 0;
int checks_made = 0;

enum { rows = 64, k = 256, n = 128, patience_s = 60 };

/* Operands are small integers: every sum of their products is exact. So a floating point product
 * has the same bits in any order of its sums, which may change with the number of threads. */
typedef struct {
  float x[rows * k], w[n * k], bias[n], g[rows * n];
  float y[rows * n], dx[rows * k], dw[n * k], db[n];
} numbers;

static void fill(float* values, int count, int seed) {
  for (int i = 0; i < count; ++i)
    values[i] = (float)((i * 37 + seed) % 7 - 3);
}

static numbers* new_numbers(void) {
  numbers* m = calloc(1, sizeof(numbers));
  if (m == NULL) exit(1);
  fill(m->x, rows * k, 1);
  fill(m->w, n * k, 2);
  fill(m->bias, n, 3);
  fill(m->g, rows * n, 4);
  return m;
}

typedef struct {
  switchback_context* context;
  switchback_linear* layer;
} owned;

static owned make(int32_t mode, numbers* m) {
  owned made = {NULL, NULL};
  made.context = cpu_context(2);
  made.layer = new_linear(made.context, k, n, mode);
  const switchback_matrix w = matrix_of(m->w, SWITCHBACK_F32, n, k);
  const switchback_matrix bias = matrix_of(m->bias, SWITCHBACK_F32, 1, n);
  CHECK_OK(switchback_linear_set_weight(made.layer, &w, &bias));
  return made;
}

static void destroy(owned it) {
  switchback_linear_destroy(it.layer);
  switchback_context_destroy(it.context);
}

static void step(owned it, numbers* m) {
  const switchback_matrix x = matrix_of(m->x, SWITCHBACK_F32, rows, k);
  const switchback_matrix y = matrix_of(m->y, SWITCHBACK_F32, rows, n);
  memset(m->y, 0, sizeof(m->y));
  memset(m->dx, 0, sizeof(m->dx));
  memset(m->dw, 0, sizeof(m->dw));
  memset(m->db, 0, sizeof(m->db));
  switchback_linear_grads grads;
  memset(&grads, 0, sizeof(grads));
  grads.struct_size = sizeof(grads);
  grads.g = matrix_of(m->g, SWITCHBACK_F32, rows, n);
  grads.dx = matrix_of(m->dx, SWITCHBACK_F32, rows, k);
  grads.dw = matrix_of(m->dw, SWITCHBACK_F32, n, k);
  grads.db = matrix_of(m->db, SWITCHBACK_F32, 1, n);
  CHECK_OK(switchback_linear_weight_updated(it.layer));
  CHECK_OK(switchback_linear_forward(it.layer, &x, &y, SWITCHBACK_SAVE_BORROW, NULL));
  CHECK_OK(switchback_linear_backward(it.layer, &grads, NULL));
}

static void check_same(const numbers* a, const numbers* b) {
  CHECK(memcmp(a->y, b->y, sizeof(a->y)) == 0);
  CHECK(memcmp(a->dx, b->dx, sizeof(a->dx)) == 0);
  CHECK(memcmp(a->dw, b->dw, sizeof(a->dw)) == 0);
  CHECK(memcmp(a->db, b->db, sizeof(a->db)) == 0);
}

static void in_mode(int32_t mode) {
  numbers* want = new_numbers();
  numbers* got = new_numbers();
  owned parents = make(mode, want);
  step(parents, want);
  const pid_t child = fork();
  if (child == 0) {
    alarm(patience_s);
    checks_failed = 0;
    step(parents, got);
    check_same(want, got);
    owned own = make(mode, got);
    step(own, got);
    check_same(want, got);
    destroy(parents);
    step(own, got);
    check_same(want, got);
    destroy(own);
    _exit(checks_failed == 0 ? 0 : 1);
  }
  CHECK(child > 0);
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(!WIFSIGNALED(status)); /* not ended by SIGALRM, which would mean that it hung */
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  step(parents, got);
  check_same(want, got);
  destroy(parents);
  free(want);
  free(got);
}

int main(void) {
  const int32_t modes[] = {SWITCHBACK_ROWWISE, SWITCHBACK_GLOBAL, SWITCHBACK_GLOBAL_MEM_EFFICIENT,
                           SWITCHBACK_STANDARD};
  for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); ++i)
    in_mode(modes[i]);
  printf("%d checks, %d failed\n", checks_made, checks_failed);
  return checks_failed == 0 ? 0 : 1;
}
