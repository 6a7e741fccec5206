// SPDX-License-Identifier: Apache-2.0
// Grouped floating point products have the results of a separate product for each group.
#include <gtest/gtest.h>

#include <utility>

#include "gemm/int8_support.hpp"
#include "grouped/support.hpp"
#include "switchback/grouped.hpp"

namespace switchback::test {
namespace {

// Fills a matrix with numbers of few bits: sums of their products are exact in f32, whatever the
// order, so that every engine has the same bits.
template <class T>
void fill_small_integers(Matrix<T>& m, Random& random) {
  for (std::int64_t r = 0; r < m.rows(); ++r)
    for (std::int64_t c = 0; c < m.cols(); ++c)
      m.set(r, c, T(static_cast<float>(random.below(17) - 8)));
}

enum class Product { y, dx, dw };

struct Case {
  Product product = Product::y;
  bool accumulate = false;
  bool bias = false;
  std::int64_t n = 19;
  std::int64_t k = 26;
  std::int64_t b_column_stride = 0;  // above 0: the matrices of the groups lie side by side
};

template <class T>
void check(const SomeGroups& groups, const Case& c) {
  Random random(1);
  const Product product = c.product;
  const bool dw = product == Product::dw;
  const std::int64_t n = c.n, k = c.k, column_stride = c.b_column_stride;
  Matrix<T> a(groups.slots, product == Product::y ? k : n, {2, 0});
  Matrix<T> b(column_stride > 0 ? n
              : dw              ? groups.slots
                                : groups.count() * n,
              column_stride > 0 ? (groups.count() - 1) * column_stride + k : k, {1, 0});
  Matrix<float> biases(groups.count(), n, {3, 0});
  Matrix<T> d(dw ? groups.count() * n : groups.slots, product == Product::y ? n : k, {4, 0});
  fill_small_integers(a, random);
  fill_small_integers(b, random);
  fill_small_integers(biases, random);
  fill_constant(d, T(5.0f));
  Matrix<T> want = d;
  const auto add = [&](std::int64_t r, std::int64_t col, float sum) {
    want.set(r, col, T(sum + (c.accumulate ? 5.0f : 0.0f)));
  };
  for (std::int64_t g = 0; g < groups.count(); ++g) {
    const std::int64_t begin = groups.begins[static_cast<std::size_t>(g)];
    const std::int64_t end = begin + groups.counts[static_cast<std::size_t>(g)];
    const auto weight = [&](std::int64_t r, std::int64_t col) {
      return column_stride > 0 ? b.get_float(r, g * column_stride + col)
                               : b.get_float(g * n + r, col);
    };
    for (std::int64_t i = 0; i < n && dw; ++i)
      for (std::int64_t j = 0; j < k; ++j) {
        float sum = 0;
        for (std::int64_t r = begin; r < end; ++r)
          sum += a.get_float(r, i) * b.get_float(r, j);
        add(g * n + i, j, sum);
      }
    for (std::int64_t r = begin; r < end && !dw; ++r)
      for (std::int64_t j = 0; j < d.cols(); ++j) {
        float sum = c.bias ? biases.get(g, j) : 0.0f;
        for (std::int64_t l = 0; l < a.cols(); ++l)
          sum += a.get_float(r, l) * (product == Product::y ? weight(j, l) : weight(l, j));
        add(r, j, sum);
      }
  }
  for (const ContextOptions& options : all_contexts()) {
    SCOPED_TRACE(describe(options) + " groups " + groups.name);
    Context context(options);
    Matrix<T> out = d;
    GroupedStandardGemmArgs args;
    args.groups = groups.view();
    args.a = a.view();
    args.b = b.view();
    args.d = out.view();
    args.transpose_a = dw;
    args.transpose_b = product == Product::y;
    args.b_column_stride = column_stride;
    args.accumulate = c.accumulate;
    if (c.bias) args.bias = biases.view();
    grouped_gemm_standard(context, args);
    context.synchronize();
    EXPECT_TRUE(same(out, want));
    EXPECT_TRUE(out.guards_intact());
  }
}

constexpr Product all_products[] = {Product::y, Product::dx, Product::dw};

TEST(GroupedStandard, EveryProductOfEveryKindOfGroups) {
  for (const SomeGroups& groups : all_groups())
    for (const Product product : all_products)
      for (const bool accumulate : {false, true})
        check<float>(groups, {.product = product, .accumulate = accumulate});
}

TEST(GroupedStandard, EdgesOfTiles) {
  for (const SomeGroups& groups :
       {packed_groups({65, 0, 3, 130}), packed_groups({65, 0, 128}), packed_groups({1, 17, 2})})
    for (const Product product : all_products)
      for (const auto& [n, k] : {std::pair{64, 129}, {131, 16}, {1, 1}})
        check<float>(groups, {.product = product, .n = n, .k = k});
}

TEST(GroupedStandard, TypesAndBias) {
  const SomeGroups groups = packed_groups({4, 0, 3}, 2);
  for (const Product product : all_products) {
    const bool bias = product == Product::y;
    check<half>(groups, {.product = product, .bias = bias});
    check<bfloat16>(groups, {.product = product, .accumulate = true, .bias = bias});
  }
  check<float>(groups, {.bias = true});
}

TEST(GroupedStandard, MatricesSideBySide) {
  for (const std::int64_t stride : {13, 17})
    for (const SomeGroups& groups : {packed_groups({4, 0, 7, 1}, 2), strided_groups(6, 3)})
      check<float>(groups, {.k = 13, .b_column_stride = stride});
}

}  // namespace
}  // namespace switchback::test
