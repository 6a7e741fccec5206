// SPDX-License-Identifier: Apache-2.0
// Tests of the blockwise product (dW from codes with scales for each block of rows): every engine
// stores the bits of the specification.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gemm/blockwise/dispatch.hpp"
#include "gemm/blockwise/engine.hpp"
#include "support/contexts.hpp"
#include "support/generators.hpp"
#include "support/matrix.hpp"
#include "switchback/error.hpp"
#include "switchback/gemm.hpp"
#include "switchback/quant.hpp"

namespace switchback::test {
namespace {

// The rows and columns of d.
struct Sides {
  std::int64_t n, k;
};

// Operands of a blockwise product: codes and scales of a [N,M] and b [K,M], with M padded to whole
// blocks.
struct Operands {
  Matrix<std::int8_t> a, b;
  Vector<float> absmax_a, absmax_b;
  std::int64_t block_rows;
  std::int64_t batch;  // M

  Operands(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t block, Layout layout = {})
      : a(n, whole_block_rows(m, block), layout),
        b(k, whole_block_rows(m, block), layout),
        block_rows(block),
        batch(m) {
    Random random(static_cast<std::uint64_t>(m * 31 + n * 7 + k));
    fill_codes(a, random);
    fill_codes(b, random);
    const std::int64_t blocks = a.cols() / block;
    absmax_a = scales(blocks * n, random);
    absmax_b = scales(blocks * k, random);
    fill_rows(m, a.cols(), 0);
  }

  // Sets the codes of these rows of the batch.
  void fill_rows(std::int64_t begin, std::int64_t end, std::int8_t code) {
    for (Matrix<std::int8_t>* codes : {&a, &b})
      for (std::int64_t r = 0; r < codes->rows(); ++r)
        for (std::int64_t t = begin; t < end; ++t)
          codes->set(r, t, code);
  }

  static Vector<float> scales(std::int64_t count, Random& random) {
    Vector<float> all(static_cast<std::size_t>(count));
    for (float& scale : all)
      scale = static_cast<float>(random.uniform()) * 3.0f;
    return all;
  }

  [[nodiscard]] BlockwiseGemmArgs into(AnyMatrix d, bool accumulate,
                                       std::string_view engine = {}) const {
    BlockwiseGemmArgs args;
    args.a = a.view();
    args.b = b.view();
    args.d = d;
    args.absmax_a = absmax_a;
    args.absmax_b = absmax_b;
    args.block_rows = block_rows;
    args.accumulate = accumulate;
    args.engine = engine;
    return args;
  }
};

// Compares the bits of two results. All NaNs count as equal, whatever their bits are.
template <class T>
::testing::AssertionResult same_values(const Matrix<T>& got, const Matrix<T>& want) {
  for (std::int64_t r = 0; r < want.rows(); ++r)
    for (std::int64_t c = 0; c < want.cols(); ++c) {
      const float g = got.get_float(r, c);
      const float w = want.get_float(r, c);
      if (std::isnan(g) && std::isnan(w)) continue;
      if (std::bit_cast<std::uint32_t>(g) != std::bit_cast<std::uint32_t>(w))
        return ::testing::AssertionFailure()
               << "(" << r << "," << c << ") is " << g << ", want " << w;
    }
  return ::testing::AssertionSuccess();
}

template <class T>
Matrix<T> initial(std::int64_t n, std::int64_t k, Layout layout) {
  Matrix<T> d(n, k, layout);
  for (std::int64_t r = 0; r < n; ++r)
    for (std::int64_t c = 0; c < k; ++c)
      d.set(r, c, T(static_cast<float>(r - c) * 0.37f));
  return d;
}

std::vector<EngineInfo> engines_to_test(const Context& context) {
  std::vector<EngineInfo> all = gemm_blockwise_engines(context);
  std::erase_if(all, [](const EngineInfo& engine) { return !engine.available; });
  return all;
}

template <class T>
void expect_reference_bits(const Operands& o, Layout layout = {}) {
  const std::int64_t n = o.a.rows();
  const std::int64_t k = o.b.rows();
  Context reference(cpu_options());
  for (const bool accumulate : {false, true}) {
    Matrix<T> want = initial<T>(n, k, {});
    gemm_blockwise(reference, o.into(want.view(), accumulate, "reference"));
    for (const ContextOptions& options : all_contexts()) {
      Context context(options);
      for (const EngineInfo& engine : engines_to_test(context)) {
        SCOPED_TRACE(engine.name + " on " + describe(options) + (accumulate ? " accumulate" : ""));
        // The engine is told where the padding begins (m), or is not told (-1).
        for (const std::int64_t m : {std::int64_t{-1}, o.batch}) {
          Matrix<T> d = initial<T>(n, k, layout);
          BlockwiseGemmArgs args = o.into(d.view(), accumulate, engine.name);
          args.m = m;
          gemm_blockwise(context, args);
          EXPECT_TRUE(same_values(d, want)) << "m = " << m;
          EXPECT_TRUE(d.guards_intact());
          if (::testing::Test::HasFailure()) return;
        }
      }
    }
  }
}

void expect_reference_bits_of_every_type(const Operands& o) {
  expect_reference_bits<float>(o);
  expect_reference_bits<half>(o);
  expect_reference_bits<bfloat16>(o);
}

// Compares the reference engine with the formula, whose operations are in the order of the
// specification.
TEST(Blockwise, TheReferenceIsTheFormula) {
  const Operands o(300, 3, 4, 128);
  Context context(cpu_options());
  Matrix<float> d = initial<float>(3, 4, {});
  gemm_blockwise(context, o.into(d.view(), true, "reference"));
  for (std::int64_t n = 0; n < 3; ++n)
    for (std::int64_t k = 0; k < 4; ++k) {
      float p = 0.0f;
      for (std::int64_t b = 0; b < 3; ++b) {
        std::int32_t sum = 0;
        for (std::int64_t t = b * 128; t < (b + 1) * 128; ++t)
          sum += o.a.get(n, t) * o.b.get(k, t);
        // volatile: the product is rounded to f32 before the multiply-add.
        volatile const float scaled =
            static_cast<float>(sum) * o.absmax_b[static_cast<std::size_t>(b * 4 + k)];
        p = std::fma(float{scaled}, o.absmax_a[static_cast<std::size_t>(b * 3 + n)], p);
      }
      const float want =
          std::fma(p, std::bit_cast<float>(0x38820610u), static_cast<float>(n - k) * 0.37f);
      EXPECT_EQ(std::bit_cast<std::uint32_t>(d.get(n, k)), std::bit_cast<std::uint32_t>(want));
    }
}

// Sizes at the edges of the tiles and tasks of the CPU's kernels. Tiles have up to 6 rows and 64
// columns, or 32 of each; a task has up to 96 rows and 512 columns.
TEST(Blockwise, EdgesOfTilesAndTasks) {
  const Sides edges[] = {{1, 1},    {5, 15},  {6, 16},  {7, 17},  {13, 63}, {12, 64}, {64, 65},
                         {65, 130}, {16, 31}, {31, 32}, {33, 33}, {96, 47}, {97, 20}, {9, 515}};
  for (const auto& [n, k] : edges)
    expect_reference_bits<float>(Operands(200, n, k, 128));
}

TEST(Blockwise, EveryBlockLengthAndType) {
  for (const std::int64_t block : {128, 256, 512, 1024})
    for (const std::int64_t m : {1, 127, 1024, 1025})
      expect_reference_bits_of_every_type(Operands(m, 20, 40, block));
  // This result is wide enough for whole panels of columns.
  expect_reference_bits_of_every_type(Operands(200, 20, 130, 128));
}

// The int32 sums are about 2^16, and the factor 1/127² is about 2^-14. With these scales most
// results are subnormal, first in f16, then in f32 and bf16.
TEST(Blockwise, SubnormalResults) {
  for (const float scale : {0x1p-22f, 0x1p-134f}) {
    Operands o(128, 13, 130, 128);
    for (std::size_t i = 0; i < o.absmax_a.size(); ++i)
      o.absmax_a[i] = scale * static_cast<float>(i + 1);
    std::fill(o.absmax_b.begin(), o.absmax_b.end(), 1.0f);
    expect_reference_bits_of_every_type(o);
  }
}

// Rows and columns of d for which a GPU's kernel has tiles of 128 × 128 and not 64 × 64: there is
// one tile for each multiprocessor. The emulated device has four multiprocessors, an H100 or H200
// has 132.
Sides sides_of_large_tiles() {
  return on_emulated() ? Sides{256, 256} : Sides{1408, 1536};
}

TEST(Blockwise, EdgesOfTilesOfTensorCores) {
  if (on_cpu()) GTEST_SKIP() << "of kernels of devices";
  for (const std::int64_t side : {63, 64, 65})
    expect_reference_bits<bfloat16>(Operands(192, side, 128 - side, 128));
  const auto [n, k] = sides_of_large_tiles();
  expect_reference_bits<float>(Operands(320, n - 63, k - 1, 128), {5, 1});
  expect_reference_bits<bfloat16>(Operands(192, n - 4, k, 512));
  expect_reference_bits<half>(Operands(64, n, k - 62, 256));
}

// On compute capability 9.0, tiles of d have 128 columns and 128 rows, or 256 rows with blocks of
// up to 256 rows. Cases: one tile, more tiles than thread blocks run at a time, and parts of tiles
// at both edges. Square tiles take blocks of codes in pairs, of which the last may be missing.
TEST(Blockwise, EdgesOfTilesOfWarpgroups) {
  if (on_cpu()) GTEST_SKIP() << "of kernels of devices";
  for (const auto& [n, k] : {Sides{255, 127}, {256, 128}, {257, 129}}) {
    expect_reference_bits<bfloat16>(Operands(128, n, k, 128));
    expect_reference_bits<float>(Operands(300, n, k, 256), {1, 0});
  }
  for (const std::int64_t m : {1, 513, 2049})
    for (const std::int64_t block : {512, 1024})
      expect_reference_bits<half>(Operands(m, 129, 127, block));
  if (sanitized) return;
  expect_reference_bits<bfloat16>(Operands(300, 520, 390, 128));
  expect_reference_bits<float>(Operands(300, 700, 260, 256));
}

// A thread block keeps its tile of d in memory between superblocks, or several thread blocks
// compute the sums of one superblock each. The oracle is the CPU's default engine, which other
// tests compare with the reference. The reference itself would take too long.
TEST(Blockwise, SuperblocksOfTilesOfTensorCores) {
  if (on_cpu()) GTEST_SKIP() << "of kernels of devices";
  const auto [n, k] = sides_of_large_tiles();
  Context oracle(cpu_options());
  Context context(device_options());
  struct Case {
    std::int64_t m, n, k;
    bool accumulate;
    std::int64_t block = 1024;
  };
  std::vector<Case> cases = {{2 * 8192 + 70, n - 56, k - 30, true}, {3 * 8192, 60, 64, true}};
  if (!sanitized) {
    // Four superblocks of large tiles: fewer tiles than multiprocessors.
    cases.push_back({4 * 8192, n / 2, on_emulated() ? k / 2 : k / 2 * 3, true});
    // More tiles than thread blocks run at a time: on 9.0 wide tiles, and on the emulated device
    // square ones. Then, on the emulated device, one tile: each of its superblocks has a thread
    // block.
    const std::int64_t more = on_emulated() ? n + 9 : 2 * n + 9;
    for (const std::int64_t block : {128, 256})
      cases.push_back({8192 + 200, more, k + 2, true, block});
    cases.push_back({2 * 8192 + 200, n - 1, k / 2, false, 128});
  }
  for (const Case& c : cases) {
    SCOPED_TRACE(std::to_string(c.m) + " rows, d " + std::to_string(c.n) + " x " +
                 std::to_string(c.k));
    const Operands o(c.m, c.n, c.k, c.block);
    Matrix<bfloat16> want = initial<bfloat16>(c.n, c.k, {});
    gemm_blockwise(oracle, o.into(want.view(), c.accumulate));
    for (const EngineInfo& engine : engines_to_test(context)) {
      if (engine.name == "dp4a") continue;
      SCOPED_TRACE(engine.name);
      Matrix<bfloat16> d = initial<bfloat16>(c.n, c.k, {});
      gemm_blockwise(context, o.into(d.view(), c.accumulate, engine.name));
      context.synchronize();
      EXPECT_TRUE(same_values(d, want));
      EXPECT_TRUE(d.guards_intact());
    }
  }
}

// Results that are too large for one thread's caches are written with non-temporal stores, if the
// kernel has them and rows are aligned. Results with unaligned rows have the same values.
template <class T>
void expect_large_results(Context& context) {
  // The result has whole panels of 64 columns, and half a panel.
  Operands o(128, 2200, 1056, 128);
  o.absmax_a[3] = nan;
  o.absmax_b[70] = inf;
  for (const EngineInfo& engine : engines_to_test(context)) {
    if (engine.name == "reference") continue;
    SCOPED_TRACE(engine.name);
    Matrix<T> want(2200, 1056, {1, 0});
    Matrix<T> d(2200, 1056);
    for (Matrix<T>* into : {&want, &d}) {
      gemm_blockwise(context, o.into(into->view(), false, engine.name));
      EXPECT_TRUE(into->guards_intact());
    }
    EXPECT_TRUE(same_values(d, want));
  }
}

TEST(Blockwise, LargeResults) {
  if (!on_cpu()) GTEST_SKIP() << "of CPU kernels";
  ContextOptions options = cpu_options();
  options.threads = 1;
  Context context(options);
  expect_large_results<float>(context);
  expect_large_results<half>(context);
  expect_large_results<bfloat16>(context);
}

TEST(Blockwise, SuperblocksAreAddedOneAfterTheOther) {
  for (const std::int64_t m : {8192, 8193, 20000}) {
    if (sanitized && !on_cpu() && m != 8193) continue;  // each m takes half a minute
    const Operands o(m, 7, 18, 1024);
    expect_reference_bits<float>(o);
    expect_reference_bits<bfloat16>(o, {3, 1});
  }
}

TEST(Blockwise, StridesAndMisalignment) {
  const Operands o(300, 14, 35, 128, {5, 3});
  expect_reference_bits<float>(o, {3, 1});
  expect_reference_bits<half>(o, {1, 1});
}

// Engines are told where the padding begins, so that they do not multiply it. They read no code
// after the step of 64 codes in which the padding begins. Here the codes after this step are not
// zero, as padding should be, so that a read of them changes the result.
TEST(Blockwise, PaddingIsNotMultiplied) {
  Context reference(cpu_options());
  for (const std::int64_t m : {1, 64, 100, 129, 300}) {
    Operands o(m, 13, 35, 256);
    Matrix<float> want(13, 35);
    gemm_blockwise(reference, o.into(want.view(), false, "reference"));
    o.fill_rows((m + 63) / 64 * 64, o.a.cols(), 3);
    for (const ContextOptions& options : all_contexts()) {
      Context context(options);
      for (const EngineInfo& engine : engines_to_test(context)) {
        if (engine.name == "reference") continue;
        SCOPED_TRACE(engine.name + " on " + describe(options) + " m = " + std::to_string(m));
        Matrix<float> d(13, 35);
        BlockwiseGemmArgs args = o.into(d.view(), false, engine.name);
        args.m = m;
        gemm_blockwise(context, args);
        EXPECT_TRUE(same_values(d, want));
      }
    }
  }
}

// 127 · 127 · 1024 is below 2^24, so the conversion of every block's sum to float is exact.
TEST(Blockwise, TheLargestSums) {
  Operands o(2048, 8, 16, 1024);
  fill_constant(o.a, 127);
  fill_constant(o.b, -127);
  expect_reference_bits<float>(o);
  // Some engines start a sum at the bits of the float 1.5 · 2^23. These are the largest sums for
  // which they may do so. On a GPU the code -128, which the library does not make, is tested too.
  for (const int code : {-128, -127, 127}) {
    if (code == -128 && on_cpu()) continue;
    Operands small(512, 8, 16, 256);
    fill_constant(small.a, static_cast<std::int8_t>(code));
    fill_constant(small.b, static_cast<std::int8_t>(code == 127 ? -127 : code));
    expect_reference_bits<float>(small);
  }
}

TEST(Blockwise, NonFiniteScalesStayInTheirRowAndColumn) {
  for (const std::int64_t k : {20, 130}) {
    Operands o(300, 9, k, 128);
    o.absmax_a[9 + 2] = inf;                                // the scale of block 1, row 2 of a
    o.absmax_b[static_cast<std::size_t>(2 * k + 5)] = nan;  // the scale of block 2, row 5 of b
    for (std::int64_t t = 128; t < 256; ++t)
      o.a.set(2, t, 0);  // quantizing a group with an Inf writes zeros
    for (std::int64_t t = 256; t < 384; ++t)
      o.b.set(5, t, 0);
    expect_reference_bits_of_every_type(o);
    Context context(device_options());
    Matrix<float> d(9, k);
    gemm_blockwise(context, o.into(d.view(), false));
    for (std::int64_t r = 0; r < 9; ++r)
      for (std::int64_t c = 0; c < k; ++c)
        EXPECT_EQ(std::isnan(d.get(r, c)), r == 2 || c == 5) << r << "," << c;
  }
}

TEST(Blockwise, EmptyProducts) {
  Context context(device_options());
  const Operands none(0, 3, 5, 256);
  Matrix<float> d = initial<float>(3, 5, {});
  const Matrix<float> before = d;
  gemm_blockwise(context, none.into(d.view(), true));
  EXPECT_TRUE(d == before);
  gemm_blockwise(context, none.into(d.view(), false));
  for (std::int64_t r = 0; r < 3; ++r)
    for (std::int64_t c = 0; c < 5; ++c)
      EXPECT_EQ(std::bit_cast<std::uint32_t>(d.get(r, c)), 0u);
  for (const auto& [n, k] : {Sides{0, 5}, {3, 0}}) {
    Matrix<float> nothing(n, k);
    gemm_blockwise(context, Operands(128, n, k, 128).into(nothing.view(), false));
  }
}

// Batches of whole superblocks, accumulated in f32, give the result of one batch.
TEST(Blockwise, WholeSuperblocksAccumulateToTheBitsOfOneBatch) {
  const std::int64_t m = 3 * blockwise_superblock_rows - 300;
  const std::int64_t n = 5;
  const std::int64_t k = 9;
  const std::int64_t block = 512;
  Context context(device_options());
  Matrix<float> g(m, n);
  Matrix<float> x(m, k);
  Random random(5);
  fill_normal(g, random);
  fill_normal(x, random);
  const auto product = [&](std::int64_t begin, std::int64_t end, AnyMatrix d, bool accumulate) {
    Operands o(end - begin, n, k, block);
    const auto rows = [&](const Matrix<float>& from) {
      return MatrixView<const float>(from.data() + begin * from.stride(), end - begin, from.cols(),
                                     from.stride());
    };
    quantize_blockwise_transpose(context, rows(g), block, o.a.view(), o.absmax_a);
    quantize_blockwise_transpose(context, rows(x), block, o.b.view(), o.absmax_b);
    gemm_blockwise(context, o.into(d, accumulate));
    context.synchronize();
  };
  Matrix<float> whole(n, k);
  product(0, m, whole.view(), false);
  Matrix<float> parts(n, k);
  product(0, blockwise_superblock_rows, parts.view(), false);
  product(blockwise_superblock_rows, m, parts.view(), true);
  EXPECT_TRUE(parts == whole);
  // The result is near the exact product. The error of a code is at most absmax/254, here about
  // 3.5/254 of a standard deviation, uniform, for both factors: sqrt(2) · 3.5/254/sqrt(3) = 1.2 %
  // of the norm of the sums. Blocks of 512 rows have a smaller absmax than the whole, so 1.5 % is a
  // bound.
  double error = 0.0;
  double norm = 0.0;
  for (std::int64_t r = 0; r < n; ++r)
    for (std::int64_t c = 0; c < k; ++c) {
      double exact = 0.0;
      for (std::int64_t t = 0; t < m; ++t)
        exact += static_cast<double>(g.get(t, r)) * static_cast<double>(x.get(t, c));
      error += std::pow(static_cast<double>(whole.get(r, c)) - exact, 2);
      norm += std::pow(exact, 2);
    }
  EXPECT_LT(std::sqrt(error / norm), 0.015);
}

// Operands of groups with these numbers of rows. Each group has its own blocks of a and b. After
// every second group there is a block of random codes that belongs to no group.
struct Groups {
  Operands all;
  Vector<blockwise::BlockGroup> groups;

  Groups(const std::vector<std::int64_t>& rows, std::int64_t n, std::int64_t k, std::int64_t block,
         Layout layout = {})
      : all(block * blocks_of(rows, block), n, k, block, layout) {
    std::int64_t first = 0;
    for (std::size_t g = 0; g < rows.size(); ++g) {
      groups.push_back({static_cast<std::int32_t>(first), static_cast<std::int32_t>(rows[g])});
      const std::int64_t end = first * block + whole_block_rows(rows[g], block);
      all.fill_rows(first * block + rows[g], end, 0);
      first = end / block + follows(g, rows);
    }
  }

  [[nodiscard]] std::int64_t count() const { return static_cast<std::int64_t>(groups.size()); }
  [[nodiscard]] std::int64_t n() const { return all.a.rows(); }
  [[nodiscard]] std::int64_t k() const { return all.b.rows(); }

  // The arguments for the product of one group alone.
  [[nodiscard]] BlockwiseGemmArgs only(std::int64_t group, AnyMatrix d, bool accumulate,
                                       std::string_view engine) const {
    const auto [first, rows] = groups[static_cast<std::size_t>(group)];
    const std::int64_t padded = whole_block_rows(rows, all.block_rows);
    const std::int64_t blocks = padded / all.block_rows;
    const auto part = [&](const Matrix<std::int8_t>& codes) {
      return MatrixView<const std::int8_t>(codes.data() + first * all.block_rows, codes.rows(),
                                           padded, codes.stride());
    };
    const auto scales = [&](const Vector<float>& of_all, std::int64_t count) {
      return std::span<const float>(of_all).subspan(static_cast<std::size_t>(first * count),
                                                    static_cast<std::size_t>(blocks * count));
    };
    BlockwiseGemmArgs args = all.into(d, accumulate, engine);
    args.a = part(all.a);
    args.b = part(all.b);
    args.absmax_a = scales(all.absmax_a, n());
    args.absmax_b = scales(all.absmax_b, k());
    if (rows > 0) args.m = rows;
    return args;
  }

 private:
  // How many blocks without a group follow group g. No such block follows the last group, so that
  // an empty last group may begin after the last block.
  static std::int64_t follows(std::size_t g, const std::vector<std::int64_t>& rows) {
    return g % 2 == 1 && g + 2 < rows.size() ? 1 : 0;
  }
  static std::int64_t blocks_of(const std::vector<std::int64_t>& rows, std::int64_t block) {
    std::int64_t blocks = 0;
    for (std::size_t g = 0; g < rows.size(); ++g)
      blocks += whole_block_rows(rows[g], block) / block + follows(g, rows);
    return blocks;
  }
};

template <class T>
MatrixView<T> rows_of_group(Matrix<T>& d, std::int64_t group, std::int64_t n) {
  return {d.data() + group * n * d.stride(), n, d.cols(), d.stride()};
}

// Compares a grouped product with the reference's product of each group alone. With accumulate, d
// has a -0 in each group: adding zero to it would change its sign.
template <class T>
void expect_bits_of_each_group(const Groups& o, Layout layout = {}) {
  Context reference(cpu_options());
  const auto before = [&](Layout of_d) {
    Matrix<T> d = initial<T>(o.count() * o.n(), o.k(), of_d);
    for (std::int64_t g = 0; g < o.count(); ++g)
      d.set(g * o.n(), 0, T(-0.0f));
    return d;
  };
  for (const bool accumulate : {false, true}) {
    Matrix<T> want = before({});
    for (std::int64_t g = 0; g < o.count(); ++g)
      gemm_blockwise(reference, o.only(g, rows_of_group(want, g, o.n()), accumulate, "reference"));
    for (const ContextOptions& options : all_contexts()) {
      Context context(options);
      std::vector<std::string> engines = {""};  // the default
      for (const EngineInfo& engine : engines_to_test(context))
        engines.push_back(engine.name);
      for (const std::string& engine : engines) {
        SCOPED_TRACE("engine '" + engine + "' on " + describe(options) +
                     (accumulate ? " accumulate" : ""));
        Matrix<T> d = before(layout);
        BlockwiseGemmArgs args = o.all.into(d.view(), accumulate, engine);
        args.m = 1;  // ignored
        blockwise::multiply(context.state(), args, o.groups);
        context.synchronize();
        EXPECT_TRUE(same_values(d, want));
        EXPECT_TRUE(d.guards_intact());
        if (::testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(Blockwise, GroupsHaveTheBitsOfTheirOwnProducts) {
  for (const std::int64_t block : {128, 512}) {
    const Groups o({0, 1, block - 1, block, block + 1, 0, 64, 65, 0}, 20, 40, block);
    expect_bits_of_each_group<float>(o);
    expect_bits_of_each_group<half>(o, {1, 0});
    expect_bits_of_each_group<bfloat16>(o);
  }
  expect_bits_of_each_group<float>(Groups({300}, 9, 18, 256));
  // Operands at any address and with any stride.
  expect_bits_of_each_group<bfloat16>(Groups({5, 0, 200}, 7, 18, 128, {5, 3}), {3, 1});
}

// A thread block computes several tiles, one after another, and keeps each in memory between
// superblocks. The emulated device runs 12 thread blocks at a time, and the last group begins with
// the 12th tile, counted from 0.
TEST(Blockwise, SuperblocksBeginWithTheirGroup) {
  if (under_thread_sanitizer && !on_cpu()) GTEST_SKIP() << "it takes minutes";
  expect_bits_of_each_group<float>(Groups({70, 2 * 8192 + 1}, 5, 18, 1024));
  expect_bits_of_each_group<bfloat16>(Groups({8193, 0, 70, 0, 0, 0, 8192 + 70}, 5, 70, 1024),
                                      {3, 0});
}

// Each group has several tiles, and all groups together have more than a GPU's thread blocks can
// compute at a time.
TEST(Blockwise, TilesOfGroups) {
  if (on_cpu()) GTEST_SKIP() << "of kernels of devices";
  expect_bits_of_each_group<bfloat16>(Groups({0, 70, 0, 300, 256, 1, 0}, 129, 66, 256));
  if (sanitized) return;
  // Sizes for which a GPU's tiles have 128 rows and 128 columns.
  const auto [n, k] = sides_of_large_tiles();
  expect_bits_of_each_group<half>(Groups({65, 0, 129}, n - 3, k - 62, 128));
}

TEST(Blockwise, GroupsWithoutRows) {
  expect_bits_of_each_group<float>(Groups({0}, 3, 5, 128));
  expect_bits_of_each_group<bfloat16>(Groups({0, 0, 0}, 3, 5, 256));
  const Groups no_columns({3, 0}, 4, 0, 128);
  Matrix<float> nothing(8, 0);
  Context context(device_options());
  blockwise::multiply(context.state(), no_columns.all.into(nothing.view(), false),
                      no_columns.groups);
}

TEST(Blockwise, WhichEnginesOfDevicesComputeGroups) {
  if (on_cpu()) GTEST_SKIP() << "of engines of devices";
  Context context(device_options());
  blockwise::BlockwiseProblem p;
  p.n = p.k = p.stride_d = 64;
  p.m = p.padded_m = p.stride_a = p.stride_b = 256;
  p.block_rows = 128;
  p.alignment = 16;
  const auto unsupported = [&](blockwise::EngineId id) {
    return blockwise::engine_table().find(context.state().device.kind, id)->unsupported(p);
  };
  EXPECT_EQ(unsupported(blockwise::EngineId::wgmma), "");
  p.groups = 2;
  EXPECT_EQ(unsupported(blockwise::EngineId::wgmma), "it does not support groups");
  EXPECT_EQ(unsupported(blockwise::EngineId::mma), "");
  EXPECT_EQ(blockwise::default_config(p, context.state()).engine, blockwise::EngineId::mma);
  p.groups = std::int64_t{1} << 31;
  EXPECT_EQ(unsupported(blockwise::EngineId::mma), "the problem has too many rows, codes or tiles");
  EXPECT_EQ(blockwise::default_config(p, context.state()).engine, blockwise::EngineId::dp4a);
}

TEST(Blockwise, RefusesWhatDoesNotFit) {
  Context context(cpu_options());
  const Operands o(200, 3, 5, 128);
  Matrix<float> d(3, 5);
  const auto refused = [&](const std::function<void(BlockwiseGemmArgs&)>& change) {
    BlockwiseGemmArgs args = o.into(d.view(), false);
    change(args);
    try {
      gemm_blockwise(context, args);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(refused([](auto& args) { args.block_rows = 100; }),
            "gemm_blockwise: block_rows = 100; it must be 128, 256, 512 or 1024");
  EXPECT_EQ(refused([](auto& args) { args.block_rows = 512; }),
            "gemm_blockwise: a has 256 columns; it must have whole blocks of block_rows = 512");
  for (const std::int64_t m : {-2, 0, 128, 257}) {
    EXPECT_EQ(refused([m](auto& args) { args.m = m; }),
              "gemm_blockwise: m = " + std::to_string(m) +
                  "; it must be -1, or end in the last block of a, which has 256 columns in "
                  "blocks of 128");
  }
  EXPECT_EQ(refused([](auto& args) { args.b.cols = 128; }),
            "gemm_blockwise: b is [5,128]; it must be [K,columns of a] = [5,256]");
  EXPECT_EQ(refused([](auto& args) { args.d.rows = 2; }),
            "gemm_blockwise: d is [2,5]; it must be [N,K] = [3,5]");
  EXPECT_EQ(refused([](auto& args) { args.absmax_b = args.absmax_b.first(9); }),
            "gemm_blockwise: absmax_b holds 9 floats; it must hold blocks * K = 10");
  EXPECT_EQ(refused([&](auto& args) { args.d = AnyMatrix(d.data(), DType::s32, 3, 5, 5); }),
            "gemm_blockwise: d has dtype s32; it must be f32, f16 or bf16");
  EXPECT_EQ(refused([](auto& args) { args.engine = "onednn"; }),
            "gemm_blockwise: engine 'onednn' is not one of amx, avx512_vnni, avx_vnni, avx2, "
            "neon_i8mm, neon_dotprod, reference");
  for (std::int64_t r = 0; r < 3; ++r)
    for (std::int64_t c = 0; c < 5; ++c)
      EXPECT_EQ(d.get(r, c), 0.0f);
  EXPECT_EQ(refused([](auto& args) { args.m = 129; }), "accepted");
}

}  // namespace
}  // namespace switchback::test
