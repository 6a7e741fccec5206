// SPDX-License-Identifier: Apache-2.0
// Steady state: a call that was made before allocates no heap memory and creates no thread, for
// every function of the C ABI (which calls the C++ API), in every mode, with and without a tuner.
//
// Where every product is this library's own, nothing in the process may allocate at all: malloc and
// its relatives are replaced (under a sanitizer, which replaces them itself, only operator new and
// aligned_alloc). For passes that run oneDNN or OpenBLAS only the allocations of this library's
// code count: those libraries may allocate.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <string>

#include "capi/allocation_hooks.hpp"
#include "capi/calls.hpp"
#include "switchback/switchback.h"

#if defined(__GLIBC__) && !defined(SWITCHBACK_TEST_SANITIZED)
#define SWITCHBACK_TEST_COUNTS_ALL 1
#endif

namespace {

std::atomic<bool> counting{false};
std::atomic<long> of_library{0};
std::atomic<long> of_anybody{0};
std::atomic<long> threads_created{0};

void count_any() noexcept {
  if (counting.load(std::memory_order_relaxed)) of_anybody.fetch_add(1);
}

}  // namespace

bool switchback::test::may_allocate(void* caller) {
  if (counting.load(std::memory_order_relaxed)) {
    of_anybody.fetch_add(1);
    if (is_of_library(caller)) of_library.fetch_add(1);
  }
  return true;
}

#if defined(SWITCHBACK_TEST_COUNTS_ALL)
extern "C" {
void* __libc_malloc(std::size_t bytes);                           // NOLINT
void* __libc_calloc(std::size_t count, std::size_t bytes);        // NOLINT
void* __libc_realloc(void* memory, std::size_t bytes);            // NOLINT
void* __libc_memalign(std::size_t alignment, std::size_t bytes);  // NOLINT

void* malloc(std::size_t bytes) noexcept {
  count_any();
  return __libc_malloc(bytes);
}
void* calloc(std::size_t count, std::size_t bytes) noexcept {
  count_any();
  return __libc_calloc(count, bytes);
}
void* realloc(void* memory, std::size_t bytes) noexcept {
  count_any();
  return __libc_realloc(memory, bytes);
}
int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) noexcept {
  count_any();
  *memory = __libc_memalign(alignment, bytes);
  return *memory == nullptr ? 12 : 0;  // ENOMEM
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*),
                   void* argument) noexcept {
  static const auto real =
      reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  threads_created.fetch_add(1);
  return real(thread, attributes, start, argument);
}
}
#endif

namespace switchback::test {
namespace {

enum class Count { everybody, library };

// Runs `call` until buffers have grown and caches are filled, then counts the allocations and
// threads of a few more calls.
void expect_nothing_new(const std::string& what, Count whose, const std::function<void()>& call) {
  for (int i = 0; i < 3; ++i)
    call();
  of_library = of_anybody = 0;
  const long threads_before = threads_created;
  counting = true;
  for (int i = 0; i < 5; ++i)
    call();
  counting = false;
  EXPECT_EQ(of_library.load(), 0) << what;
  if (whose == Count::library) return;
  EXPECT_EQ(of_anybody.load(), 0) << what;
  EXPECT_EQ(threads_created - threads_before, 0) << what;
}

class SteadyState : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Threads, SteadyState, ::testing::Values(1, 3));

TEST_P(SteadyState, Operations) {
  for (const auto cases : {context_cases, quantize_cases, product_cases})
    for (const Case& c : cases()) {
      // Calls that make an object, or replace its memory, allocate.
      if (c.function.ends_with("_create") || c.function == "switchback_pack_weight") continue;
      World w(GetParam());
      c.prepare(w);
      const bool own = c.function != "switchback_gemm_standard";
      expect_nothing_new(c.function + " " + c.what, own ? Count::everybody : Count::library,
                         [&] { expect_ok(w.call()); });
    }
}

TEST_P(SteadyState, ProductsOfChangingSizes) {
  constexpr std::int64_t n = 70, k = 96;
  World w(GetParam());
  auto args = sized<switchback_gemm_args>();
  args.a = w.input(SWITCHBACK_S8, 300, k);
  args.b = w.input(SWITCHBACK_S8, n, k);
  args.d = w.output(SWITCHBACK_F32, 300, n);
  args.absmax_a = w.scales(300);
  args.absmax_b = w.scales(n);
  args.absmax_b_count = n;
  // These numbers of rows give one task and many tasks: the state that one call leaves must suit
  // the next call.
  expect_nothing_new("products", Count::everybody, [&] {
    for (const std::int64_t m : {1, 8, 300, 70, 2}) {
      args.a.rows = args.d.rows = m;
      expect_ok(switchback_gemm(w.context, &args));
    }
  });
}

// Makes the steps of a layer, with every way to keep its input, then forwards of a prepared layer.
// dW, a floating point product in most modes, is computed only in some steps.
void check_layer(World& w, const std::string& what, const LayerKind& kind, bool grouped) {
  const bool own = is_int8(kind.mode);
  const Count whose = own ? Count::everybody : Count::library;
  const bool own_dw = own && kind.dw == SWITCHBACK_DW_INT8_BLOCK;
  const LayerCalls layer(w, kind, grouped);
  // With an activation, mode global_mem_efficient does not keep x itself.
  const bool keeps_x = grouped || kind.mode != SWITCHBACK_GLOBAL_MEM_EFFICIENT;
  for (const std::int32_t save :
       {SWITCHBACK_SAVE_COPY, SWITCHBACK_SAVE_BORROW, SWITCHBACK_SAVE_CALLER})
    for (const bool dw : {false, true}) {
      if (save == SWITCHBACK_SAVE_CALLER && !keeps_x) continue;
      const auto grads = layer.gradients(true, dw);
      expect_nothing_new(what + ", save " + std::to_string(save) + (dw ? ", dw" : ""),
                         dw && !own_dw ? Count::library : whose, [&] {
                           expect_ok(switchback_linear_weight_updated(w.layer));
                           expect_ok(layer.forward(save));
                           expect_ok(save == SWITCHBACK_SAVE_CALLER ? layer.backward_from_x(grads)
                                                                    : layer.backward(grads));
                         });
    }
  expect_ok(switchback_linear_prepare_for_eval(w.layer));
  expect_nothing_new(what + ", eval", whose,
                     [&] { expect_ok(layer.forward(SWITCHBACK_SAVE_NOTHING)); });
}

TEST_P(SteadyState, Layers) {
  for (const char* const tune : {"off", "read"})
    for (const LayerKind& kind : layer_kinds) {
      World w(GetParam(), tune);
      check_layer(w, name_of(kind) + ", tune " + tune, kind, false);
    }
}

TEST_P(SteadyState, GroupedLayers) {
  for (const LayerKind& kind : grouped_kinds) {
    World w(GetParam());
    check_layer(w, name_of(kind) + ", groups", kind, true);
  }
}

TEST_P(SteadyState, FragmentedLayers) {
  for (const std::int32_t mode : {SWITCHBACK_STANDARD, SWITCHBACK_ROWWISE, SWITCHBACK_GLOBAL}) {
    World w(GetParam());
    const FragmentedCalls layer(w, mode);
    const std::string what = "fragmented, mode " + std::to_string(mode);
    const Count whose = is_int8(mode) ? Count::everybody : Count::library;
    for (const std::int32_t save :
         {SWITCHBACK_SAVE_COPY, SWITCHBACK_SAVE_BORROW, SWITCHBACK_SAVE_CALLER})
      for (const bool of_weights : {false, true}) {
        const auto grads = layer.gradients(of_weights);
        expect_nothing_new(
            what + ", save " + std::to_string(save), of_weights ? Count::library : whose, [&] {
              expect_ok(switchback_fragmented_linear_weights_updated(w.fragmented_layer));
              expect_ok(layer.forward(save));
              expect_ok(layer.backward(grads, save == SWITCHBACK_SAVE_CALLER));
            });
      }
    expect_ok(switchback_fragmented_linear_prepare_for_eval(w.fragmented_layer));
    expect_nothing_new(what + ", eval", whose, [&] {
      expect_ok(switchback_fragmented_linear_forward_hard(w.fragmented_layer, &layer.x, &layer.y));
    });
  }
}

}  // namespace
}  // namespace switchback::test
