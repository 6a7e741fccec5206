// SPDX-License-Identifier: Apache-2.0
// Tests of the weight gradients of groups with few rows: every sum has the bits of multiply-adds in
// the order of the rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/aligned_buffer.hpp"
#include "core/context_state.hpp"
#include "core/cpu/isa.hpp"
#include "gemm/floating/cpu/short_products.hpp"
#include "support/generators.hpp"
#include "switchback/context.hpp"

namespace switchback::test {
namespace {

using floating::ShortProduct;
using floating::ShortShape;

std::vector<float> some_floats(std::int64_t count, Random& random) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values)
    value = static_cast<float>(random.below(1 << 24) - (1 << 23)) * 0x1p-20f;
  return values;
}

// Computes products with the given numbers of rows and checks them. Their outputs d follow each
// other; the first begins `first` floats after the beginning of a cache line.
void check(Context& context, const ShortShape& shape, const std::vector<std::int64_t>& rows,
           std::int64_t first) {
  ContextState& state = context.state();
  Random random(1);
  std::int64_t all_rows = 0;
  for (const std::int64_t count : rows)
    all_rows += count;
  const std::vector<float> a = some_floats(all_rows * shape.lda, random);
  const std::vector<float> b = some_floats(all_rows * shape.ldb, random);
  const std::int64_t step = shape.n * shape.ldd;
  const auto count = static_cast<std::int64_t>(rows.size()) * step + first + 16;
  core::AlignedBuffer buffer;
  buffer.reserve(static_cast<std::size_t>(count) * sizeof(float));
  auto* const d = buffer.as<float>();
  constexpr float guard = 0x1.8p77f;
  std::fill_n(d, count, guard);
  std::vector<ShortProduct> products;
  std::int64_t begin = 0;
  for (const std::int64_t own : rows) {
    products.push_back({a.data() + begin * shape.lda, b.data() + begin * shape.ldb,
                        d + first + static_cast<std::int64_t>(products.size()) * step, own});
    begin += own;
  }
  floating::run_short_products(state, shape, products);
  std::int64_t wrong = 0;
  for (const ShortProduct& product : products)
    for (std::int64_t i = 0; i < shape.n; ++i)
      for (std::int64_t j = 0; j < shape.ldd; ++j) {
        float want = guard;
        if (j < shape.k) {
          want = 0.0f;
          for (std::int64_t r = 0; r < product.rows; ++r)
            want = std::fma(product.a[r * shape.lda + i], product.b[r * shape.ldb + j], want);
        }
        wrong += product.d[i * shape.ldd + j] != want;
      }
  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(std::all_of(d, d + first, [](float value) { return value == guard; }));
  EXPECT_TRUE(std::all_of(d + count - 16, d + count, [](float value) { return value == guard; }));
}

TEST(ShortProducts, EveryEdgeOfATile) {
  for (const int threads : {1, 3}) {
    Context context(ContextOptions{.threads = threads});
    if (!floating::has_short_products(context.state())) GTEST_SKIP() << "no AVX-512";
    for (const std::int64_t n : {1, 6, 7, 50})
      for (const std::int64_t k : {1, 15, 16, 17, 48, 63, 64, 65, 130}) {
        SCOPED_TRACE(testing::Message() << "n " << n << " k " << k);
        check(context, {.n = n, .k = k, .lda = n, .ldb = k, .ldd = k}, {3, 0, 1, 17}, 0);
        check(context, {.n = n, .k = k, .lda = n + 3, .ldb = k + 1, .ldd = k + 5}, {2, 9}, 3);
      }
    check(context, {.n = 20, .k = 80, .lda = 20, .ldb = 80, .ldd = 80},
          {floating::short_product_rows, 1}, 0);
  }
}

// d is so large that it is written with non-temporal stores, if it is aligned.
TEST(ShortProducts, MoreThanTheCachesHold) {
  Context context(ContextOptions{.threads = 1});
  if (!floating::has_short_products(context.state())) GTEST_SKIP() << "no AVX-512";
  constexpr ShortShape shape = {.n = 500, .k = 256, .lda = 500, .ldb = 256, .ldd = 256};
  const std::size_t bytes = static_cast<std::size_t>(shape.n * shape.k) * sizeof(float);
  const std::size_t l2 = std::min(core::cpu_caches().l2_bytes, std::size_t{4} << 20);
  check(context, shape, std::vector<std::int64_t>(2 * l2 / bytes + 2, 2), 0);
}

// A value of an operand that is not finite affects only its row or its column of d.
TEST(ShortProducts, NotFinite) {
  Context context;
  if (!floating::has_short_products(context.state())) GTEST_SKIP() << "no AVX-512";
  constexpr std::int64_t n = 7;
  constexpr std::int64_t k = 65;
  std::vector<float> a(2 * n, 1.0f);
  std::vector<float> b(2 * k, 1.0f);
  a[3] = std::numeric_limits<float>::quiet_NaN();
  b[64] = std::numeric_limits<float>::infinity();
  std::vector<float> d(n * k);
  const ShortProduct product = {a.data(), b.data(), d.data(), 2};
  floating::run_short_products(context.state(), {.n = n, .k = k, .lda = n, .ldb = k, .ldd = k},
                               {&product, 1});
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < k; ++j)
      EXPECT_EQ(std::isfinite(d[static_cast<std::size_t>(i * k + j)]), i != 3 && j != 64);
}

}  // namespace
}  // namespace switchback::test
