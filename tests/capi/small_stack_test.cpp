// SPDX-License-Identifier: Apache-2.0
// A stack of 128 KiB is enough for a calling thread, as docs/library.md promises: for every
// function of the C ABI, and for every engine at sizes with whole and partial blocks.
#include <gtest/gtest.h>
#include <pthread.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "capi/calls.hpp"

namespace switchback::test {
namespace {

constexpr std::size_t stack_bytes = std::size_t{128} << 10;

void on_small_stack(std::function<void()> call) {
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, stack_bytes), 0);
  pthread_t thread;
  const auto run = [](void* argument) -> void* {
    (*static_cast<std::function<void()>*>(argument))();
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, run, &call), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

TEST(SmallStack, IsEnoughForEveryFunction) {
  for (const auto cases : all_cases)
    for (const Case& c : cases())
      for (const std::int32_t threads : {1, 2})
        on_small_stack([&] {
          SCOPED_TRACE(c.function + " " + c.what);
          World world(threads);
          c.prepare(world);
          expect_ok(world.call());
          world.look();
        });
}

// Calls a product with each engine of its list. Some may not support it.
template <class Args>
void with_each_engine(World& w, std::int32_t operation, Args args,
                      switchback_status (*multiply)(switchback_context*, const Args*)) {
  const switchback_engine_info* engines = nullptr;
  std::size_t count = 0;
  expect_ok(switchback_engines(w.context, operation, &engines, &count));
  int succeeded = 0;
  for (const switchback_engine_info& engine : std::span(engines, count)) {
    args.engine = engine.name;
    const switchback_status status = multiply(w.context, &args);
    if (status == SWITCHBACK_OK) ++succeeded;
    EXPECT_TRUE(status == SWITCHBACK_OK || status == SWITCHBACK_UNSUPPORTED)
        << engine.name << ": " << switchback_last_error();
  }
  EXPECT_GT(succeeded, 0);
}

switchback_status gemm_packed(switchback_context* context, const switchback_gemm_args* args) {
  switchback_packed_weight* packed = nullptr;
  expect_ok(switchback_packed_weight_create(&packed));
  switchback_status status = switchback_pack_weight(context, &args->b, 1, packed, args->engine);
  auto of_packed = *args;
  of_packed.b = {};
  of_packed.packed_b = packed;
  if (status == SWITCHBACK_OK) status = switchback_gemm(context, &of_packed);
  switchback_packed_weight_destroy(packed);
  return status;
}

void products_of_every_engine(World& w) {
  constexpr std::int64_t m = 200, n = 300, k = 520;
  auto int8 = gemm_arguments(w, 0, false);
  int8.a = w.input(SWITCHBACK_S8, m, k);
  int8.b = w.input(SWITCHBACK_S8, n, k);
  int8.d = w.output(SWITCHBACK_F32, m, n);
  int8.absmax_a = w.scales(m);
  int8.absmax_b = w.scales(n);
  int8.absmax_b_count = n;
  int8.bias = w.scales(n);
  with_each_engine(w, SWITCHBACK_ENGINES_GEMM, int8, switchback_gemm);
  with_each_engine(w, SWITCHBACK_ENGINES_GEMM, int8, gemm_packed);
  with_each_engine(w, SWITCHBACK_ENGINES_GEMM_BLOCKWISE, blockwise_arguments(w, SWITCHBACK_F32),
                   switchback_gemm_blockwise);
  for (const std::int32_t dtype : {SWITCHBACK_F32, SWITCHBACK_F16, SWITCHBACK_BF16})
    for (const bool transpose_a : {false, true})
      for (const bool transpose_b : {false, true}) {
        auto floating = standard_arguments(w, dtype, m, n, k);
        if (transpose_a) floating.a = w.input(dtype, k, m);
        if (transpose_b) floating.b = w.input(dtype, n, k);
        floating.transpose_a = transpose_a ? 1 : 0;
        floating.transpose_b = transpose_b ? 1 : 0;
        with_each_engine(w, SWITCHBACK_ENGINES_GEMM_STANDARD, floating, switchback_gemm_standard);
      }
}

TEST(SmallStack, IsEnoughForEveryEngine) {
#if defined(__x86_64__)
  const char* const isas[] = {"scalar", "avx2", ""};
#else
  const char* const isas[] = {"scalar", ""};
#endif
  for (const char* const isa : isas)
    for (const int threads : {1, 2})
      on_small_stack([&] {
        World w(threads, "off", isa);
        products_of_every_engine(w);
      });
}

}  // namespace
}  // namespace switchback::test
