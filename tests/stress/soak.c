/* SPDX-License-Identifier: Apache-2.0
 * A client that never stops: layers of random shapes, modes and types are made, trained, prepared
 * for eval and destroyed on one context, as in a server whose requests are never alike. Memory must
 * stay flat. Every report is taken when no layer is alive, so that only what the context itself
 * keeps is counted; the largest of the last half of the reports may exceed the largest of those
 * before, from the warm-up's end on, only by the slack below. */
#define _DEFAULT_SOURCE 1

#include <inttypes.h>
#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <switchback/switchback.h>
#include <time.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1 /* freed memory stays with the sanitizer: there is nothing to measure */
#else
#define SANITIZED 0
#endif

enum { slots = 8, modes = 5, most_reports = 4096 };

/* Memory that rounds of allocations of unequal sizes may leave by chance. A leak of one problem's
 * configuration (about a kilobyte) in each call adds up to far more. */
static const size_t slack_bytes = (size_t)1 << 20;

typedef struct settings {
  double seconds; /* 0: by layers alone */
  int64_t layers; /* 0: by seconds alone */
  int64_t every;  /* layers between two reports */
  int64_t most;   /* largest size of a matrix */
  int32_t threads;
  const char* tune;
  const char* cache;
  uint64_t seed;
} settings;

typedef struct layer {
  switchback_linear* linear;
  int64_t n, k;
  int32_t mode, dtype, activation;
  void* weight;
  float* bias;
} layer;

typedef struct report {
  size_t in_use, resident, workspace;
} report;

static uint64_t state;

static uint64_t next_random(void) { /* splitmix64 */
  uint64_t z = (state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

static int64_t below(int64_t end) {
  return (int64_t)(next_random() % (uint64_t)end);
}

/* A random size from 1 to `most`; small sizes are more frequent than large ones. */
static int64_t random_size(int64_t most) {
  const int64_t range = 1 + below(most);
  return 1 + below(range);
}

static double now_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void fail(const char* what) {
  fprintf(stderr, "soak: %s\n", what);
  exit(1);
}

static void ok(switchback_status status, const char* call) {
  if (status == SWITCHBACK_OK) return;
  fprintf(stderr, "soak: %s: %s: %s\n", call, switchback_status_name(status),
          switchback_last_error());
  exit(1);
}

static size_t element_bytes(int32_t dtype) {
  return dtype == SWITCHBACK_F32 ? 4 : 2;
}

/* Numbers of about one in any of the three types, without a conversion: the bits of +-[0.5, 2) in
 * f32 and in bf16 (its upper half), and those of f16. */
static void* random_matrix(int64_t rows, int64_t cols, int32_t dtype) {
  const int64_t count = rows * cols;
  void* const data = malloc((size_t)count * element_bytes(dtype) + 1);
  if (data == NULL) fail("no memory for an operand");
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t bits = next_random();
    if (dtype == SWITCHBACK_F32) {
      ((uint32_t*)data)[i] = (uint32_t)((bits & 0x80ffffffu) | 0x3f000000u);
    } else if (dtype == SWITCHBACK_BF16) {
      ((uint16_t*)data)[i] = (uint16_t)((bits & 0x80ffu) | 0x3f00u);
    } else {
      ((uint16_t*)data)[i] = (uint16_t)((bits & 0x87ffu) | 0x3800u);
    }
  }
  return data;
}

static switchback_matrix matrix(void* data, int32_t dtype, int64_t rows, int64_t cols) {
  const switchback_matrix m = {data, dtype, rows, cols, cols};
  return m;
}

static void destroy_layer(layer* l) {
  switchback_linear_destroy(l->linear);
  free(l->weight);
  free(l->bias);
  memset(l, 0, sizeof *l);
}

static void make_layer(switchback_context* context, layer* l, int64_t most) {
  static const int32_t dtypes[] = {SWITCHBACK_F32, SWITCHBACK_F16, SWITCHBACK_BF16};
  destroy_layer(l);
  l->n = random_size(most);
  l->k = random_size(most);
  l->mode = (int32_t)below(modes);
  l->dtype = dtypes[below(3)];
  l->activation = (int32_t)below(3);
  const switchback_linear_options options = {.struct_size = sizeof options,
                                             .in_features = l->k,
                                             .out_features = l->n,
                                             .mode = l->mode,
                                             .dtype = l->dtype,
                                             .activation = l->activation};
  ok(switchback_linear_create(context, &options, &l->linear), "linear_create");
  l->weight = random_matrix(l->n, l->k, l->dtype);
  l->bias = below(2) != 0 ? random_matrix(1, l->n, SWITCHBACK_F32) : NULL;
  const switchback_matrix weight = matrix(l->weight, l->dtype, l->n, l->k);
  const switchback_matrix bias = matrix(l->bias, SWITCHBACK_F32, 1, l->n);
  ok(switchback_linear_set_weight(l->linear, &weight, l->bias != NULL ? &bias : NULL),
     "linear_set_weight");
}

/* One training step with a random number M of rows. */
static void train(layer* l, int64_t most) {
  const int64_t m = random_size(most);
  void* const x = random_matrix(m, l->k, l->dtype);
  void* const g = random_matrix(m, l->n, l->dtype);
  void* const y = random_matrix(m, l->n, l->dtype);
  float* const dx = random_matrix(m, l->k, SWITCHBACK_F32);
  float* const dw = random_matrix(l->n, l->k, SWITCHBACK_F32);
  float* const db = random_matrix(1, l->n, SWITCHBACK_F32);
  const switchback_matrix mx = matrix(x, l->dtype, m, l->k);
  const switchback_matrix my = matrix(y, l->dtype, m, l->n);
  ok(switchback_linear_forward(l->linear, &mx, &my,
                               below(2) != 0 ? SWITCHBACK_SAVE_COPY : SWITCHBACK_SAVE_BORROW, NULL),
     "linear_forward");
  const switchback_linear_grads grads = {
      .struct_size = sizeof grads,
      .g = matrix(g, l->dtype, m, l->n),
      .dx = matrix(dx, SWITCHBACK_F32, m, l->k),
      .dw = matrix(dw, SWITCHBACK_F32, l->n, l->k),
      .db = matrix(db, SWITCHBACK_F32, 1, l->n),
      .dx_of_activation =
          l->activation != SWITCHBACK_NO_ACTIVATION && l->mode == SWITCHBACK_GLOBAL_MEM_EFFICIENT};
  ok(switchback_linear_backward(l->linear, &grads, NULL), "linear_backward");
  if (!isfinite(dx[0]) || !isfinite(dw[0]) || !isfinite(db[0])) fail("a gradient is not finite");
  ok(switchback_linear_weight_updated(l->linear), "linear_weight_updated");
  free(x);
  free(g);
  free(y);
  free(dx);
  free(dw);
  free(db);
}

/* The same forward twice has the same bits, prepared or not. */
static void infer(layer* l, int64_t most) {
  const int64_t m = random_size(most);
  const size_t bytes = (size_t)(m * l->n) * element_bytes(l->dtype);
  void* const x = random_matrix(m, l->k, l->dtype);
  void* const first = random_matrix(m, l->n, l->dtype);
  void* const second = random_matrix(m, l->n, l->dtype);
  const switchback_matrix mx = matrix(x, l->dtype, m, l->k);
  const switchback_matrix my = matrix(first, l->dtype, m, l->n);
  const switchback_matrix again = matrix(second, l->dtype, m, l->n);
  ok(switchback_linear_forward(l->linear, &mx, &my, SWITCHBACK_SAVE_NOTHING, NULL),
     "linear_forward");
  const int int8 = l->mode != SWITCHBACK_STANDARD && l->mode != SWITCHBACK_AUTO;
  if (int8) ok(switchback_linear_prepare_for_eval(l->linear), "linear_prepare_for_eval");
  ok(switchback_linear_forward(l->linear, &mx, &again, SWITCHBACK_SAVE_NOTHING, NULL),
     "linear_forward");
  if (int8 && memcmp(first, second, bytes) != 0) fail("the same forward gave other bits");
  ok(switchback_linear_weight_updated(l->linear), "linear_weight_updated");
  free(x);
  free(first);
  free(second);
}

static report take_report(switchback_context* context) {
  report r = {0, 0, 0};
  switchback_context_info info = {.struct_size = sizeof info};
  ok(switchback_context_get_info(context, &info), "context_get_info");
  r.workspace = info.workspace_bytes;
#if !SANITIZED && defined(__GLIBC__) && (__GLIBC__ > 2 || __GLIBC_MINOR__ >= 33)
  malloc_trim(0);
  const struct mallinfo2 heap = mallinfo2();
  r.in_use = heap.uordblks + heap.hblkhd;
#endif
  FILE* const file = fopen("/proc/self/statm", "r");
  if (file != NULL) {
    size_t total = 0;
    size_t pages = 0;
    if (fscanf(file, "%zu %zu", &total, &pages) == 2)
      r.resident = pages * (size_t)sysconf(_SC_PAGESIZE);
    fclose(file);
  }
  return r;
}

static double mib(size_t bytes) {
  return (double)bytes / 1048576.0;
}

static size_t largest_in_use(const report* reports, int begin, int end) {
  size_t most = 0;
  for (int i = begin; i < end; ++i)
    if (reports[i].in_use - reports[i].workspace > most)
      most = reports[i].in_use - reports[i].workspace;
  return most;
}

static settings read_arguments(int argc, char** argv) {
  settings s = {60.0, 0, 500, 384, 2, "read", NULL, 1};
  for (int i = 1; i < argc; ++i) {
    const char* const name = argv[i];
    if (i + 1 == argc) {
      fprintf(
          stderr,
          "usage: soak [--seconds S] [--layers N] [--every N] [--most SIZE] [--threads N]\n"
          "            [--tune MODE] [--cache FOLDER] [--seed N]\n"
          "It ends after S seconds (default 60; 0: no limit) or N layers (default 0: no limit),\n"
          "with exit status 1 if a call failed, bits differed or memory grew.\n");
      exit(2);
    }
    const char* const value = argv[++i];
    if (strcmp(name, "--seconds") == 0)
      s.seconds = atof(value);
    else if (strcmp(name, "--layers") == 0)
      s.layers = atoll(value);
    else if (strcmp(name, "--every") == 0)
      s.every = atoll(value);
    else if (strcmp(name, "--most") == 0)
      s.most = atoll(value);
    else if (strcmp(name, "--threads") == 0)
      s.threads = (int32_t)atoi(value);
    else if (strcmp(name, "--tune") == 0)
      s.tune = value;
    else if (strcmp(name, "--cache") == 0)
      s.cache = value;
    else if (strcmp(name, "--seed") == 0)
      s.seed = strtoull(value, NULL, 10);
    else
      fail("an argument is not known; soak alone prints them");
  }
  if (s.seconds <= 0 && s.layers <= 0) fail("--seconds or --layers must be above 0");
  if (s.every < 1 || s.most < 1) fail("--every and --most must be at least 1");
  return s;
}

int main(int argc, char** argv) {
  const settings s = read_arguments(argc, argv);
  static report reports[most_reports];
  static layer layers[slots];
  int count = 0;
  state = s.seed;
  const switchback_context_options options = {.struct_size = sizeof options,
                                              .device = "cpu",
                                              .threads = s.threads,
                                              .tune = s.tune,
                                              .tune_cache = s.cache};
  switchback_context* context = NULL;
  ok(switchback_context_create(&options, &context), "context_create");
  const double began = now_seconds();
  int64_t made = 0;
  int64_t every = s.every;
  for (int done = 0; !done;) {
    layer* const l = &layers[below(slots)];
    make_layer(context, l, s.most);
    for (int64_t step = below(3); step >= 0; --step)
      train(l, s.most);
    infer(l, s.most);
    ++made;
    done =
        (s.layers > 0 && made >= s.layers) || (s.seconds > 0 && now_seconds() - began >= s.seconds);
    if (made % every != 0) continue;
    for (int i = 0; i < slots; ++i)
      destroy_layer(&layers[i]);
    if (count == most_reports) { /* every second one is kept, and the next are twice as far apart */
      for (int i = 0; i < most_reports / 2; ++i)
        reports[i] = reports[2 * i + 1];
      count = most_reports / 2;
      every *= 2;
    }
    const report r = reports[count++] = take_report(context);
    fprintf(stderr,
            "soak: %.0f s, %" PRId64
            " layers: %.2f MiB in use beside %.2f of workspace, %.1f resident\n",
            now_seconds() - began, made, mib(r.in_use - r.workspace), mib(r.workspace),
            mib(r.resident));
  }
  for (int i = 0; i < slots; ++i)
    destroy_layer(&layers[i]);
  switchback_context_destroy(context);
  printf("soak: %" PRId64 " layers in %.0f s, no call failed\n", made, now_seconds() - began);
  if (SANITIZED || count == 0 || reports[0].in_use == 0) {
    printf("soak: memory is not measured in this build\n");
    return 0;
  }
  const int warm = count / 4;
  const int half = (warm + count) / 2;
  if (half == warm) fail("too few reports to judge by; lower --every or run longer");
  const size_t before = largest_in_use(reports, warm, half);
  const size_t after = largest_in_use(reports, half, count);
  printf(
      "soak: at most %.2f MiB in use beside the workspace in the second half after the warm-up, "
      "%.2f in the first\n",
      mib(after), mib(before));
  if (after > before + slack_bytes) fail("memory grows");
  printf("soak: memory is flat\n");
  return 0;
}
