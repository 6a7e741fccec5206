// SPDX-License-Identifier: Apache-2.0
// Grouped products: every engine gives the bits of a separate product for each group, and does not
// change slots that belong to no group.
#include <gtest/gtest.h>

#include <vector>

#include "gemm/int8_support.hpp"
#include "grouped/support.hpp"
#include "switchback/grouped.hpp"

namespace switchback::test {
namespace {

enum class ScaleOf { column, group };

struct Case {
  std::int64_t n, k;
  bool bias = false;
  ScaleOf scale = ScaleOf::column;
  Layout layout = {};
};

// The operands of one grouped product, and the result of separate products by the reference.
template <class Out>
class Operands {
 public:
  Operands(const SomeGroups& groups, const Case& c, Random& random)
      : groups_(groups),
        c_(c),
        a(groups.slots, c.k, c.layout),
        b(groups.count() * c.n, c.k, c.layout),
        absmax_a(static_cast<std::size_t>(groups.slots)),
        absmax_b(static_cast<std::size_t>(groups.count() * (c.scale == ScaleOf::column ? c.n : 1))),
        bias(groups.count(), c.n),
        want(groups.slots, c.n, c.layout) {
    fill_codes(a, random);
    fill_codes(b, random);
    fill_normal(bias, random);
    for (float& scale : absmax_a)
      scale = static_cast<float>(random.uniform());
    for (float& scale : absmax_b)
      scale = static_cast<float>(random.uniform());
    reset(want);
    multiply_one_by_one();
  }

  // Fills d with a value that no product has.
  static void reset(Matrix<Out>& d) {
    for (std::int64_t r = 0; r < d.rows(); ++r)
      for (std::int64_t c = 0; c < d.cols(); ++c)
        d.set(r, c, Out(77777));
  }

  GroupedGemmArgs args() {
    GroupedGemmArgs args;
    args.groups = groups_.view();
    args.a = a.view();
    args.b = b.view();
    if constexpr (std::is_same_v<Out, std::int32_t>) return args;
    args.absmax_a = {absmax_a.data(), absmax_a.size()};
    args.absmax_b = {absmax_b.data(), absmax_b.size()};
    if (c_.bias) args.bias = bias.view();
    return args;
  }

 private:
  void multiply_one_by_one() {
    Context context(device_options());
    for (std::int64_t g = 0; g < groups_.count(); ++g) {
      const auto at = static_cast<std::size_t>(g);
      const std::int64_t begin = groups_.begins[at];
      const std::int64_t rows = groups_.counts[at];
      const MatrixView<const std::int8_t> a_g(a.data() + begin * a.stride(), rows, c_.k,
                                              a.stride());
      const MatrixView<const std::int8_t> b_g(b.data() + g * c_.n * b.stride(), c_.n, c_.k,
                                              b.stride());
      const MatrixView<Out> d_g(want.data() + begin * want.stride(), rows, c_.n, want.stride());
      const std::string engine = on_cpu() ? "reference" : "dp4a";
      if constexpr (std::is_same_v<Out, std::int32_t>) {
        gemm_s8s8s32(context, {.a = a_g, .b = b_g, .d = d_g, .engine = engine});
      } else {
        GemmArgs one{.a = a_g, .b = b_g, .d = d_g, .engine = engine};
        one.absmax_a = {absmax_a.data() + begin, static_cast<std::size_t>(rows)};
        const std::int64_t scales = c_.scale == ScaleOf::column ? c_.n : 1;
        one.absmax_b = {absmax_b.data() + g * scales, static_cast<std::size_t>(scales)};
        if (c_.bias) one.bias = {bias.data() + g * bias.stride(), dtype_of<float>, 1, c_.n, c_.n};
        gemm(context, one);
      }
    }
    context.synchronize();
  }

  const SomeGroups& groups_;
  Case c_;

 public:
  Matrix<std::int8_t> a, b;
  Vector<float> absmax_a, absmax_b;
  Matrix<float> bias;
  Matrix<Out> want;
};

// The names of the engines that can run a grouped product on this device.
std::vector<std::string> grouped_engines(const Context& context) {
  std::vector<std::string> names;
  for (const std::string& name : available_engines(context))
    if (on_cpu() || engine_named(context, name).takes_groups) names.push_back(name);
  return names;
}

template <class Out>
void check(const SomeGroups& groups, const Case& c, std::uint64_t seed) {
  Random random(seed);
  Operands<Out> operands(groups, c, random);
  for (const ContextOptions& options : all_contexts()) {
    Context context(options);
    for (const std::string& engine : grouped_engines(context)) {
      for (const Give give : {Give::plain, Give::packed}) {
        SCOPED_TRACE(::testing::Message()
                     << engine << (give == Give::packed ? " packed on " : " on ")
                     << describe(options) << " groups " << groups.name << " n=" << c.n
                     << " k=" << c.k);
        Matrix<Out> d(groups.slots, c.n, c.layout);
        Operands<Out>::reset(d);
        GroupedGemmArgs args = operands.args();
        args.d = d.view();
        args.engine = engine;
        PackedWeight packed;
        if (give == Give::packed) {
          pack_weights(context, args.b, groups.count(), packed, engine);
          EXPECT_EQ(packed.groups(), groups.count());
          EXPECT_EQ(packed.rows(), c.n);
          args.b = {};
          args.packed_b = &packed;
        }
        grouped_gemm(context, args);
        context.synchronize();
        EXPECT_TRUE(same(d, operands.want));
        EXPECT_TRUE(d.guards_intact());
      }
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
      check<float>(groups, {.n = 17, .k = 33, .bias = bias, .scale = scale}, 4);
      check<half>(groups, {.n = 17, .k = 33, .bias = bias, .scale = scale}, 5);
      check<bfloat16>(groups, {.n = 17, .k = 33, .bias = bias, .scale = scale}, 6);
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

// A NaN in one group does not affect the rows of other groups.
TEST(GroupedGemm, NonFiniteScalesStayInTheirRows) {
  Random random(13);
  const SomeGroups groups = packed_groups({3, 4});
  Operands<float> operands(groups, {.n = 9, .k = 16}, random);
  operands.absmax_a[1] = std::numeric_limits<float>::quiet_NaN();
  Context context(device_options());
  Matrix<float> d(7, 9);
  GroupedGemmArgs args = operands.args();
  args.d = d.view();
  grouped_gemm(context, args);
  context.synchronize();
  for (std::int64_t r = 0; r < 7; ++r)
    for (std::int64_t c = 0; c < 9; ++c)
      EXPECT_EQ(std::isnan(d.get(r, c)), r == 1) << r << "," << c;
}

// The outputs of all groups lie next to each other in one matrix.
TEST(GroupedGemm, OutputsSideBySide) {
  Random random(14);
  const SomeGroups groups = strided_groups(6, 3, {6, 2, 5});
  Operands<float> operands(groups, {.n = 10, .k = 24, .bias = true}, random);
  for (const ContextOptions& options : all_contexts()) {
    Context context(options);
    for (const std::string& engine : grouped_engines(context)) {
      SCOPED_TRACE(engine + " on " + describe(options));
      Matrix<float> d(6, 2 * 12 + 10);
      Operands<float>::reset(d);
      GroupedGemmArgs args = operands.args();
      args.d = d.view();
      args.d_column_stride = 12;
      args.engine = engine;
      grouped_gemm(context, args);
      context.synchronize();
      for (std::int64_t row = 0; row < 6; ++row)
        for (std::int64_t col = 0; col < d.cols(); ++col) {
          const std::int64_t g = col / 12;
          const bool inside = col % 12 < 10 && row < groups.counts[static_cast<std::size_t>(g)];
          ASSERT_EQ(d.get(row, col), inside ? operands.want.get(g * 6 + row, col % 12) : 77777.0f)
              << row << "," << col;
        }
    }
  }
}

// The bits of a row do not depend on the other rows of the call.
TEST(GroupedGemm, RowsDoNotDependOnTheBatch) {
  Random random(15);
  const SomeGroups many = packed_groups({40, 3, 17, 0, 1});
  Operands<float> operands(many, {.n = 48, .k = 96}, random);
  Context context(device_options());
  for (std::size_t g = 0; g < many.counts.size(); ++g) {
    std::vector<std::int64_t> sizes(many.counts.size(), 0);
    sizes[g] = many.counts[g];
    const SomeGroups alone = packed_groups(sizes);
    if (alone.slots == 0) continue;
    Matrix<float> d(alone.slots, 48);
    GroupedGemmArgs args = operands.args();
    args.groups = alone.view();
    args.a = {operands.a.data() + many.begins[g] * 96, alone.slots, 96};
    args.absmax_a = {operands.absmax_a.data() + many.begins[g],
                     static_cast<std::size_t>(alone.slots)};
    args.d = d.view();
    grouped_gemm(context, args);
    context.synchronize();
    for (std::int64_t r = 0; r < alone.slots; ++r)
      for (std::int64_t c = 0; c < 48; ++c)
        ASSERT_EQ(d.get(r, c), operands.want.get(many.begins[g] + r, c));
  }
}

}  // namespace
}  // namespace switchback::test
