// SPDX-License-Identifier: Apache-2.0
// Grouped quantization: each slot of the result has the codes and the absmax of the row that it
// reads.
#include <gtest/gtest.h>

#include <limits>

#include "gemm/int8_support.hpp"
#include "grouped/support.hpp"
#include "switchback/grouped.hpp"
#include "switchback/quant.hpp"

namespace switchback::test {
namespace {

// Where in x the elements that a slot reads begin: the row and the first column.
struct Place {
  std::int64_t row, col;
};

template <class T, class PlaceOf>
void check(const SomeGroups& groups, const GroupedRows& rows, const Matrix<T>& x, std::int64_t k,
           const PlaceOf& place_of, Layout of_codes = {3, 1}) {
  for (const ContextOptions& options : all_contexts()) {
    SCOPED_TRACE(describe(options) + " groups " + groups.name);
    Context context(options);
    Matrix<std::int8_t> q(groups.slots, k, of_codes);
    fill_constant(q, 101);
    Vector<float> absmax(static_cast<std::size_t>(groups.slots));
    for (float& scale : absmax)
      scale = -5.0f;
    grouped_quantize_rowwise(context, groups.view(), rows, q.view(),
                             {absmax.data(), absmax.size()});
    context.synchronize();
    EXPECT_TRUE(q.guards_intact());
    for (std::int64_t g = 0; g < groups.count(); ++g)
      for (std::int64_t r = 0; r < groups.counts[static_cast<std::size_t>(g)]; ++r) {
        const std::int64_t slot = groups.begins[static_cast<std::size_t>(g)] + r;
        const Place place = place_of(g, r, slot);
        Matrix<std::int8_t> want(1, k);
        Vector<float> scale(1);
        quantize_rowwise(context,
                         {x.data() + place.row * x.stride() + place.col, dtype_of<T>, 1, k, k},
                         want.view(), {scale.data(), 1});
        context.synchronize();
        for (std::int64_t c = 0; c < k; ++c)
          ASSERT_EQ(q.get(slot, c), want.get(0, c)) << slot << "," << c;
        const float got = absmax[static_cast<std::size_t>(slot)];
        ASSERT_TRUE(got == scale[0] || (std::isnan(got) && std::isnan(scale[0])));
      }
    for (std::int64_t slot = 0; slot < groups.slots; ++slot) {
      if (groups.has(slot)) continue;
      ASSERT_EQ(absmax[static_cast<std::size_t>(slot)], -5.0f) << slot;
      for (std::int64_t c = 0; c < k; ++c)
        ASSERT_EQ(q.get(slot, c), 101) << slot << "," << c;
    }
  }
}

template <class T>
Matrix<T> some_rows(std::int64_t rows, std::int64_t cols, Layout layout, std::uint64_t seed) {
  Random random(seed);
  Matrix<T> x(rows, cols, layout);
  fill_normal(x, random);
  if (rows > 2) {
    x.set(1, 0, T(std::numeric_limits<float>::infinity()));
    x.set(2, cols - 1, T(std::numeric_limits<float>::quiet_NaN()));
  }
  return x;
}

template <class T>
class GroupedQuantize : public ::testing::Test {};
using Types = ::testing::Types<float, half, bfloat16>;
TYPED_TEST_SUITE(GroupedQuantize, Types);

TYPED_TEST(GroupedQuantize, RowsInPlace) {
  for (const std::int64_t k : {1, 15, 64, 67})
    for (const SomeGroups& groups : all_groups()) {
      const Matrix<TypeParam> x = some_rows<TypeParam>(groups.slots, k, {2, 0}, 1);
      check(groups, {.data = x.view()}, x, k, [](std::int64_t, std::int64_t, std::int64_t slot) {
        return Place{slot, 0};
      });
    }
}

TYPED_TEST(GroupedQuantize, RowsByIndex) {
  Random random(2);
  for (const SomeGroups& groups : all_groups()) {
    const std::int64_t rows = 11;
    const Matrix<TypeParam> x = some_rows<TypeParam>(rows, 37, {0, 2}, 3);
    Vector<std::int32_t> index(static_cast<std::size_t>(groups.slots));
    for (std::int64_t slot = 0; slot < groups.slots; ++slot)
      // Slots that belong to no group may have any index.
      index[static_cast<std::size_t>(slot)] =
          groups.has(slot) ? static_cast<std::int32_t>(random.below(rows)) : -9;
    check(groups, {.data = x.view(), .index = {index.data(), index.size()}}, x, 37,
          [&](std::int64_t, std::int64_t, std::int64_t slot) {
            return Place{index[static_cast<std::size_t>(slot)], 0};
          });
  }
}

TYPED_TEST(GroupedQuantize, GroupsSideBySide) {
  const SomeGroups groups = strided_groups(5, 4, {5, 0, 3, 4});
  const Matrix<TypeParam> x = some_rows<TypeParam>(5, 4 * 20, {1, 0}, 4);
  check(groups, {.data = x.view(), .column_stride = 20}, x, 18,
        [](std::int64_t g, std::int64_t r, std::int64_t) {
          return Place{r, g * 20};
        });
}

// Aligned rows, which a GPU reads and writes as vectors: short rows, and rows with several vectors
// per thread.
TYPED_TEST(GroupedQuantize, AlignedRows) {
  const SomeGroups packed = packed_groups({2, 0, 3}, 1);
  const SomeGroups strided = strided_groups(3, 2, {1, 3});
  for (const std::int64_t k : {64, 400, 800, 9216, 40000}) {
    const Matrix<TypeParam> x = some_rows<TypeParam>(6, k, {}, 6);
    check(packed, {.data = x.view()}, x, k,
          [](std::int64_t, std::int64_t, std::int64_t slot) {
            return Place{slot, 0};
          },
          {});
    check(strided, {.data = x.view(), .column_stride = k / 2}, x, k / 2,
          [k](std::int64_t g, std::int64_t r, std::int64_t) {
            return Place{r, g * (k / 2)};
          },
          {});
  }
}

// As in the fragmented layer, slots read rows by index, and each group reads its own columns.
TYPED_TEST(GroupedQuantize, RowsByIndexAndColumns) {
  const SomeGroups groups = packed_groups({2, 0, 3}, 1);
  const Matrix<TypeParam> x = some_rows<TypeParam>(6, 3 * 16, {}, 5);
  Vector<std::int32_t> index(6);
  const std::int32_t order[] = {4, 0, 5, 5, 2, 1};
  std::copy(std::begin(order), std::end(order), index.begin());
  check(groups, {.data = x.view(), .index = {index.data(), index.size()}, .column_stride = 16}, x,
        16, [&](std::int64_t g, std::int64_t, std::int64_t slot) {
          return Place{order[slot], g * 16};
        });
}

}  // namespace
}  // namespace switchback::test
