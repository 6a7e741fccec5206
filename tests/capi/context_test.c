/* SPDX-License-Identifier: Apache-2.0 */
/* The C ABI: contexts, lists of engines, and which thread's errors are kept where. */
#include <pthread.h>

#include "capi/harness.h"

static void defaults(void) {
  switchback_context* context = NULL;
  CHECK_OK(switchback_context_create(NULL, &context));
  const switchback_context_info info = info_of(context);
  CHECK(info.device != NULL && strcmp(info.device, "cpu") == 0);
  CHECK(info.isa != NULL && info.isa[0] != '\0');
  CHECK(info.threads >= 1);
  CHECK(info.workspace_bytes == 0); /* no call has used the context yet */
  switchback_context_destroy(context);
}

static void options_are_used(void) {
  const switchback_context_options options = {
      .struct_size = sizeof(options), .device = "", .threads = 3, .isa = "scalar"};
  switchback_context* context = NULL;
  CHECK_OK(switchback_context_create(&options, &context));
  const switchback_context_info info = info_of(context);
  CHECK(info.isa != NULL && strcmp(info.isa, "scalar") == 0);
  CHECK(info.threads == 3);
  CHECK_OK(switchback_context_synchronize(context));
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
      /* An engine has a reason text exactly if it is not available. */
      CHECK((infos[i].available == 0) == (infos[i].reason[0] != '\0'));
      available += infos[i].available;
    }
    CHECK(available >= 1);
    const switchback_engine_info* again = NULL;
    CHECK_OK(switchback_engines(context, operation, &again, &count));
    CHECK(again == infos); /* the list stays valid, so a caller may keep the pointer */
  }
  switchback_context_destroy(context);
}

struct thread_result {
  int empty_at_start;
  int own_message;
};

static void* other_thread(void* argument) {
  struct thread_result* result = argument;
  result->empty_at_start = switchback_last_error()[0] == '\0';
  switchback_context_get_info(NULL, NULL);
  result->own_message = strstr(switchback_last_error(), "context_get_info") != NULL;
  return NULL;
}

static void last_error(void) {
  CHECK_INVALID("context_synchronize", switchback_context_synchronize(NULL));
  struct thread_result result = {0, 0};
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, other_thread, &result) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(result.empty_at_start);
  CHECK(result.own_message);
  /* Neither another thread's failure nor this thread's success changes this thread's last error. */
  CHECK(strstr(switchback_last_error(), "context_synchronize") != NULL);
  switchback_context* context = cpu_context(1);
  CHECK(strstr(switchback_last_error(), "context_synchronize") != NULL);
  switchback_context_destroy(context);
}

void context_tests(void) {
  CHECK(switchback_last_error() != NULL && switchback_last_error()[0] == '\0');
  defaults();
  options_are_used();
  engines();
  last_error();
}
