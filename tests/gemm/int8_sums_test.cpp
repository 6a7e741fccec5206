// SPDX-License-Identifier: Apache-2.0
// int32 sums of int8 products: every engine in every Context equals the reference, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "gemm/int8_support.hpp"

namespace switchback::test {
namespace {

// Runs f(context, engine) for each engine of each Context.
template <class F>
void for_engines(F&& f) {
  for (const ContextOptions& options : all_contexts()) {
    Context context(options);
    for (const std::string& engine : available_engines(context)) {
      // Skips an engine that cannot return int32 sums, because it keeps them in a cache.
      const gemm_int8::GemmProblem some = {.m = 1, .n = 1, .k = 1};
      if (!engine_named(context, engine).unsupported(some, context.state()).empty()) continue;
      SCOPED_TRACE(engine + " on " + describe(options));
      f(context, engine);
    }
  }
}

Matrix<std::int32_t> reference_sums(const Matrix<std::int8_t>& a, const Matrix<std::int8_t>& b) {
  Context context(cpu_options());
  Matrix<std::int32_t> d(a.rows(), b.rows());
  multiply(context, a, b, d, "reference");
  return d;
}

void expect_reference_sums(const Matrix<std::int8_t>& a, const Matrix<std::int8_t>& b,
                           Layout layout = {}) {
  const Matrix<std::int32_t> want = reference_sums(a, b);
  for_engines([&](Context& context, const std::string& engine) {
    for (const Give give : {Give::plain, Give::packed}) {
      Matrix<std::int32_t> d(a.rows(), b.rows(), layout);
      multiply(context, a, b, d, engine, give);
      EXPECT_TRUE(same(d, want));
      EXPECT_TRUE(d.guards_intact());
    }
  });
}

// Compares the reference engine with the definition, computed in 64 bits.
TEST(Int8Sums, TheReferenceIsTheDefinition) {
  Random random(2);
  const Matrix<std::int8_t> a = random_codes(5, 37, random);
  const Matrix<std::int8_t> b = random_codes(7, 37, random);
  const Matrix<std::int32_t> d = reference_sums(a, b);
  for (std::int64_t i = 0; i < 5; ++i)
    for (std::int64_t j = 0; j < 7; ++j) {
      std::int64_t sum = 0;
      for (std::int64_t l = 0; l < 37; ++l)
        sum += std::int64_t{a.get(i, l)} * b.get(j, l);
      EXPECT_EQ(d.get(i, j), sum);
    }
}

TEST(Int8Sums, EveryTileEdge) {
  Random random(3);
  // Tiles of the kernels are 6 rows by 16 or 64 columns by 4 codes, or 16 and 32 rows by 16 and 32
  // columns by 64 codes; vectors along k are 16, 32 or 64 codes.
  std::vector<Shape> shapes;
  for (std::int64_t m = 1; m <= 14; ++m)
    shapes.push_back({m, 65, 67});
  for (const std::int64_t n : {1, 2, 3, 4, 5, 15, 16, 17, 31, 33, 47, 63, 64, 65, 127, 128, 129})
    shapes.push_back({7, n, 66});
  for (const std::int64_t k :
       {1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 257})
    shapes.push_back({5, 66, k});
  for (const std::int64_t m :
       {15, 16, 17, 23, 24, 25, 31, 32, 33, 36, 37, 47, 48, 49, 63, 64, 65, 97})
    for (const Shape& s : {Shape{m, 65, 67}, {m, 33, 192}})
      shapes.push_back(s);
  for (const std::int64_t k : {63, 64, 65, 129, 191, 257})
    shapes.push_back({40, 50, k});
  // Up to 24 rows, two tiles of AVX-512 kernels share pieces of 512 codes.
  for (const std::int64_t k : {511, 512, 513, 1027})
    for (const std::int64_t m : {2, 12, 13, 24})
      shapes.push_back({m, 65, k});
  for (const std::int64_t n : {31, 32, 33, 64, 96, 127, 128, 129, 160})
    shapes.push_back({17, n, 530});
  shapes.push_back({1, 1, 1});
  shapes.push_back({193, 70, 9});
  shapes.push_back({130, 33, 19001});  // by default this K is split if rows of A fill the L2 cache
  for (const Shape& s : shapes) {
    SCOPED_TRACE(::testing::Message() << "m=" << s.m << " n=" << s.n << " k=" << s.k);
    expect_reference_sums(random_codes(s.m, s.k, random), random_codes(s.n, s.k, random));
  }
}

TEST(Int8Sums, StridesAndMisalignment) {
  Random random(4);
  for (const std::int64_t misaligned : {1, 3})
    expect_reference_sums(random_codes(13, 131, random, {5, misaligned}),
                          random_codes(77, 131, random, {3, misaligned}), {9, misaligned});
}

// Few rows that are a multiple of 2048 bytes apart are copied.
TEST(Int8Sums, FewRows) {
  Random random(9);
  for (const std::int64_t padding : {0, 3})
    for (const std::int64_t m : {2, 12, 13, 24})
      expect_reference_sums(random_codes(m, 2048, random, {padding, 0}),
                            random_codes(65, 2048, random), {padding, 0});
}

// The quantizer never makes the code −128, but the API accepts any code.
TEST(Int8Sums, CodesOfMinus128AreExact) {
  Random random(5);
  Matrix<std::int8_t> a(9, 300);
  Matrix<std::int8_t> b(67, 300);
  for (auto* m : {&a, &b})
    for (std::int64_t r = 0; r < m->rows(); ++r)
      for (std::int64_t c = 0; c < 300; ++c)
        m->set(r, c,
               static_cast<std::int8_t>(random.below(3) == 0 ? -128 : random.below(256) - 128));
  expect_reference_sums(a, b);
}

// The largest sums that fit int32. Up to K = 131071 they are sums of -128 · -128; one more such
// product would reach 2^31. Beyond that K, codes are from -127 to 127, as quantizers make them.
TEST(Int8Sums, ExactAtTheEdgesOfK) {
  if (under_thread_sanitizer) GTEST_SKIP() << "of values, not of threads";
  struct Edge {
    std::int64_t k;
    int a, b;
  };
  const Edge edges[] = {{max_exact_k_of_any_codes, -128, -128},
                        {max_exact_k_of_any_codes, -128, 127},
                        {max_exact_k_of_any_codes + 1, 127, 127},
                        {max_exact_k_of_any_codes + 1, -127, 127},
                        {max_exact_k, 127, -127},
                        {max_exact_k, -127, -127}};
  static_assert(128 * 128 * max_exact_k_of_any_codes <= std::numeric_limits<std::int32_t>::max());
  static_assert(128 * 128 * (max_exact_k_of_any_codes + 1) >
                std::numeric_limits<std::int32_t>::max());
  for (const Edge& edge : edges) {
    SCOPED_TRACE(::testing::Message() << edge.k << " times " << edge.a << " · " << edge.b);
    Matrix<std::int8_t> a(3, edge.k);
    Matrix<std::int8_t> b(18, edge.k);
    fill_constant(a, static_cast<std::int8_t>(edge.a));
    fill_constant(b, static_cast<std::int8_t>(edge.b));
    for_engines([&](Context& context, const std::string& engine) {
      for (const Give give : {Give::plain, Give::packed}) {
        Matrix<std::int32_t> d(3, 18);
        multiply(context, a, b, d, engine, give);
        for (std::int64_t i = 0; i < 3; ++i)
          for (std::int64_t j = 0; j < 18; ++j)
            ASSERT_EQ(d.get(i, j), edge.a * edge.b * edge.k) << i << "," << j;
      }
    });
  }
}

// Shapes with several blocks in each direction, so that every loop of the drivers runs more than
// once.
TEST(Int8Sums, EveryCandidateAndOddBlocksGiveTheSameSums) {
  Random random(6);
  // Builds with sanitizers have smaller shapes, because the reference is slow there; these still
  // have several blocks.
  const std::vector<Shape> shapes =
      sanitized ? std::vector<Shape>{{200, 530, 100}, {3, 400, 700}}
                : std::vector<Shape>{{200, 530, 1100}, {3, 1000, 700}, {70, 129, 2049}};
  for (const Shape& s : shapes) {
    SCOPED_TRACE(::testing::Message() << "m=" << s.m << " n=" << s.n << " k=" << s.k);
    const Matrix<std::int8_t> a = random_codes(s.m, s.k, random);
    const Matrix<std::int8_t> b = random_codes(s.n, s.k, random);
    const Matrix<std::int32_t> want = reference_sums(a, b);
    for (const ContextOptions& options : all_contexts()) {
      // The instruction sets scalar and sse4 have only the reference engine.
      if (options.isa == "scalar" || options.isa == "sse4") continue;
      Context context(options);
      gemm_int8::GemmProblem problem;
      problem.m = s.m;
      problem.n = s.n;
      problem.k = problem.stride_a = problem.stride_b = s.k;
      problem.stride_d = s.n;
      std::vector<gemm_int8::GemmConfig> configs =
          gemm_int8::all_candidates(problem, context.state());
      EXPECT_EQ(configs.front(), gemm_int8::default_config(problem, context.state()));
      const gemm_int8::EngineId best = configs.front().engine;
      for (const gemm_int8::Weights weights :
           {gemm_int8::Weights::plain, gemm_int8::Weights::packed}) {
        configs.push_back({best, weights, 1, 1, 1, 0});
        configs.push_back({best, weights, 50, 100, 511, 2});
        configs.push_back({best, weights, 0, 0, 512, 1});
        configs.push_back({best, weights, 48, 64, 513, 0});
      }
      for (const gemm_int8::GemmConfig& config : configs) {
        if (config.engine == gemm_int8::EngineId::reference) continue;
        SCOPED_TRACE(describe(options) + " " + gemm_int8::describe(config));
        const auto source = std::make_shared<FixedConfig>(config);
        context.set_config_source(source);
        Matrix<std::int32_t> d(s.m, s.n);
        multiply(context, a, b, d, "");
        EXPECT_EQ(source->queries, 1);
        EXPECT_TRUE(same(d, want));
        const auto* engine = gemm_int8::find_engine(context.state().device.kind, config.engine);
        multiply(context, a, b, d, std::string(engine->name), Give::packed);
        EXPECT_TRUE(same(d, want));
        EXPECT_EQ(source->queries, 2);
      }
    }
  }
}

TEST(Int8Sums, AConfigurationThatCannotRunHereIsIgnored) {
  if (!on_cpu()) GTEST_SKIP() << "of instruction sets";
  Random random(7);
  const Matrix<std::int8_t> a = random_codes(9, 80, random);
  const Matrix<std::int8_t> b = random_codes(20, 80, random);
  const Matrix<std::int32_t> want = reference_sums(a, b);
  ContextOptions options;
  options.isa = "sse4";
  Context context(options);
  using gemm_int8::EngineId;
  using gemm_int8::Weights;
  for (const gemm_int8::GemmConfig& config :
       {gemm_int8::GemmConfig{EngineId::avx512_vnni, Weights::packed, 6, 64, 0, 0, 0},
        gemm_int8::GemmConfig{static_cast<EngineId>(99), Weights::packed, 0, 0, 0, 0},
        gemm_int8::GemmConfig{EngineId::reference, static_cast<Weights>(7), 0, 0, 0, 0, 0},
        gemm_int8::GemmConfig{EngineId::reference, Weights::plain, -1, 0, 0, 0, 0}}) {
    EXPECT_FALSE(
        gemm_int8::check_config(gemm_int8::GemmProblem(), config, context.state()).empty());
    context.set_config_source(std::make_shared<FixedConfig>(config));
    Matrix<std::int32_t> d(9, 20);
    multiply(context, a, b, d, "");
    EXPECT_TRUE(same(d, want));
  }
}

}  // namespace
}  // namespace switchback::test
