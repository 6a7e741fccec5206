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
  made.layer = layer_of(made.context, linear_options(k, n, mode));
  const switchback_matrix w = f32(m->w, n, k);
  const switchback_matrix bias = f32(m->bias, 1, n);
  CHECK_OK(switchback_linear_set_weight(made.layer, &w, &bias));
  return made;
}

static void destroy(owned it) {
  switchback_linear_destroy(it.layer);
  switchback_context_destroy(it.context);
}

static void step(owned it, numbers* m) {
  const switchback_matrix x = f32(m->x, rows, k);
  const switchback_matrix y = f32(m->y, rows, n);
  mark(m->y, sizeof(m->y));
  mark(m->dx, sizeof(m->dx));
  mark(m->dw, sizeof(m->dw));
  mark(m->db, sizeof(m->db));
  const switchback_linear_grads grads = linear_grads(rows, k, n, m->g, m->dx, m->dw, m->db);
  CHECK_OK(switchback_linear_weight_updated(it.layer));
  CHECK_OK(switchback_linear_forward(it.layer, &x, &y, SWITCHBACK_SAVE_BORROW, NULL));
  CHECK_OK(switchback_linear_backward(it.layer, &grads, NULL));
}

static void check_same(const numbers* a, const numbers* b) {
  CHECK(SAME(a->y, b->y) && SAME(a->dx, b->dx) && SAME(a->dw, b->dw) && SAME(a->db, b->db));
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
  for (size_t i = 0; i < COUNT(modes); ++i)
    in_mode(modes[i]);
  printf("%d checks, %d failed\n", checks_made, checks_failed);
  return checks_failed == 0 ? 0 : 1;
}
