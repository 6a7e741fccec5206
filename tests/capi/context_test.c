/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts, engines, and where errors are kept. */
#include <pthread.h>

#include "capi/harness.h"

static void* no_memory(void* user, size_t bytes, void* stream) {
  (void)user;
  (void)bytes;
  (void)stream;
  return NULL;
}

static switchback_context_options zero_options(void) {
  switchback_context_options options;
  memset(&options, 0, sizeof(options));
  options.struct_size = sizeof(options);
  return options;
}

static void defaults(void) {
  switchback_context* context = NULL;
  CHECK_OK(switchback_context_create(NULL, &context));
  const char* device = NULL;
  const char* isa = NULL;
  int32_t threads = 0;
  size_t bytes = 1;
  CHECK_OK(switchback_context_device(context, &device));
  CHECK_OK(switchback_context_isa(context, &isa));
  CHECK_OK(switchback_context_threads(context, &threads));
  CHECK_OK(switchback_context_workspace_bytes(context, &bytes));
  CHECK(device != NULL && strcmp(device, "cpu") == 0);
  CHECK(isa != NULL && isa[0] != '\0');
  CHECK(threads >= 1);
  CHECK(bytes == 0); /* nothing was computed yet */
  switchback_context_destroy(context);
  switchback_context_destroy(NULL);
}

static void options_are_used(void) {
  switchback_context_options options = zero_options();
  options.device = "";
  options.threads = 3;
  options.isa = "scalar";
  switchback_context* context = NULL;
  CHECK_OK(switchback_context_create(&options, &context));
  const char* isa = NULL;
  int32_t threads = 0;
  CHECK_OK(switchback_context_isa(context, &isa));
  CHECK_OK(switchback_context_threads(context, &threads));
  CHECK(isa != NULL && strcmp(isa, "scalar") == 0);
  CHECK(threads == 3);
  switchback_context_destroy(context);
}

static void bad_options(void) {
  switchback_context* const before = (switchback_context*)(uintptr_t)0x10;
  switchback_context* context = before;
  switchback_context_options options = zero_options();
  options.device = "tpu";
  CHECK_INVALID("'tpu' is not one of cpu, cuda", switchback_context_create(&options, &context));
  options.device = "cpu";
  options.threads = -1;
  CHECK_INVALID("threads = -1", switchback_context_create(&options, &context));
  options.threads = 1;
  options.isa = "avx9";
  CHECK_INVALID("'avx9' is not one of", switchback_context_create(&options, &context));
  options.isa = NULL;
  int stream = 0;
  options.stream = &stream;
  CHECK_INVALID("stream is not null", switchback_context_create(&options, &context));
  options.stream = NULL;
  options.allocate = no_memory;
  CHECK_INVALID("an allocator is given; a cpu context",
                switchback_context_create(&options, &context));
  options.allocate = NULL;
  CHECK(context == before);
  CHECK_INVALID("out is a null pointer", switchback_context_create(NULL, NULL));
}

static void cpu_has_nothing_to_wait_for(void) {
  switchback_context* context = cpu_context(1);
  CHECK_OK(switchback_context_synchronize(context));
  CHECK_INVALID("context_synchronize: context is a null", switchback_context_synchronize(NULL));
  switchback_context_destroy(context);
}

static void null_arguments(void) {
  switchback_context* context = cpu_context(1);
  const char* text = NULL;
  int32_t threads = 0;
  size_t bytes = 0;
  CHECK_INVALID("context_device: context is a null", switchback_context_device(NULL, &text));
  CHECK_INVALID("context_device: out is a null", switchback_context_device(context, NULL));
  CHECK_INVALID("context_isa: context is a null", switchback_context_isa(NULL, &text));
  CHECK_INVALID("context_isa: out is a null", switchback_context_isa(context, NULL));
  CHECK_INVALID("context_threads: context is a null", switchback_context_threads(NULL, &threads));
  CHECK_INVALID("context_threads: out is a null", switchback_context_threads(context, NULL));
  CHECK_INVALID("context_workspace_bytes: context is a null",
                switchback_context_workspace_bytes(NULL, &bytes));
  CHECK_INVALID("context_workspace_bytes: out is a null",
                switchback_context_workspace_bytes(context, NULL));
  switchback_context_destroy(context);
}

static void engines(void) {
  switchback_context* context = cpu_context(1);
  for (int32_t operation = SWITCHBACK_ENGINES_QUANTIZE;
       operation <= SWITCHBACK_ENGINES_GEMM_BLOCKWISE; ++operation) {
    const switchback_engine_info* infos = NULL;
    size_t count = 0;
    CHECK_OK(switchback_engines(context, operation, &infos, &count));
    CHECK(count >= 1);
    int available = 0;
    for (size_t i = 0; i < count; ++i) {
      CHECK(infos[i].name != NULL && infos[i].name[0] != '\0');
      CHECK(infos[i].reason != NULL);
      /* A reason is given exactly when the engine is missing. */
      CHECK((infos[i].available == 0) == (infos[i].reason[0] != '\0'));
      available += infos[i].available;
    }
    CHECK(available >= 1);
    const switchback_engine_info* again = NULL;
    CHECK_OK(switchback_engines(context, operation, &again, &count));
    CHECK(again == infos); /* a caller may keep the pointer */
  }
  const switchback_engine_info* infos = NULL;
  size_t count = 77;
  CHECK_INVALID("operation = 4", switchback_engines(context, 4, &infos, &count));
  CHECK_INVALID("operation = -1", switchback_engines(context, -1, &infos, &count));
  CHECK_INVALID("context is a null", switchback_engines(NULL, 0, &infos, &count));
  CHECK_INVALID("out is a null", switchback_engines(context, 0, NULL, &count));
  CHECK_INVALID("count is a null", switchback_engines(context, 0, &infos, NULL));
  CHECK(infos == NULL && count == 77);
  switchback_context_destroy(context);
}

struct thread_result {
  int empty_at_start;
  int own_message;
};

static void* other_thread(void* argument) {
  struct thread_result* result = argument;
  result->empty_at_start = switchback_last_error()[0] == '\0';
  switchback_context_threads(NULL, NULL);
  result->own_message = strstr(switchback_last_error(), "context_threads") != NULL;
  return NULL;
}

static void last_error(void) {
  CHECK_INVALID("context_device", switchback_context_device(NULL, NULL));
  struct thread_result result = {0, 0};
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, other_thread, &result) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(result.empty_at_start);
  CHECK(result.own_message);
  /* Neither another thread's failure nor this thread's success changes it. */
  CHECK(strstr(switchback_last_error(), "context_device") != NULL);
  switchback_context* context = cpu_context(1);
  CHECK(strstr(switchback_last_error(), "context_device") != NULL);
  switchback_context_destroy(context);

  /* A message that quotes a very long name is cut, not overrun. */
  static char long_name[5000];
  memset(long_name, 'x', sizeof(long_name) - 1);
  switchback_context_options options = zero_options();
  options.device = long_name;
  CHECK_INVALID("xxx...", switchback_context_create(&options, &context));
  CHECK(strlen(switchback_last_error()) < sizeof(long_name));
}

void context_tests(void) {
  CHECK(switchback_last_error() != NULL && switchback_last_error()[0] == '\0');
  defaults();
  options_are_used();
  bad_options();
  null_arguments();
  cpu_has_nothing_to_wait_for();
  engines();
  last_error();
}
