// SPDX-License-Identifier: Apache-2.0
// Tests of the fused engine for grouped products: it gives the bits of the device's own kernel, for
// ragged, empty and large groups. On a GPU this verifies the fused kernels. On the emulated device
// a stand-in computes (except for the kernels for 8.x, see tests/gemm), so there it verifies
// everything around the kernels.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/context_state.hpp"
#include "gemm/int8/candidates.hpp"
#include "gemm/int8/engine.hpp"
#include "grouped/product.hpp"
#include "support/device_memory.hpp"
#include "support/fused.hpp"
#include "switchback/error.hpp"

namespace switchback::test {
namespace {

using gemm_int8::EngineId;
using gemm_int8::GemmConfig;
using gemm_int8::GemmProblem;

class GroupedFused : public FusedTest {};
INSTANTIATE_TEST_SUITE_P(GroupedFusedOn, GroupedFused,
                         ::testing::ValuesIn(generations({80, 90, 120})),
                         ::testing::PrintToStringParamName());

template <class Out>
void check(Context& context, const SomeGroups& groups) {
  // K takes one or two stages of the pipeline, N one or two tiles. If there is a bias, b is packed.
  for (const auto& [n, k] : {std::pair{72, 192}, std::pair{136, 70}, std::pair{144, 64}})
    for (const ScaleOf scale : {ScaleOf::column, ScaleOf::group})
      for (const bool bias : {true, false}) {
        SCOPED_TRACE(::testing::Message()
                     << groups.name << " K " << k << " N " << n << " " << dtype_name(dtype_of<Out>)
                     << (scale == ScaleOf::column ? "" : ", one scale for each group")
                     << (bias ? ", packed, bias" : ""));
        GroupedProduct<Out> product(
            groups, {.n = n, .k = k, .bias = bias, .scale = scale, .layout = {16, 0}}, 1);
        const Matrix<Out> d = product.run(context, "fused", bias ? Give::packed : Give::plain);
        ASSERT_TRUE(same(d, product.want));
        EXPECT_TRUE(d.guards_intact());
      }
}

TEST_P(GroupedFused, HasTheBitsOfTheDevicesOwnKernel) {
  std::vector<SomeGroups> all = all_groups();
  all.push_back(packed_groups({129, 0, 1, 127, 64, 33}, 5));
  for (const SomeGroups& groups : all) {
    check<float>(context(), groups);
    check<half>(context(), groups);
    check<bfloat16>(context(), groups);
  }
}

TEST_P(GroupedFused, OutputsSideBySide) {
  GroupedProduct<bfloat16> product(strided_groups(6, 3, {6, 2, 5}),
                                   {.n = 24, .k = 64, .bias = true}, 2);
  EXPECT_TRUE(same(product.run(context(), "fused", Give::packed, 32),
                   product.run(context(), "dp4a", Give::packed, 32)));
}

// The fused engine is right with every shape of tiles that the tuner tries.
TEST_P(GroupedFused, EveryShapeOfTilesIsRight) {
  GroupedProduct<float> p(packed_groups({70, 0, 3, 140, 1}),
                          {.n = 144, .k = 128, .bias = true, .layout = {16, 0}}, 3);
  const GemmProblem problem = {.m = p.groups.slots,
                               .n = 144,
                               .k = 128,
                               .stride_a = p.a.stride(),
                               .stride_b = p.b.stride(),
                               .stride_d = p.want.stride(),
                               .output = DType::f32,
                               .scale = gemm_int8::ScaleMode::row_col,
                               .has_bias = true,
                               .alignment = 16,
                               .layout = gemm_int8::GroupLayout::packed,
                               .groups = p.groups.count()};
  int shapes = 0;
  for (const GemmConfig& config : gemm_int8::candidates(problem, context().state())) {
    if (config.engine != EngineId::fused) continue;
    SCOPED_TRACE(gemm_int8::describe(config));
    ++shapes;
    Matrix<float> d(p.want.rows(), p.want.cols(), {16, 0});
    gemm_int8::run(context().state(), problem, config,
                   {.a = p.a.data(),
                    .b = p.b.data(),
                    .d = d.data(),
                    .absmax_a = p.absmax_a.data(),
                    .absmax_b = p.absmax_b.data(),
                    .bias = p.bias.data(),
                    .groups = p.groups.view()});
    context().synchronize();
    EXPECT_TRUE(same(d, p.want));
    EXPECT_TRUE(d.guards_intact());
  }
  EXPECT_GE(shapes, 2);
  GemmConfig other;
  other.engine = EngineId::fused;
  other.mc = 1;
  EXPECT_NE(gemm_int8::check_config(problem, other, context().state()).find("no kernel for groups"),
            std::string::npos);
}

// The message of the Error(unsupported) that a call throws.
std::string reason(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::unsupported);
    return error.what();
  }
  return {};
}

// The fused engine refuses unsupported problems with a message. Supported problems run on it by
// default if its kernels are trusted.
TEST_P(GroupedFused, RefusesWithAReason) {
  const SomeGroups groups = strided_groups(4, 2);
  GroupedProduct<float> right(groups, {.n = 16, .k = 32}, 4), odd(groups, {.n = 15, .k = 32}, 5);
  GroupedProduct<bfloat16> narrow(groups, {.n = 8, .k = 32}, 6);
  EXPECT_EQ(reason([&] { right.run(context(), "fused", Give::plain, 16); }), "");
  EXPECT_NE(
      reason([&] { odd.run(context(), "fused", Give::plain, 16); }).find("size of a row of d"),
      std::string::npos);
  EXPECT_NE(reason([&] { narrow.run(context(), "fused", Give::plain, 12); }).find("bytes"),
            std::string::npos);
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
    GroupedProduct<float> p(strided_groups(4, 2), {.n = 16, .k = 32}, 7);
    const std::string refused = reason([&] { p.run(context, "fused", Give::plain); });
    EXPECT_NE(refused.find("for groups are for compute capability 8.x, 9.0 and 12.x"),
              std::string::npos)
        << refused;
    EXPECT_TRUE(same(p.run(context, "", Give::plain), p.want));
  }
  show_fused_products(false);
  emulate_compute_capability(90);
}

// Invalid boundaries of groups are clamped and reported, as by the other kernels.
TEST_P(GroupedFused, ReportsBoundariesThatLie) {
  GroupedProduct<float> p(packed_groups({4, 3, 5}), {.n = 16, .k = 32}, 8);
  p.groups.ends[1] = 99;
  try {
    p.run(context(), "fused", Give::plain);
    FAIL() << "nothing was reported";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("groups.ends[1] = 99;"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace switchback::test
