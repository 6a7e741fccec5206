// SPDX-License-Identifier: Apache-2.0
// Tests of the fused engine for grouped products: it gives the bits of the device's own kernel, for
// ragged, empty and large groups. On a GPU this verifies the fused kernels. On the emulated device
// a stand-in computes (except for the kernels for 8.x, see tests/gemm), so there it verifies
// everything around the kernels.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "core/context_state.hpp"
#include "gemm/int8/candidates.hpp"
#include "gemm/int8/engine.hpp"
#include "grouped/support.hpp"
#include "support/contexts.hpp"
#include "support/device_memory.hpp"
#include "support/fused.hpp"
#include "support/generators.hpp"
#include "switchback/error.hpp"
#include "switchback/grouped.hpp"

namespace switchback::test {
namespace {

using gemm_int8::EngineId;
using gemm_int8::GemmConfig;
using gemm_int8::GemmProblem;

class GroupedFused : public FusedTest {};
INSTANTIATE_TEST_SUITE_P(GroupedFusedOn, GroupedFused,
                         ::testing::ValuesIn(generations({80, 90, 120})),
                         ::testing::PrintToStringParamName());

std::size_t size_of(std::int64_t count) {
  return static_cast<std::size_t>(count);
}

// A grouped product whose d has gaps between its rows, and slots after the last group.
struct GroupedProduct {
  GroupedProduct(const SomeGroups& groups_, std::int64_t n_, std::int64_t k_, DType output_,
                 std::int64_t column_stride_ = 0)
      : groups(groups_),
        n(n_),
        k(k_),
        output(output_),
        column_stride(column_stride_),
        rows(column_stride > 0 ? groups.rows : groups.slots),
        stride(column_stride > 0 ? groups.count() * column_stride : n + 16),
        a(size_of(groups.slots * k)),
        b(size_of(groups.count() * n * k)),
        absmax_a(size_of(groups.slots)),
        absmax_b(size_of(groups.count() * n)),
        bias(size_of(groups.count() * n)) {
    Random random(static_cast<std::uint64_t>(groups.slots * 7 + n * 3 + k));
    for (auto* codes : {&a, &b})
      for (std::int8_t& q : *codes)
        q = static_cast<std::int8_t>(random.uniform() * 255.0 - 127.0);
    for (auto* scales : {&absmax_a, &absmax_b})
      for (float& s : *scales)
        s = static_cast<float>(random.uniform()) * 3.0f;
    for (float& value : bias)
      value = static_cast<float>(random.normal());
  }

  Vector<std::byte> run(Context& context, const std::string& engine, bool per_column,
                        bool with_bias, bool packed) {
    Vector<std::byte> d(size_of(rows * stride) * dtype_size_bytes(output) + 64, std::byte{0x5a});
    GroupedGemmArgs args;
    args.groups = groups.view();
    args.a = {a.data(), groups.slots, k};
    args.d = {d.data(), output, rows, stride - (column_stride > 0 ? 0 : 16), stride};
    args.d_column_stride = column_stride;
    args.absmax_a = absmax_a;
    args.absmax_b =
        std::span<const float>(absmax_b).first(size_of(groups.count() * (per_column ? n : 1)));
    if (with_bias) args.bias = {bias.data(), DType::f32, groups.count(), n, n};
    const MatrixView<const std::int8_t> plain(b.data(), groups.count() * n, k);
    PackedWeight packed_b;
    if (packed) {
      pack_weights(context, plain, groups.count(), packed_b);
      args.packed_b = &packed_b;
    } else {
      args.b = plain;
    }
    args.engine = engine;
    grouped_gemm(context, args);
    context.synchronize();
    return d;
  }

  SomeGroups groups;
  std::int64_t n, k;
  DType output;
  std::int64_t column_stride, rows, stride;
  Vector<std::int8_t> a, b;
  Vector<float> absmax_a, absmax_b, bias;
};

TEST_P(GroupedFused, HasTheBitsOfTheDevicesOwnKernel) {
  std::vector<SomeGroups> all = all_groups();
  all.push_back(packed_groups({129, 0, 1, 127, 64, 33}, 5));
  for (const SomeGroups& groups : all)
    for (const DType output : {DType::f32, DType::f16, DType::bf16})
      for (const bool packed : {false, true}) {
        const bool odd = output == DType::f16;
        SCOPED_TRACE(groups.name + " " + std::string(dtype_name(output)) +
                     (packed ? " packed" : ""));
        GroupedProduct p(groups, odd ? 136 : 72, odd ? 70 : 192, output);
        EXPECT_TRUE(p.run(context(), "fused", !odd, odd || packed, packed) ==
                    p.run(context(), "dp4a", !odd, odd || packed, packed));
      }
}

// Each group has its own scales (one, or one per column) and its own rows. Some groups are empty. k
// takes one or two stages of the pipeline, n one or two tiles.
TEST_P(GroupedFused, EachGroupHasItsOwnScales) {
  for (const SomeGroups& groups :
       {packed_groups({3, 0, 70, 1, 0, 130}), packed_groups({0, 0, 5}), strided_groups(9, 4)})
    for (const std::int64_t k : {64, 70, 192})
      for (const std::int64_t n : {72, 136, 144})
        for (const DType output : {DType::f32, DType::f16, DType::bf16})
          for (const bool per_column : {true, false})
            for (const bool bias : {false, true}) {
              SCOPED_TRACE(::testing::Message()
                           << groups.name << " K " << k << " N " << n << " " << dtype_name(output)
                           << (per_column ? "" : ", one scale for each group")
                           << (bias ? " bias" : ""));
              GroupedProduct p(groups, n, k, output);
              ASSERT_TRUE(p.run(context(), "fused", per_column, bias, false) ==
                          p.run(context(), "dp4a", per_column, bias, false));
            }
}

TEST_P(GroupedFused, OutputsSideBySide) {
  GroupedProduct p(strided_groups(6, 3, {6, 2, 5}), 24, 64, DType::bf16, 32);
  EXPECT_TRUE(p.run(context(), "fused", true, true, true) ==
              p.run(context(), "dp4a", true, true, true));
}

// The fused engine is right with every shape of tiles that the tuner tries.
TEST_P(GroupedFused, EveryShapeOfTilesIsRight) {
  const SomeGroups groups = packed_groups({70, 0, 3, 140, 1});
  GroupedProduct p(groups, 144, 128, DType::f32);
  const Vector<std::byte> want = p.run(context(), "dp4a", true, true, false);
  const GemmProblem problem = {.m = groups.slots,
                               .n = p.n,
                               .k = p.k,
                               .stride_a = p.k,
                               .stride_b = p.k,
                               .stride_d = p.stride,
                               .output = p.output,
                               .scale = gemm_int8::ScaleMode::row_col,
                               .has_bias = true,
                               .alignment = 16,
                               .layout = gemm_int8::GroupLayout::packed,
                               .groups = groups.count()};
  int shapes = 0;
  for (const GemmConfig& config : gemm_int8::candidates(problem, context().state())) {
    if (config.engine != EngineId::fused) continue;
    SCOPED_TRACE(gemm_int8::describe(config));
    ++shapes;
    Vector<std::byte> d(want.size(), std::byte{0x5a});
    gemm_int8::run(context().state(), problem, config,
                   {.a = p.a.data(),
                    .b = p.b.data(),
                    .d = d.data(),
                    .absmax_a = p.absmax_a.data(),
                    .absmax_b = p.absmax_b.data(),
                    .bias = p.bias.data(),
                    .groups = groups.view()});
    context().synchronize();
    EXPECT_TRUE(d == want);
  }
  EXPECT_GE(shapes, 2);
  GemmConfig other;
  other.engine = EngineId::fused;
  other.mc = 1;
  EXPECT_NE(gemm_int8::check_config(problem, other, context().state()).find("no kernel for groups"),
            std::string::npos);
}

// The fused engine refuses unsupported problems with a message. Supported problems run on it by
// default if its kernels are trusted.
TEST_P(GroupedFused, RefusesWithAReason) {
  const auto reason = [&](std::int64_t n, DType output, std::int64_t column_stride) {
    GroupedProduct p(strided_groups(4, 2), n, 32, output, column_stride);
    try {
      (void)p.run(context(), "fused", true, false, false);
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::unsupported);
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(reason(16, DType::f32, 16), "");
  EXPECT_NE(reason(15, DType::f32, 16).find("size of a row of d"), std::string::npos);
  EXPECT_NE(reason(8, DType::bf16, 12).find("bytes"), std::string::npos);
  GemmProblem problem = {.m = 64,
                         .n = 64,
                         .k = 64,
                         .stride_a = 64,
                         .stride_b = 64,
                         .stride_d = 64,
                         .output = DType::f32,
                         .scale = gemm_int8::ScaleMode::row_col,
                         .alignment = 16,
                         .layout = gemm_int8::GroupLayout::packed,
                         .groups = 2};
  // By default the fused engine computes the problems for which its kernels are trusted. On 9.0 no
  // record has seen these kernels with one scale for each group.
  for (const gemm_int8::ScaleMode scale :
       {gemm_int8::ScaleMode::row_col, gemm_int8::ScaleMode::row_scalar}) {
    problem.scale = scale;
    const ContextState& state = context().state();
    bool trusted = false;
    for (const GemmConfig& config : gemm_int8::candidates(problem, state))
      trusted |=
          config.engine == EngineId::fused && !gemm_int8::needs_validation(problem, config, state);
    EXPECT_EQ(gemm_int8::default_config(problem, state).engine,
              trusted ? EngineId::fused : EngineId::dp4a);
    if (on_emulated()) {
      EXPECT_EQ(trusted, GetParam() != 90 || scale == gemm_int8::ScaleMode::row_col);
    }
  }
  problem.stride_d = problem.n = 63;
  EXPECT_EQ(gemm_int8::default_config(problem, context().state()).engine, EngineId::dp4a);
}

// On compute capability 10.0 the fused engine has kernels for single products, but not for groups.
TEST(GroupedFusedDevices, TenHasNoKernelsForGroups) {
  if (!on_emulated()) GTEST_SKIP() << "only the emulated device can change its generation";
  show_fused_products(true);
  emulate_compute_capability(100);
  {
    Context context(device_options());
    GroupedProduct p(strided_groups(4, 2), 16, 32, DType::f32, 16);
    std::string reason;
    try {
      (void)p.run(context, "fused", true, false, false);
    } catch (const Error& error) {
      reason = error.what();
    }
    EXPECT_NE(reason.find("for groups are for compute capability 8.x, 9.0 and 12.x"),
              std::string::npos)
        << reason;
    EXPECT_FALSE(p.run(context, "", true, false, false).empty());
  }
  show_fused_products(false);
  emulate_compute_capability(90);
}

// Invalid boundaries of groups are clamped and reported, as by the other kernels.
TEST_P(GroupedFused, ReportsBoundariesThatLie) {
  GroupedProduct p(packed_groups({4, 3, 5}), 16, 32, DType::f32);
  p.groups.ends[1] = 99;
  try {
    (void)p.run(context(), "fused", true, false, false);
    FAIL() << "nothing was reported";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("groups.ends[1] = 99;"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace switchback::test
