// SPDX-License-Identifier: Apache-2.0
// Tests of the fused engine: the problems it supports, which of its kernels run by default, and
// that it stores the bits of the device's own unfused kernels. On a GPU this verifies the kernels.
// On the emulated device a stand-in computes, so there it verifies everything around the kernels.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <optional>
#include <set>
#include <vector>

#include "core/context_state.hpp"
#include "gemm/int8/candidates.hpp"
#include "gemm/int8/dispatch.hpp"
#include "gemm/int8/engine.hpp"
#include "gemm/int8_support.hpp"
#include "support/contexts.hpp"
#include "support/device_memory.hpp"
#include "support/float_matrix.hpp"
#include "support/fused.hpp"
#include "support/tuning.hpp"
#include "switchback/rotation.hpp"

namespace switchback::test {
namespace {

using gemm_int8::EngineId;
using gemm_int8::GemmConfig;
using gemm_int8::GemmProblem;

class Int8Fused : public FusedTest {};
INSTANTIATE_TEST_SUITE_P(Int8FusedOn, Int8Fused,
                         ::testing::ValuesIn(generations({80, 90, 100, 120})),
                         ::testing::PrintToStringParamName());

// Success if nothing was written around `got` and its elements have the bits of `want`. All NaNs
// are alike: their bits are not specified, and CUTLASS's kernels leave them to the device.
::testing::AssertionResult same_values(FloatMatrix got, FloatMatrix want) {
  for (std::int64_t i = 0; i < want.rows(); ++i)
    for (std::int64_t j = 0; j < want.cols(); ++j) {
      const float x = got.get(i, j);
      const float y = want.get(i, j);
      const bool alike = std::isnan(x)
                             ? std::isnan(y)
                             : std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
      if (!alike)
        return ::testing::AssertionFailure()
               << "d(" << i << "," << j << ") is " << x << ", want " << y;
    }
  return got.guards_intact();
}

// The operands of a product. The scales and the bias begin `misalignment` bytes after a multiple of
// 16 bytes.
struct Product {
  std::int64_t m, n, k;
  DType output;
  std::int64_t d_padding = 0;
  std::int64_t misalignment = 0;
  Matrix<std::int8_t> a{m, k}, b{n, k};
  Matrix<float> absmax_a{1, m, {0, misalignment}}, absmax_b{1, n, {0, misalignment}};
  std::vector<float> bias = std::vector<float>(static_cast<std::size_t>(n));

  Product(std::int64_t rows, std::int64_t cols, std::int64_t depth, DType of_d,
          std::int64_t padding = 0, std::int64_t misalignment_bytes = 0)
      : m(rows),
        n(cols),
        k(depth),
        output(of_d),
        d_padding(padding),
        misalignment(misalignment_bytes) {
    Random random(static_cast<std::uint64_t>(m * 7 + n * 3 + k));
    fill_codes(a, random);
    fill_codes(b, random);
    for (auto* scales : {&absmax_a, &absmax_b})
      for (std::int64_t i = 0; i < scales->cols(); ++i)
        scales->set(0, i, static_cast<float>(random.uniform()) * 3.0f);
    // The first row has a zero scale. The last row has a NaN scale, which must stay visible.
    absmax_a.set(0, 0, 0.0f);
    if (m > 2) absmax_a.set(0, m - 1, std::numeric_limits<float>::quiet_NaN());
    for (float& value : bias)
      value = random.normal();
  }

  [[nodiscard]] FloatMatrix new_d() const {
    FloatMatrix d(output, m, n, {d_padding, 0});
    d.fill_value(85.0f);
    return d;
  }
  [[nodiscard]] FloatMatrix bias_of(DType dtype) const {
    FloatMatrix row(dtype, 1, n, {0, misalignment});
    for (std::int64_t j = 0; j < n; ++j)
      row.set(0, j, bias[static_cast<std::size_t>(j)]);
    return row;
  }

  // The arguments of a product without a bias. packed_b is filled if it is not null.
  GemmArgs arguments(Context& context, AnyMatrix d, bool per_column, PackedWeight* packed_b) const {
    GemmArgs args;
    args.a = a.view();
    args.d = d;
    args.absmax_a = {absmax_a.data(), static_cast<std::size_t>(m)};
    args.absmax_b = {absmax_b.data(), per_column ? static_cast<std::size_t>(n) : 1};
    if (packed_b != nullptr) {
      pack_weight(context, b.view(), *packed_b, "");
      args.packed_b = packed_b;
    } else {
      args.b = b.view();
    }
    return args;
  }

  // The result of `engine`.
  FloatMatrix run(Context& context, const std::string& engine, bool per_column,
                  std::optional<DType> bias_type, bool packed) const {
    FloatMatrix d = new_d();
    FloatMatrix row = bias_of(bias_type.value_or(DType::f32));
    PackedWeight packed_b;
    GemmArgs args = arguments(context, d.any(), per_column, packed ? &packed_b : nullptr);
    if (bias_type) args.bias = row.any();
    args.engine = engine;
    gemm(context, args);
    context.synchronize();
    return d;
  }

  // The result of a configuration with a bias in f32.
  FloatMatrix run(Context& context, const GemmProblem& problem, const GemmConfig& config) const {
    FloatMatrix d = new_d();
    FloatMatrix row = bias_of(DType::f32);
    gemm_int8::GemmOperands operands;
    operands.a = a.data();
    operands.b = b.data();
    operands.d = d.any().data;
    operands.absmax_a = absmax_a.data();
    operands.absmax_b = absmax_b.data();
    operands.bias = row.any().data;
    gemm_int8::run(context, problem, config, operands);
    context.synchronize();
    return d;
  }

  // The rotated product, computed by one kernel. Nothing if the device has no kernel for it.
  std::optional<FloatMatrix> run_rotated(Context& context, Rotation rotation, bool per_column,
                                         bool packed) const {
    FloatMatrix d = new_d();
    PackedWeight packed_b;
    const GemmArgs args = arguments(context, d.any(), per_column, packed ? &packed_b : nullptr);
    if (!gemm_int8::multiply_rotated(context.state(), args, static_cast<int>(rotation)))
      return std::nullopt;
    context.synchronize();
    return d;
  }
  // The same, computed by dp4a in f32 and rotate().
  FloatMatrix run_and_rotate(Context& context, Rotation rotation, bool per_column) const {
    Matrix<float> product(m, n);
    FloatMatrix d = new_d();
    GemmArgs args = arguments(context, product.view(), per_column, nullptr);
    args.engine = "dp4a";
    gemm(context, args);
    rotate(context, args.d, rotation, d.any());
    context.synchronize();
    return d;
  }
};

TEST_P(Int8Fused, HasTheBitsOfTheUnfusedKernels) {
  // The last ones have few rows, and a K that is smaller than one stage, than all stages, or than
  // what the warps hold.
  std::vector<Shape> shapes = {{1, 16, 16},    {1, 128, 33},   {63, 128, 64},  {64, 256, 128},
                               {65, 264, 1},   {127, 144, 96}, {128, 256, 48}, {129, 272, 160},
                               {257, 16, 127}, {1, 16, 4100},  {8, 48, 129},   {16, 40, 1000},
                               {17, 64, 2100}, {32, 136, 520}};
  if (!on_emulated())
    for (const Shape& s : {Shape{255, 520, 1024}, {1024, 4096, 1000}, {4097, 1032, 4096}})
      shapes.push_back(s);
  for (const Shape& s : shapes)
    for (const DType output : {DType::f32, DType::f16, DType::bf16})
      for (const bool per_column : {true, false})
        for (const std::optional<DType> bias :
             {std::optional<DType>(), std::optional(DType::f32), std::optional(DType::bf16)}) {
          SCOPED_TRACE(::testing::Message()
                       << "M " << s.m << " N " << s.n << " K " << s.k << " " << dtype_name(output));
          const Product product(s.m, s.n, s.k, output, per_column ? 0 : 16);
          const FloatMatrix want = product.run(context(), "dp4a", per_column, bias, false);
          for (const bool packed : {false, true})
            ASSERT_TRUE(
                same_values(product.run(context(), "fused", per_column, bias, packed), want));
        }
}

// The last rows and columns are in tiles that d does not fill. The kernel is for outputs of 16
// bits, groups that fit into a tile, and a d with enough tiles.
TEST_P(Int8Fused, RotatesWithTheBitsOfTwoPasses) {
  std::vector<Shape> shapes = {{193, 320, 96}, {130, 512, 33}, {321, 64, 160}};
  if (!on_emulated()) shapes = {{6401, 320, 96}, {6401, 512, 33}, {3201, 1024, 160}};
  const bool has_kernel = GetParam() == 90;
  for (const Shape& s : shapes)
    for (const Rotation rotation : {Rotation::hadamard_4, Rotation::hadamard_16,
                                    Rotation::hadamard_64, Rotation::hadamard_256})
      for (const DType output : {DType::f16, DType::bf16})
        for (const bool per_column : {true, false}) {
          if (s.n % static_cast<int>(rotation) != 0) continue;
          SCOPED_TRACE(::testing::Message() << "M " << s.m << " N " << s.n << " K " << s.k << " "
                                            << dtype_name(output) << rotation_name(rotation));
          const Product product(s.m, s.n, s.k, output, per_column ? 0 : 16);
          const auto got = product.run_rotated(context(), rotation, per_column, !per_column);
          ASSERT_EQ(got.has_value(), has_kernel);
          if (!has_kernel) return;
          ASSERT_TRUE(same_values(*got, product.run_and_rotate(context(), rotation, per_column)));
        }
  const auto has_none = [&](const Product& product, Rotation rotation) {
    return !product.run_rotated(context(), rotation, true, false).has_value();
  };
  EXPECT_TRUE(has_none({6401, 1024, 32, DType::bf16}, Rotation::hadamard_1024));
  EXPECT_TRUE(has_none({6401, 256, 32, DType::f32}, Rotation::hadamard_256));
  EXPECT_TRUE(has_none({1, 256, 32, DType::bf16}, Rotation::hadamard_256));
}

TEST_P(Int8Fused, ScalesAndBiasMayLieAnywhere) {
  for (const DType output : {DType::f32, DType::f16, DType::bf16})
    for (const DType bias : {DType::f32, DType::f16, DType::bf16})
      for (const bool per_column : {true, false}) {
        SCOPED_TRACE(::testing::Message() << dtype_name(output) << ", bias " << dtype_name(bias));
        const Product aligned(65, 272, 96, output);
        const Product moved(65, 272, 96, output, 0, 1);
        ASSERT_TRUE(same_values(moved.run(context(), "fused", per_column, bias, false),
                                aligned.run(context(), "dp4a", per_column, bias, false)));
      }
}

GemmProblem problem_of(std::int64_t m, std::int64_t n, std::int64_t k, DType output = DType::bf16) {
  GemmProblem p;
  p.m = m, p.n = p.stride_d = n;
  p.k = p.stride_a = p.stride_b = k;
  p.output = output;
  p.scale = gemm_int8::ScaleMode::row_col;
  p.alignment = 16;
  return p;
}

// The configurations of the fused engine that a tuner tries.
std::vector<GemmConfig> fused_candidates(const GemmProblem& p, const Context& context) {
  std::vector<GemmConfig> all = gemm_int8::candidates(p, context.state());
  std::erase_if(all, [](const GemmConfig& config) { return config.engine != EngineId::fused; });
  return all;
}

std::set<std::int64_t> values_of(const std::vector<GemmConfig>& all,
                                 std::int64_t GemmConfig::*member) {
  std::set<std::int64_t> values;
  for (const GemmConfig& config : all)
    values.insert(config.*member);
  return values;
}

const gemm_int8::Engine& fused_engine(const Context& context) {
  return engine_named(context, "fused");
}

// Problems with fewer stages than a pipeline has, with a part of a stage, and with more tiles than
// run at a time.
TEST_P(Int8Fused, EveryShapeAndOrderOfTilesIsRight) {
  const GemmProblem large = on_emulated() ? problem_of(600, 800, 32) : problem_of(1500, 4112, 1040);
  std::vector<GemmProblem> problems = {large};
  for (const DType output : {DType::f32, DType::f16, DType::bf16})
    for (const std::int64_t k : {16, 208})
      problems.push_back(problem_of(k == 16 ? 130 : 200, 272, k, output));
  for (GemmProblem& problem : problems) {
    const Product product(problem.m, problem.n, problem.k, problem.output);
    const FloatMatrix want = product.run(context(), "dp4a", true, DType::f32, false);
    problem.has_bias = true;
    const std::vector<GemmConfig> all = fused_candidates(problem, context());
    for (const GemmConfig& config : all) {
      SCOPED_TRACE(describe(config));
      EXPECT_EQ(test::config_of(gemm_int8::to_choice(config)), config);
      ASSERT_TRUE(same_values(product.run(context(), problem, config), want));
    }
    EXPECT_GE(values_of(all, &GemmConfig::mc).size() + values_of(all, &GemmConfig::nc).size(), 3u);
  }
  const std::vector<GemmConfig> orders = fused_candidates(problems.front(), context());
  EXPECT_GE(values_of(orders, &GemmConfig::raster).size(), 2u);
  EXPECT_GE(values_of(orders, &GemmConfig::swizzle).size(), 2u);
}

TEST_P(Int8Fused, ConfigurationsThatNoKernelHasAreRefused) {
  const GemmProblem problem = problem_of(200, 272, 208);
  const GemmConfig config = fused_candidates(problem, context()).front();
  const auto refusal = [&](const std::function<void(GemmConfig&)>& change) {
    GemmConfig changed = config;
    change(changed);
    return gemm_int8::check_config(problem, changed, context().state());
  };
  EXPECT_EQ(refusal([](GemmConfig&) {}), "");
  EXPECT_EQ(refusal([](GemmConfig& c) { c.cluster = 7; }),
            fmt::format("engine 'fused': there is no kernel with tiles of {}x{} (kc={}) and "
                        "clusters of 7 for this device",
                        config.mc, config.nc, config.kc));
  EXPECT_EQ(refusal([](GemmConfig& c) { c.raster = 3; }),
            "engine 'fused': raster=3; it must be 0 (the side with fewer tiles), 1 (m) or 2 (n)");
  EXPECT_EQ(refusal([](GemmConfig& c) { c.swizzle = 3; }),
            "engine 'fused': swizzle=3; it must be 0, 2, 4 or 8");
  EXPECT_EQ(refusal([](GemmConfig& c) { c.cublaslt.workspace_mib = 32; }),
            "engine 'fused' does not support a cuBLASLt algorithm or workspace");
  // Engines other than `fused` have neither clusters nor orders of tiles.
  const auto other = [](std::int64_t cluster, std::int64_t swizzle) {
    return [=](GemmConfig& c) {
      c = {};
      c.engine = EngineId::dp4a;
      c.cluster = cluster;
      c.swizzle = swizzle;
    };
  };
  EXPECT_EQ(refusal(other(2, 0)), "engine 'dp4a' does not support clusters");
  EXPECT_EQ(refusal(other(0, 4)), "engine 'dp4a' does not support an order of tiles");
  EXPECT_NE(refusal(other(0, -4)).find("swizzle=-4; it must not be negative"), std::string::npos);
  // A configuration that a damaged cache may hold.
  GemmConfig none;
  none.engine = EngineId::fused;
  EXPECT_NE(gemm_int8::check_config(problem, none, context().state()), "");
  EXPECT_THROW(Product(200, 272, 208, DType::bf16).run(context(), problem, none), Error);
  EXPECT_NE(gemm_int8::packing_engine(context().state()).id, EngineId::fused);
}

// The default is a kernel that is trusted on this device, also if b is packed for cuBLASLt. A tuner
// tries other kernels in another process first.
TEST_P(Int8Fused, TheDefaultIsAKernelThatIsTrusted) {
  const ContextState& state = context().state();
  for (const std::int64_t m : {1, 200, 3000})
    for (const DType output : {DType::f32, DType::f16, DType::bf16})
      for (const bool packed : {false, true}) {
        GemmProblem p = problem_of(m, 272, 208, output);
        if (packed) {
          p.packed_for = gemm_int8::packing_engine(state).id;
          p.stride_b = 0;
        }
        const auto all = fused_candidates(p, context());
        const auto trusted = std::count_if(all.begin(), all.end(), [&](const GemmConfig& config) {
          return !gemm_int8::needs_validation(p, config, state);
        });
        const GemmConfig by_default = gemm_int8::default_config(p, state);
        SCOPED_TRACE(describe(p) + " by " + describe(by_default));
        EXPECT_EQ(by_default.engine == EngineId::fused, trusted > 0);
        EXPECT_FALSE(gemm_int8::needs_validation(p, by_default, state));
        if (!on_emulated()) continue;
        EXPECT_EQ(trusted > 0, GetParam() != 100 || m == 1) << "of 10.0 no record has seen one";
        GemmProblem unaligned = p;
        unaligned.alignment = 1;
        EXPECT_NE(gemm_int8::default_config(unaligned, state).engine, EngineId::fused);
      }
}

// Codes that no quantizer makes (-128). Their sums pass 2^31 on the way and come back, so that a
// kernel that saturates would be wrong.
TEST_P(Int8Fused, SumsMayPassTheLargestIntegerOnTheWay) {
  constexpr std::int64_t up = 131088;
  Product product(2, 16, max_exact_k, DType::f32);
  for (std::int64_t i = 0; i < product.m; ++i)
    for (std::int64_t k = 0; k < product.k; ++k)
      product.a.set(i, k, k < up ? std::int8_t{-128} : std::int8_t{127});
  fill_constant(product.b, -128);
  FloatMatrix want = product.run(context(), "dp4a", true, DType::f32, false);
  EXPECT_TRUE(same_values(product.run(context(), "fused", true, DType::f32, false), want));
  const std::int64_t sum = 128 * 128 * up - 128 * 127 * (max_exact_k - up);
  static_assert(128 * 128 * up > std::numeric_limits<std::int32_t>::max());
  ASSERT_LE(sum, std::numeric_limits<std::int32_t>::max());
  const float scaled = static_cast<float>(sum) * 0x1.040c2p-14f;
  const float y = product.absmax_b.get(0, 0) * (product.absmax_a.get(0, 1) * scaled);
  EXPECT_EQ(want.get(1, 0), y + product.bias[0]);
}

// Orders of tiles (raster and swizzle) are candidates if a product has many tiles, but not too many
// orders are tried.
TEST_P(Int8Fused, OrdersAreCandidatesOfLargeProducts) {
  using Values = std::set<std::int64_t>;
  const auto large = fused_candidates(problem_of(16384, 16384, 4096), context());
  EXPECT_EQ(values_of(large, &GemmConfig::swizzle), (Values{0, 8}));
  // The order along m is a candidate for square tiles and for tiles that are wider than high: they
  // have no fewer tiles in a column than in a row.
  EXPECT_TRUE(values_of(large, &GemmConfig::raster).contains(1));
  EXPECT_LE(large.size(), 48u);
  const auto wide = fused_candidates(problem_of(1024, 65536, 4096), context());
  EXPECT_EQ(values_of(wide, &GemmConfig::raster), (Values{0, 2}));
  // All tiles of a small product run at once, so no order is tried.
  const auto small = fused_candidates(problem_of(128, 128, 4096), context());
  EXPECT_EQ(values_of(small, &GemmConfig::raster), (Values{0}));
  EXPECT_EQ(values_of(small, &GemmConfig::swizzle), (Values{0}));
  // Tiles of more than 64 rows are not tried for a decode step (one row), and are not its default.
  const auto decode = fused_candidates(problem_of(1, 4096, 4096), context());
  EXPECT_LE(*values_of(decode, &GemmConfig::mc).rbegin(), 64);
  // Kernels for few rows support at most 16 rows.
  EXPECT_NE(gemm_int8::check_config(problem_of(17, 4096, 4096), decode.front(), context().state())
                .find("supports at most 16 rows, not m=17"),
            std::string::npos);
  const auto by_default = [&](std::int64_t m) {
    return fused_engine(context()).default_config(problem_of(m, 4096, 4096), context().state()).mc;
  };
  EXPECT_LE(by_default(1), 64);
  EXPECT_GE(by_default(4096), 128);
}

TEST_P(Int8Fused, WhatItDoesNotTakeIsRefusedWithTheReason) {
  const auto reason = [&](const std::function<void(GemmProblem&)>& change) {
    GemmProblem p = problem_of(32, 64, 48);
    p.scale = gemm_int8::ScaleMode::row_scalar;
    change(p);
    return std::string(fused_engine(context()).unsupported(p, context().state()));
  };
  EXPECT_EQ(reason([](GemmProblem&) {}), "");
  EXPECT_EQ(reason([](GemmProblem& p) { p.alignment = 1; }),
            "an operand's address is not a multiple of 16 bytes");
  EXPECT_EQ(reason([](GemmProblem& p) { p.n = 60; }),
            "the size of a row of d is not a multiple of 16 bytes");
  EXPECT_EQ(reason([](GemmProblem& p) { p.stride_d = 65; }),
            "the stride of d is not a multiple of 16 bytes");
  // One row with any stride is a valid matrix, so its stride may be 2^40 bytes or more.
  constexpr std::int64_t tebi = std::int64_t{1} << 40;
  for (const auto stride : {&GemmProblem::stride_a, &GemmProblem::stride_b}) {
    EXPECT_EQ(reason([&](GemmProblem& p) { p.*stride = tebi; }),
              "the stride of an operand is 2^40 bytes or more");
    EXPECT_EQ(reason([&](GemmProblem& p) { p.*stride = tebi - 16; }), "");
  }
  EXPECT_EQ(reason([](GemmProblem& p) { p.stride_d = tebi / 2; }),
            "the stride of an operand is 2^40 bytes or more");
  EXPECT_EQ(reason([](GemmProblem& p) { p.k = 0; }), "k is 0");
  EXPECT_EQ(reason([](GemmProblem& p) { p.m = (std::int64_t{1} << 31) - 256; }),
            "m or n is 2^31 - 256 or more");
  EXPECT_EQ(reason([](GemmProblem& p) { p.m = (std::int64_t{1} << 31) - 257; }), "");
  EXPECT_EQ(reason([](GemmProblem& p) {
              p.output = DType::s32;
              p.scale = gemm_int8::ScaleMode::none;
            }),
            "it does not support int32 output");
  // If a forced engine does not support the problem, that is an error. Otherwise another engine
  // computes, also if b was packed for the fused engine.
  const Product odd(8, 13, 32, DType::f32);
  EXPECT_THROW(odd.run(context(), "fused", true, DType::f32, false), Error);
  const FloatMatrix want = odd.run(context(), "dp4a", true, {}, false);
  EXPECT_TRUE(same_values(odd.run(context(), "", true, {}, false), want));
  FloatMatrix d = odd.new_d();
  PackedWeight packed;
  GemmArgs args = odd.arguments(context(), d.any(), true, nullptr);
  pack_weight(context(), args.b, packed, "fused");
  args.b = {};
  args.packed_b = &packed;
  gemm(context(), args);
  context().synchronize();
  EXPECT_TRUE(same_values(d, want));
}

// The device's generation decides whether it has the fused engine, and with which tiles.
TEST(Int8FusedDevices, GenerationsHaveTilesOfTheirOwn) {
  if (!on_emulated()) GTEST_SKIP() << "only the emulated device can change its generation";
  constexpr auto generations = "its kernels are for compute capability 8.x, 9.0, 10.0 and 12.x";
  const auto info_of = [](const Context& context) {
    const std::vector<EngineInfo> all = gemm_engines(context);
    return *std::find_if(all.begin(), all.end(),
                         [](const EngineInfo& engine) { return engine.name == "fused"; });
  };
  struct Case {
    int capability;
    // The depth kc of the fused engine's tiles with 128 columns on this device. 0: 9.0 and 10.0,
    // which have no depth to choose; negative: there are no kernels.
    std::int64_t depth;
  };
  for (const Case& c :
       {Case{75, -1}, Case{80, 64}, Case{86, 64}, Case{87, 64}, Case{89, 64}, Case{90, 0},
        Case{100, 0}, Case{103, -1}, Case{110, -1}, Case{120, 64}, Case{121, 64}}) {
    SCOPED_TRACE(c.capability);
    emulate_compute_capability(c.capability);
    show_fused_products(false);
    const bool exists = c.depth >= 0;
    EXPECT_EQ(info_of(Context(device_options())).reason,
              exists ? "the emulated device shows its fused products on demand" : generations);
    show_fused_products(true);
    const Context context(device_options());
    EXPECT_EQ(info_of(context).available, exists);
    EXPECT_EQ(info_of(context).reason, exists ? "" : generations);
    std::vector<GemmConfig> all = fused_candidates(problem_of(4096, 4096, 4096), context);
    EXPECT_EQ(values_of(all, &GemmConfig::cluster).contains(2), c.depth == 0);
    std::erase_if(all, [](const GemmConfig& config) { return config.nc != 128; });
    EXPECT_EQ(values_of(all, &GemmConfig::kc),
              exists ? std::set{c.depth} : std::set<std::int64_t>());
  }
  show_fused_products(false);
  emulate_compute_capability(90);
}

}  // namespace
}  // namespace switchback::test
