// SPDX-License-Identifier: Apache-2.0
// Grouped floating point products have the results of a separate product for each group.
#include <gtest/gtest.h>

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

template <class T>
void check(const SomeGroups& groups, Product product, bool accumulate, bool bias,
           std::int64_t n = 19, std::int64_t k = 26) {
  Random random(1);
  const bool dw = product == Product::dw;
  Matrix<T> a(groups.slots, product == Product::y ? k : n, {2, 0});
  Matrix<T> b(dw ? groups.slots : groups.count() * n, k, {1, 0});
  Matrix<float> biases(groups.count(), n, {3, 0});
  Matrix<T> d(dw ? groups.count() * n : groups.slots, product == Product::y ? n : k, {4, 0});
  fill_small_integers(a, random);
  fill_small_integers(b, random);
  fill_small_integers(biases, random);
  fill_constant(d, T(5.0f));
  Matrix<T> want(d.rows(), d.cols());
  fill_constant(want, T(5.0f));
  for (std::int64_t g = 0; g < groups.count(); ++g) {
    const std::int64_t begin = groups.begins[static_cast<std::size_t>(g)];
    const std::int64_t rows = groups.counts[static_cast<std::size_t>(g)];
    const auto put = [&](std::int64_t r, std::int64_t c, float sum) {
      want.set(r, c, T(sum + (accumulate ? 5.0f : 0.0f)));
    };
    if (dw) {
      for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t j = 0; j < k; ++j) {
          float sum = 0;
          for (std::int64_t r = begin; r < begin + rows; ++r)
            sum += a.get_float(r, i) * b.get_float(r, j);
          put(g * n + i, j, sum);
        }
      continue;
    }
    for (std::int64_t r = begin; r < begin + rows; ++r)
      for (std::int64_t j = 0; j < d.cols(); ++j) {
        float sum = bias ? biases.get(g, j) : 0.0f;
        for (std::int64_t l = 0; l < a.cols(); ++l)
          sum += a.get_float(r, l) *
                 (product == Product::y ? b.get_float(g * n + j, l) : b.get_float(g * n + l, j));
        put(r, j, sum);
      }
  }
  for (const ContextOptions& options : all_contexts()) {
    SCOPED_TRACE(describe(options) + " groups " + groups.name);
    Context context(options);
    Matrix<T> out(d.rows(), d.cols(), {4, 0});
    fill_constant(out, T(5.0f));
    GroupedStandardGemmArgs args;
    args.groups = groups.view();
    args.a = a.view();
    args.b = b.view();
    args.d = out.view();
    args.transpose_a = dw;
    args.transpose_b = product == Product::y;
    args.accumulate = accumulate;
    if (bias) args.bias = biases.view();
    grouped_gemm_standard(context, args);
    context.synchronize();
    EXPECT_TRUE(same(out, want));
    EXPECT_TRUE(out.guards_intact());
  }
}

TEST(GroupedStandard, EveryProductOfEveryKindOfGroups) {
  for (const SomeGroups& groups : all_groups())
    for (const bool accumulate : {false, true}) {
      check<float>(groups, Product::y, accumulate, false);
      check<float>(groups, Product::dx, accumulate, false);
      check<float>(groups, Product::dw, accumulate, false);
    }
}

TEST(GroupedStandard, EdgesOfTiles) {
  for (const SomeGroups& groups :
       {packed_groups({65, 0, 3, 130}), packed_groups({65, 0, 128}), packed_groups({1, 17, 2})})
    for (const Product product : {Product::y, Product::dx, Product::dw})
      for (const auto& [n, k] : {std::pair{64, 129}, {131, 16}, {1, 1}})
        check<float>(groups, product, false, false, n, k);
}

TEST(GroupedStandard, TypesAndBias) {
  const SomeGroups groups = packed_groups({4, 0, 3}, 2);
  for (const Product product : {Product::y, Product::dx, Product::dw}) {
    check<half>(groups, product, false, product == Product::y);
    check<bfloat16>(groups, product, true, product == Product::y);
  }
  check<float>(groups, Product::y, false, true);
}

// Weights of groups that lie next to each other in one matrix give the same bits as weights that
// lie below each other.
TEST(GroupedStandard, MatricesSideBySide) {
  constexpr std::int64_t n = 19;
  constexpr std::int64_t k = 13;
  for (const std::int64_t stride : {k, k + 4})
    for (const SomeGroups& groups : {packed_groups({4, 0, 7, 1}, 2), strided_groups(6, 3)}) {
      Random random(2);
      const std::int64_t count = groups.count();
      Matrix<float> a(groups.slots, k);
      Matrix<float> beside(n, (count - 1) * stride + k, {3, 0});
      Matrix<float> below(count * n, k);
      fill_small_integers(a, random);
      fill_small_integers(beside, random);
      for (std::int64_t g = 0; g < count; ++g)
        for (std::int64_t r = 0; r < n; ++r)
          for (std::int64_t c = 0; c < k; ++c)
            below.set(g * n + r, c, beside.get(r, g * stride + c));
      for (const ContextOptions& options : all_contexts()) {
        SCOPED_TRACE(describe(options) + " groups " + groups.name);
        Context context(options);
        Matrix<float> got(groups.slots, n, {1, 0});
        Matrix<float> want(groups.slots, n, {1, 0});
        fill_constant(got, 5.0f);
        fill_constant(want, 5.0f);
        GroupedStandardGemmArgs args;
        args.groups = groups.view();
        args.a = a.view();
        args.transpose_b = true;
        args.b = below.view();
        args.d = want.view();
        grouped_gemm_standard(context, args);
        args.b = beside.view();
        args.d = got.view();
        args.b_column_stride = stride;
        grouped_gemm_standard(context, args);
        context.synchronize();
        EXPECT_TRUE(same(got, want));
        EXPECT_TRUE(got.guards_intact());
      }
    }
}

}  // namespace
}  // namespace switchback::test
