// SPDX-License-Identifier: Apache-2.0
// A stack of 128 KiB is enough for a calling thread, as docs/library.md promises: for every
// function of the C ABI, and for every engine at sizes with whole and partial blocks.
#include <gtest/gtest.h>
#include <pthread.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "capi/out_of_memory_world.hpp"
#include "switchback/error.hpp"
#include "switchback/gemm.hpp"

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
  for (const Case& c : cases_of_every_function())
    for (const std::int32_t threads : {1, 2})
      on_small_stack([&] {
        SCOPED_TRACE(c.function + " " + c.what);
        World world(threads);
        c.prepare(world);
        expect_ok(world.call());
        world.look();
      });
}

constexpr std::int64_t m = 200, n = 300, k = 520;

template <class T>
MatrixView<T> view(std::vector<T>& data, std::int64_t rows, std::int64_t cols) {
  data.assign(static_cast<std::size_t>(rows * cols), T(1));
  return {data.data(), rows, cols};
}

void standard_products(Context& context) {
  for (const EngineInfo& engine : gemm_standard_engines(context)) {
    if (!engine.available) continue;
    const auto multiply = [&](auto element, bool transpose_a, bool transpose_b) {
      using T = decltype(element);
      std::vector<T> a, b, d;
      StandardGemmArgs args;
      args.a = transpose_a ? view(a, k, m) : view(a, m, k);
      args.b = transpose_b ? view(b, n, k) : view(b, k, n);
      args.d = view(d, m, n);
      args.transpose_a = transpose_a;
      args.transpose_b = transpose_b;
      args.engine = engine.name;
      try {
        gemm_standard(context, args);
        EXPECT_EQ(static_cast<float>(d.back()), static_cast<float>(T(float{k}))) << engine.name;
      } catch (const Error& error) {
        EXPECT_EQ(error.status(), Status::unsupported) << engine.name << ": " << error.what();
      }
    };
    for (const bool transpose_a : {false, true})
      for (const bool transpose_b : {false, true}) {
        multiply(0.0f, transpose_a, transpose_b);
        multiply(half(0.0f), transpose_a, transpose_b);
        multiply(bfloat16(0.0f), transpose_a, transpose_b);
      }
  }
}

void int8_products(Context& context) {
  std::vector<std::int8_t> a, b;
  std::vector<float> d, absmax(static_cast<std::size_t>(k), 127);
  const auto scales = std::span<const float>(absmax);
  for (const EngineInfo& engine : gemm_engines(context)) {
    if (!engine.available) continue;
    GemmArgs args;
    args.a = view(a, m, k);
    args.b = view(b, n, k);
    args.d = view(d, m, n);
    args.absmax_a = scales.first(m);
    args.absmax_b = scales.first(n);
    args.engine = engine.name;
    gemm(context, args);
    EXPECT_FLOAT_EQ(d.back(), k) << engine.name;
    PackedWeight packed;
    pack_weight(context, args.b, packed, engine.name);
    args.b = {};
    args.packed_b = &packed;
    gemm(context, args);
    EXPECT_FLOAT_EQ(d.back(), k) << engine.name;
  }
  for (const EngineInfo& engine : gemm_blockwise_engines(context)) {
    if (!engine.available) continue;
    BlockwiseGemmArgs args;
    args.a = view(a, n, 256);
    args.b = view(b, k, 256);
    args.d = view(d, n, k);
    args.absmax_a = scales.first(n);
    args.absmax_b = scales.first(k);
    args.engine = engine.name;
    gemm_blockwise(context, args);
    EXPECT_FLOAT_EQ(d.back(), 256) << engine.name;
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
        ContextOptions options;
        options.device = "cpu";
        options.threads = threads;
        options.isa = isa;
        Context context(options);
        standard_products(context);
        int8_products(context);
      });
}

}  // namespace
}  // namespace switchback::test
