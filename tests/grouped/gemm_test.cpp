// SPDX-License-Identifier: Apache-2.0
// Grouped products: every engine gives the bits of a separate product for each group, and does not
// change slots that belong to no group.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "grouped/product.hpp"

namespace switchback::test {
namespace {

// The names of the engines that can run a grouped product on this device.
std::vector<std::string> grouped_engines(const Context& context) {
  std::vector<std::string> names;
  for (const std::string& name : available_engines(context))
    if (on_cpu() || engine_named(context, name).takes_groups) names.push_back(name);
  return names;
}

template <class Out>
void check(const SomeGroups& groups, const GroupedCase& c, std::uint64_t seed) {
  GroupedProduct<Out> product(groups, c, seed);
  for (const ContextOptions& options : all_contexts()) {
    Context context(options);
    for (const std::string& engine : grouped_engines(context))
      for (const Give give : {Give::plain, Give::packed}) {
        SCOPED_TRACE(::testing::Message()
                     << engine << (give == Give::packed ? " packed on " : " on ")
                     << describe(options) << " groups " << groups.name << " n=" << c.n
                     << " k=" << c.k);
        const Matrix<Out> d = product.run(context, engine, give);
        EXPECT_TRUE(same(d, product.want));
        EXPECT_TRUE(d.guards_intact());
      }
  }
}

TEST(GroupedGemm, SumsOfEveryKindOfGroups) {
  for (const SomeGroups& groups : all_groups())
    check<std::int32_t>(groups, {.n = 67, .k = 65}, 1);
}

TEST(GroupedGemm, OutputsOfEveryKindOfGroups) {
  for (const SomeGroups& groups : all_groups()) {
    check<float>(groups, {.n = 33, .k = 70, .bias = true}, 2);
    check<bfloat16>(groups, {.n = 64, .k = 64, .scale = ScaleOf::group}, 3);
  }
}

// The mean number of rows of these groups is so large that the CPU engines pack b for the call.
TEST(GroupedGemm, GroupsOfManyRows) {
  const SomeGroups groups = packed_groups({250, 0, 3, 230});
  check<std::int32_t>(groups, {.n = 50, .k = 70}, 16);
  check<float>(groups, {.n = 50, .k = 70, .bias = true}, 17);
}

TEST(GroupedGemm, TypesBiasAndScales) {
  const SomeGroups groups = packed_groups({9, 0, 4}, 2);
  for (const bool bias : {false, true})
    for (const ScaleOf scale : {ScaleOf::column, ScaleOf::group}) {
      const GroupedCase c{.n = 17, .k = 33, .bias = bias, .scale = scale, .nan_scale = !bias};
      check<float>(groups, c, 4);
      check<half>(groups, c, 5);
      check<bfloat16>(groups, c, 6);
    }
}

TEST(GroupedGemm, StridesAndMisalignment) {
  const SomeGroups groups = packed_groups({13, 2, 7}, 1);
  for (const std::int64_t misaligned : {1, 3}) {
    check<std::int32_t>(groups, {.n = 77, .k = 131, .layout = {5, misaligned}}, 7);
    check<float>(groups, {.n = 77, .k = 131, .bias = true, .layout = {5, misaligned}}, 8);
  }
}

TEST(GroupedGemm, EdgesOfTiles) {
  const SomeGroups groups = packed_groups({1, 6, 12, 25});
  for (const std::int64_t n : {1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 129})
    check<std::int32_t>(groups, {.n = n, .k = 19}, 9);
  for (const std::int64_t k : {1, 2, 3, 4, 5, 31, 32, 33, 64, 513, 2048})
    check<std::int32_t>(groups, {.n = 18, .k = k}, 10);
}

// With K = 0 the result is zeros, plus the bias if there is one.
TEST(GroupedGemm, NoInnerDimension) {
  const SomeGroups groups = packed_groups({2, 0, 3}, 1);
  check<std::int32_t>(groups, {.n = 5, .k = 0}, 11);
  check<float>(groups, {.n = 5, .k = 0, .bias = true}, 12);
}

// The outputs of all groups lie next to each other in one matrix.
TEST(GroupedGemm, OutputsSideBySide) {
  GroupedProduct<float> product(strided_groups(6, 3, {6, 2, 5}), {.n = 10, .k = 24, .bias = true},
                                14);
  for (const ContextOptions& options : all_contexts()) {
    Context context(options);
    for (const std::string& engine : grouped_engines(context)) {
      SCOPED_TRACE(engine + " on " + describe(options));
      const Matrix<float> d = product.run(context, engine, Give::plain, 12);
      for (std::int64_t row = 0; row < 6; ++row)
        for (std::int64_t col = 0; col < d.cols(); ++col) {
          const std::int64_t g = col / 12;
          const bool is_column = col % 12 < 10;  // slots without a group are 77777 in both
          ASSERT_EQ(d.get(row, col), is_column ? product.want.get(g * 6 + row, col % 12) : 77777.0f)
              << row << "," << col;
        }
    }
  }
}

}  // namespace
}  // namespace switchback::test
