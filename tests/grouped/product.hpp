// SPDX-License-Identifier: Apache-2.0
// Test support: the operands of a grouped int8 product, and its result by separate products.
#pragma once

#include <limits>
#include <string>
#include <utility>

#include "gemm/int8_support.hpp"
#include "grouped/support.hpp"
#include "switchback/grouped.hpp"

namespace switchback::test {

enum class ScaleOf { column, group };

struct GroupedCase {
  std::int64_t n, k;
  bool bias = false;
  ScaleOf scale = ScaleOf::column;
  Layout layout = {};
  bool nan_scale = false;  ///< the scale of the first row is a NaN, which affects no other row
};

/// The operands of one grouped product, and the result `want` of separate products by the reference
/// or, on a device, by its own kernel.
template <class Out>
class GroupedProduct {
 public:
  SomeGroups groups;

  GroupedProduct(SomeGroups groups_, const GroupedCase& c, std::uint64_t seed)
      : groups(std::move(groups_)),
        c_(c),
        a(groups.slots, c.k, c.layout),
        b(groups.count() * c.n, c.k, c.layout),
        absmax_a(static_cast<std::size_t>(groups.slots)),
        absmax_b(static_cast<std::size_t>(groups.count() * (c.scale == ScaleOf::column ? c.n : 1))),
        bias(groups.count(), c.n),
        want(groups.slots, c.n, c.layout) {
    Random random(seed);
    fill_codes(a, random);
    fill_codes(b, random);
    fill_normal(bias, random);
    for (float& scale : absmax_a)
      scale = static_cast<float>(random.uniform());
    for (float& scale : absmax_b)
      scale = static_cast<float>(random.uniform());
    if (c.nan_scale) absmax_a.front() = std::numeric_limits<float>::quiet_NaN();
    fill_constant(want, Out(77777));
    multiply_one_by_one();
  }

  /// The result of one call. Elements that no group has are 77777, as in `want`.
  Matrix<Out> run(Context& context, const std::string& engine, Give give,
                  std::int64_t d_column_stride = 0) {
    Matrix<Out> d = d_column_stride == 0
                        ? Matrix<Out>(groups.slots, c_.n, c_.layout)
                        : Matrix<Out>(groups.rows, groups.count() * d_column_stride);
    fill_constant(d, Out(77777));
    GroupedGemmArgs args;
    args.groups = groups.view();
    args.a = a.view();
    args.b = b.view();
    args.d = d.view();
    args.d_column_stride = d_column_stride;
    args.engine = engine;
    if constexpr (!std::is_same_v<Out, std::int32_t>) {
      args.absmax_a = absmax_a;
      args.absmax_b = absmax_b;
      if (c_.bias) args.bias = bias.view();
    }
    PackedWeight packed;
    if (give == Give::packed) {
      pack_weights(context, args.b, groups.count(), packed, engine);
      EXPECT_EQ(packed.groups(), groups.count());
      EXPECT_EQ(packed.rows(), c_.n);
      args.b = {};
      args.packed_b = &packed;
    }
    grouped_gemm(context, args);
    context.synchronize();
    return d;
  }

 private:
  void multiply_one_by_one() {
    Context context(device_options());
    for (std::int64_t g = 0; g < groups.count(); ++g) {
      const auto at = static_cast<std::size_t>(g);
      const std::int64_t begin = groups.begins[at];
      const std::int64_t rows = groups.counts[at];
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

  GroupedCase c_;

 public:
  Matrix<std::int8_t> a, b;
  Vector<float> absmax_a, absmax_b;
  Matrix<float> bias;
  Matrix<Out> want;
};

}  // namespace switchback::test
