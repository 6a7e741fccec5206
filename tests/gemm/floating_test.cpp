// SPDX-License-Identifier: Apache-2.0
// Tests of gemm_standard: every configuration is compared with f64, for every shape, type, layout
// and thread count.
#include "gemm/floating_support.hpp"
#include "support/contexts.hpp"

namespace switchback {
namespace {

using test::Case;
using test::FixedChoice;
using test::FloatMatrix;
using test::Random;
using test::Shape;
using test::Trial;

struct Types {
  DType input, output;
};
constexpr Types all_types[] = {{DType::f32, DType::f32},
                               {DType::f16, DType::f16},
                               {DType::f16, DType::f32},
                               {DType::bf16, DType::bf16},
                               {DType::bf16, DType::f32}};

Context make_context(const floating::Config& config, int threads, const char* isa = "") {
  ContextOptions options;
  options.device = test::device();
  options.threads = threads;
  options.isa = isa;
  Context context(options);
  context.set_config_source(std::make_shared<FixedChoice>(floating::to_choice(config)));
  return context;
}

// Each configuration, with every type, transposition, accumulate and bias. The layouts of the
// operands rotate from case to case, so that each meets all the other settings.
TEST(GemmStandard, EveryConfigurationMatchesF64) {
  const Shape shapes[] =
      {{1, 1, 1},   {1, 7, 5},    {5, 1, 9},    {3, 4, 1},    {2, 33, 64},
       {17, 5, 8},  {13, 83, 33}, {64, 64, 64}, {65, 63, 31}, {16, 130, 70},
       {1, 96, 80}, {37, 90, 63}};  // K = 63 crashes in oneDNN's bf16 product on AMX
  const test::Layout layouts[] = {{0, 0}, {3, 0}, {0, 1}, {5, 2}, {8, 3}, {0, 2}};
  Random random(1);
  std::size_t turn = 0;
  for (const auto& config : test::all_configs()) {
    SCOPED_TRACE(describe(config));
    for (const int threads : {1, 3}) {
      Context context = make_context(config, threads);
      for (const auto& shape : shapes) {
        // A product with few elements runs on one thread, so more threads are tested with larger
        // shapes only.
        const bool small = shape.m * shape.n < 200;
        if (small && (threads > 1 || test::under_thread_sanitizer)) continue;
        if (!small && threads == 1 && test::under_thread_sanitizer && test::on_cpu()) continue;
        if (threads > 1 && !test::on_cpu()) continue;
        for (const auto& types : all_types)
          for (int flags = 0; flags < 16; flags += test::sanitized ? 5 : 1) {
            Case c;
            c.shape = shape;
            c.input = types.input;
            c.output = types.output;
            c.set_flags(flags);
            c.bias_dtype = all_types[turn % 5].input;
            c.a = layouts[turn % 6];
            c.b = layouts[turn / 6 % 6];
            c.d = layouts[turn / 36 % 6];
            ++turn;
            Trial trial(c, random);
            FloatMatrix d = trial.run(context);
            ASSERT_TRUE(trial.close(d));
          }
      }
    }
  }
}

// Loops around the calls of oneDNN and OpenBLAS use at most the Context's instruction set: results
// are right with each of them.
TEST(GemmStandard, EveryInstructionSetMatchesF64) {
  if (!test::on_cpu()) GTEST_SKIP() << "compares the CPU's instruction sets";
  Random random(2);
  for (const auto& options : test::all_contexts()) {
    SCOPED_TRACE(test::describe(options));
    Context context(options);
    for (const auto& types : all_types)
      for (const bool accumulate : {false, true}) {
        Case c;
        c.shape = {9, 45, 77};
        c.input = types.input;
        c.output = types.output;
        c.transpose_b = true;
        c.bias = true;
        c.bias_dtype = types.input;
        c.accumulate = accumulate;
        c.d = {2, 1};
        Trial trial(c, random);
        FloatMatrix d = trial.run(context);
        ASSERT_TRUE(trial.close(d));
      }
  }
}

// Operands in f16 are widened to f32 in panels. At these sizes they are cut: columns of op(b) from
// K > 8192 on, rows of op(a) from K > 65536 on.
TEST(GemmStandard, WidenedPanelsMatchF64) {
  Random random(3);
  for (const Shape shape : {Shape{3, 300, 9000}, Shape{260, 1, 66000}}) {
    if (test::under_thread_sanitizer && shape.n == 1) continue;
    Case c;
    c.shape = shape;
    c.input = c.output = DType::f16;
    c.transpose_a = c.accumulate = shape.n == 1;
    c.transpose_b = shape.n > 1;
    c.bias = true;
    c.d = {1, 0};
    Trial trial(c, random);
    for (const auto& config : test::all_configs()) {
      if (config.engine == floating::EngineId::reference) continue;
      SCOPED_TRACE(describe(config));
      Context context = make_context(config, 2);
      FloatMatrix d = trial.run(context);
      ASSERT_TRUE(trial.close(d));
    }
  }
}

TEST(GemmStandard, EmptyDimensions) {
  Random random(4);
  for (const auto& config : test::all_configs()) {
    SCOPED_TRACE(describe(config));
    Context context = make_context(config, 2);
    for (const Shape shape : {Shape{0, 5, 3}, Shape{5, 0, 3}, Shape{5, 40, 0}, Shape{0, 0, 0}})
      for (const auto& types : all_types)
        for (int flags = 0; flags < 16; ++flags) {
          Case c;
          c.shape = shape;
          c.input = types.input;
          c.output = types.output;
          c.set_flags(flags);
          c.d = {3, 0};
          Trial trial(c, random);
          FloatMatrix d = trial.run(context);
          ASSERT_TRUE(trial.close(d));
        }
  }
}

TEST(GemmStandard, NonFiniteStaysVisible) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  Random random(5);
  for (const auto& config : test::all_configs()) {
    SCOPED_TRACE(describe(config));
    Context context = make_context(config, 2);
    for (const auto& types : all_types) {
      Case c;
      c.shape = {6, 37, 40};
      c.input = types.input;
      c.output = types.output;
      c.transpose_b = true;
      Trial trial(c, random);
      trial.a().set(2, 11, nan);
      trial.a().set(4, 7, inf);
      trial.b().set(9, 20, nan);
      FloatMatrix d = trial.run(context);
      for (std::int64_t i = 0; i < 6; ++i)
        for (std::int64_t j = 0; j < 37; ++j) {
          const bool finite = i != 2 && i != 4 && j != 9;
          EXPECT_EQ(std::isfinite(d.get(i, j)), finite) << i << "," << j;
          if (i == 2 || j == 9) {
            EXPECT_TRUE(std::isnan(d.get(i, j))) << i << "," << j;
          }
        }
    }
  }
}

// 300 · 300 overflows f16 and must become Inf, as in half(float); an output in f32 keeps the value.
TEST(GemmStandard, OverflowOfSixteenBitsBecomesInfinity) {
  for (const auto& config : test::all_configs()) {
    SCOPED_TRACE(describe(config));
    Context context = make_context(config, 1);
    for (const DType output : {DType::f16, DType::f32}) {
      FloatMatrix a(DType::f16, 1, 1), b(DType::f16, 1, 9), d(output, 1, 9);
      a.fill_value(300.0f);
      b.fill_value(300.0f);
      StandardGemmArgs args;
      args.a = a.any();
      args.b = b.any();
      args.d = d.any();
      gemm_standard(context, args);
      for (std::int64_t j = 0; j < 9; ++j)
        EXPECT_EQ(d.get(0, j),
                  output == DType::f32 ? 90000.0f : std::numeric_limits<float>::infinity());
    }
  }
}

// The sum, the old value and the bias are added in f32. f16 cannot hold 2048 + 1, so the 1 is lost
// if the sum is rounded before the old value is added.
TEST(GemmStandard, AccumulateRoundsOnce) {
  for (const auto& config : test::all_configs()) {
    SCOPED_TRACE(describe(config));
    Context context = make_context(config, 1);
    struct Row {
      DType dtype;
      float big;
    };
    for (const auto& [dtype, big] : {Row{DType::f16, 2048.0f}, Row{DType::bf16, 256.0f}}) {
      FloatMatrix a(dtype, 1, 2), b(dtype, 2, 20), d(dtype, 1, 20), bias(DType::f32, 1, 20);
      a.set(0, 0, big);
      a.set(0, 1, 1.0f);
      b.fill_value(1.0f);
      d.fill_value(1.0f);
      bias.fill_value(-big);
      StandardGemmArgs args;
      args.a = a.any();
      args.b = b.any();
      args.d = d.any();
      args.bias = bias.any();
      args.accumulate = true;
      gemm_standard(context, args);
      for (std::int64_t j = 0; j < 20; ++j)
        EXPECT_EQ(d.get(0, j), 2.0f) << dtype_name(dtype) << " column " << j;
    }
  }
}

void fill_integers(FloatMatrix& m, Random& random, std::int64_t largest) {
  for (std::int64_t r = 0; r < m.rows(); ++r)
    for (std::int64_t c = 0; c < m.cols(); ++c)
      m.set(r, c, static_cast<float>(random.below(2 * largest + 1) - largest));
}

// The product op(a) · op(b), summed in f32.
std::vector<float> product_of(FloatMatrix& a, FloatMatrix& b, bool transpose_a, bool transpose_b,
                              const Shape& s) {
  std::vector<float> sums(static_cast<std::size_t>(s.m * s.n), 0.0f);
  for (std::int64_t l = 0; l < s.k; ++l) {
    std::vector<float> row;
    for (std::int64_t j = 0; j < s.n; ++j)
      row.push_back(transpose_b ? b.get(j, l) : b.get(l, j));
    for (std::int64_t i = 0; i < s.m; ++i) {
      const float x = transpose_a ? a.get(l, i) : a.get(i, l);
      for (std::int64_t j = 0; j < s.n; ++j)
        sums[static_cast<std::size_t>(i * s.n + j)] += x * row[static_cast<std::size_t>(j)];
    }
  }
  return sums;
}

// Every sum of integers up to 31 is exact in f32, whatever the order: K · 31² < 2^24. It has more
// bits than 16-bit types hold, so a sum, or a part of one, that was rounded on the way shows.
TEST(GemmStandard, ResultsOf16BitsAreRoundedOnce) {
  Random random(9);
  std::vector<std::pair<std::string, Context>> contexts;
  for (const auto& config : test::all_configs())
    contexts.emplace_back(describe(config), make_context(config, 2));
  // The products of forward passes, of layers with odd sizes and with many columns, and of weight
  // gradients.
  struct Form {
    Shape shape;
    bool transpose_a, transpose_b;
  };
  const Form forms[] = {{{600, 130, 256}, false, true}, {{13, 332, 83}, false, true},
                        {{13, 21, 19}, false, true},    {{16, 40, 2048}, false, true},
                        {{130, 256, 600}, true, false}, {{332, 83, 13}, true, false}};
  for (const DType dtype : {DType::f16, DType::bf16})
    for (const auto& [shape, transpose_a, transpose_b] : forms) {
      const auto [m, n, k] = shape;
      FloatMatrix a(dtype, transpose_a ? k : m, transpose_a ? m : k);
      FloatMatrix b(dtype, transpose_b ? n : k, transpose_b ? k : n);
      FloatMatrix bias(dtype, 1, n);
      FloatMatrix old(dtype, m, n);
      fill_integers(a, random, 31);
      fill_integers(b, random, 31);
      fill_integers(bias, random, 200);
      fill_integers(old, random, 200);
      const std::vector<float> sums = product_of(a, b, transpose_a, transpose_b, shape);
      for (int flags = 0; flags < 4; ++flags) {
        StandardGemmArgs args;
        args.a = a.any();
        args.b = b.any();
        args.transpose_a = transpose_a;
        args.transpose_b = transpose_b;
        args.accumulate = (flags & 1) != 0;
        if ((flags & 2) != 0) args.bias = bias.any();
        // A GPU may round the product before it adds a bias, and before it adds the old d.
        // EveryConfigurationMatchesF64 has the bounds for that.
        const bool twice = (flags & 2) != 0 && !test::on_cpu();
        if (args.accumulate && !test::on_cpu()) continue;
        FloatMatrix want(dtype, m, n);
        FloatMatrix rounded(dtype, m, n);
        for (std::int64_t i = 0; i < m; ++i)
          for (std::int64_t j = 0; j < n; ++j) {
            const float added = (flags & 2) != 0 ? bias.get(0, j) : 0;
            const float sum =
                sums[static_cast<std::size_t>(i * n + j)] + (args.accumulate ? old.get(i, j) : 0);
            want.set(i, j, sum + added);
            rounded.set(i, j, sum);
            rounded.set(i, j, rounded.get(i, j) + added);
          }
        for (auto& [name, context] : contexts) {
          FloatMatrix d = old;
          args.d = d.any();
          gemm_standard(context, args);
          std::int64_t wrong = 0;
          for (std::int64_t i = 0; i < m; ++i)
            for (std::int64_t j = 0; j < n; ++j)
              wrong += d.get(i, j) == want.get(i, j) || (twice && d.get(i, j) == rounded.get(i, j))
                           ? 0
                           : 1;
          EXPECT_EQ(wrong, 0) << "of " << m * n << " elements, K " << k << ", " << dtype_name(dtype)
                              << (args.accumulate ? ", accumulated" : "")
                              << ((flags & 2) != 0 ? ", bias: " : ": ") << name;
        }
      }
    }
}

TEST(GemmStandard, ForcedEngineIsTheOneThatRuns) {
  Random random(6);
  Case c;
  c.shape = {40, 48, 900};
  Context context(test::device_options());
  int available = 0;
  for (const auto& info : gemm_standard_engines(context)) {
    EXPECT_EQ(info.available, info.reason.empty()) << info.name;
    if (!info.available) continue;
    ++available;
    Trial trial(c, random);
    FloatMatrix forced = trial.run(context, info.name);
    const floating::Engine* engine = floating::find_engine(context.state().device.kind, info.name);
    ASSERT_NE(engine, nullptr);
    EXPECT_TRUE(trial.close(forced, engine->factor_error)) << info.name;
    // A configuration source that chooses this engine gives the same bits as naming the engine.
    Context tuned = make_context({engine->id, false, 0}, context.threads());
    EXPECT_TRUE(trial.run(tuned) == forced) << info.name;
  }
  EXPECT_GE(available, 1);
}

// More shapes than an engine may keep prepared: they run in ascending, then in descending order.
TEST(GemmStandard, ManyShapesInTurn) {
  if (!test::on_cpu()) GTEST_SKIP() << "tests oneDNN's primitives";
  Random random(8);
  Context context = make_context({floating::EngineId::onednn_matmul, false, 0}, 2);
  for (int round = 0; round < 2; ++round)
    for (std::int64_t i = 1; i <= 70; ++i) {
      Case c;
      c.shape = {round == 0 ? i : 71 - i, 5, 6};
      Trial trial(c, random);
      FloatMatrix d = trial.run(context);
      ASSERT_TRUE(trial.close(d));
    }
}

}  // namespace
}  // namespace switchback
