// SPDX-License-Identifier: Apache-2.0
// Tests of combine(), which adds the rows of a grouped result that belong to one token: in order,
// with each operation rounded to f32.
#include <gtest/gtest.h>

#include <limits>
#include <utility>

#include "gemm/int8_support.hpp"
#include "grouped/support.hpp"
#include "switchback/grouped.hpp"

namespace switchback::test {
namespace {

template <class From, class To>
void check(std::int64_t tokens, std::int64_t each, std::int64_t cols, bool weighted,
           std::uint64_t seed, bool aligned = false) {
  Random random(seed);
  const std::int64_t slots = 9;
  Matrix<From> y(slots, cols, {aligned ? 0 : 3, 0});
  fill_normal(y, random);
  y.set(3, 0, From(std::numeric_limits<float>::quiet_NaN()));
  y.set(4, cols - 1, From(-0.0f));
  Matrix<std::int32_t> index(tokens, each, {1, 0});
  Matrix<float> weights(tokens, each, {2, 0});
  fill_normal(weights, random);
  for (std::int64_t t = 0; t < tokens; ++t)
    for (std::int64_t i = 0; i < each; ++i)
      index.set(t, i, static_cast<std::int32_t>(random.below(slots + 3) - 3));
  Matrix<To> want(tokens, cols);
  for (std::int64_t t = 0; t < tokens; ++t)
    for (std::int64_t c = 0; c < cols; ++c) {
      // volatile: the compiler must not contract a product and a sum.
      volatile float sum = 0.0f;
      bool first = true;
      for (std::int64_t i = 0; i < each; ++i) {
        if (index.get(t, i) < 0) continue;
        volatile float term = y.get_float(index.get(t, i), c);
        if (weighted) term = term * weights.get(t, i);
        sum = first ? term : sum + term;
        first = false;
      }
      want.set(t, c, To(std::isnan(sum) ? std::numeric_limits<float>::quiet_NaN() : sum));
    }
  for (const ContextOptions& options : all_contexts()) {
    SCOPED_TRACE(::testing::Message() << describe(options) << " tokens " << tokens << " slots "
                                      << each << " cols " << cols);
    Context context(options);
    Matrix<To> out(tokens, cols, {aligned ? 0 : 5, 0});
    CombineArgs args;
    args.y = y.view();
    args.slots = index.view();
    if (weighted) args.weights = weights.view();
    args.out = out.view();
    combine(context, args);
    context.synchronize();
    EXPECT_TRUE(same(out, want));
    EXPECT_TRUE(out.guards_intact());
  }
}

TEST(GroupedCombine, EveryWidth) {
  for (const std::int64_t cols : {1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 33, 100})
    for (const bool weighted : {false, true})
      check<float, float>(13, 3, cols, weighted, 1);
}

// A GPU reads and writes aligned rows as vectors.
TEST(GroupedCombine, EveryType) {
  for (const auto& [cols, aligned] :
       {std::pair{40, false}, std::pair{8, true}, std::pair{40, true}, std::pair{4096, true}}) {
    check<float, float>(5, 5, cols, true, 2, aligned);
    check<float, half>(5, 5, cols, true, 3, aligned);
    check<float, bfloat16>(5, 2, cols, true, 4, aligned);
    check<half, half>(5, 2, cols, true, 5, aligned);
    check<half, float>(5, 2, cols, false, 6, aligned);
    check<bfloat16, bfloat16>(5, 4, cols, true, 7, aligned);
    check<bfloat16, float>(5, 1, cols, false, 8, aligned);
  }
}

TEST(GroupedCombine, ManyRowsAndNoSlots) {
  check<float, float>(700, 2, 70, true, 8);
  check<float, float>(5, 0, 20, true, 9);
  check<float, float>(0, 2, 20, false, 10);
  check<float, float>(40, 8, 31, true, 11);
}

}  // namespace
}  // namespace switchback::test
