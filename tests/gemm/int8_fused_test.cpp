// SPDX-License-Identifier: Apache-2.0
// Tests of the fused engine: the problems it supports, which of its kernels run by default, and
// that it stores the bits of the device's own unfused kernels. On a GPU this verifies the kernels.
// On the emulated device a stand-in computes, so there it verifies everything around the kernels.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <set>
#include <stdexcept>
#include <vector>

#include "core/context_state.hpp"
#include "gemm/int8/candidates.hpp"
#include "gemm/int8/dispatch.hpp"
#include "gemm/int8/engine.hpp"
#include "gemm/int8_support.hpp"
#include "support/contexts.hpp"
#include "support/device_memory.hpp"
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

std::size_t count(std::int64_t n) {
  return static_cast<std::size_t>(n);
}

enum class Codes { random, extreme };

// A product whose d has memory around its rows, so that a write outside of them is seen.
struct Product {
  Product(std::int64_t m_, std::int64_t n_, std::int64_t k_, DType output_, Codes codes,
          std::int64_t d_padding = 0)
      : m(m_),
        n(n_),
        k(k_),
        output(output_),
        stride(n_ + d_padding),
        a(count(m_ * k_)),
        b(count(n_ * k_)),
        absmax_a(count(m_)),
        absmax_b(count(n_)),
        bias(count(n_)) {
    Random random(static_cast<std::uint64_t>(m * 7 + n * 3 + k));
    for (auto* codes_of : {&a, &b})
      for (std::int8_t& q : *codes_of)
        q = codes == Codes::extreme ? std::int8_t{127}
                                    : static_cast<std::int8_t>(random.uniform() * 255.0 - 127.0);
    for (auto* scales : {&absmax_a, &absmax_b})
      for (float& s : *scales)
        s = static_cast<float>(random.uniform()) * 3.0f;
    // The first row has a zero scale. The last row has a NaN scale, which must stay visible.
    absmax_a.front() = 0.0f;
    if (m > 2) absmax_a.back() = std::numeric_limits<float>::quiet_NaN();
    for (float& value : bias)
      value = static_cast<float>(random.normal());
  }

  // The arguments of a product without a bias, which is written to `to`. packed_b is filled if it
  // is not null.
  GemmArgs arguments(Context& context, AnyMatrix to, bool per_column, PackedWeight* packed_b) {
    GemmArgs args;
    args.a = {a.data(), m, k};
    args.d = to;
    args.absmax_a = absmax_a;
    args.absmax_b = std::span<const float>(absmax_b).first(per_column ? count(n) : 1);
    const MatrixView<const std::int8_t> plain(b.data(), n, k);
    if (packed_b != nullptr) {
      pack_weight(context, plain, *packed_b, "");
      args.packed_b = packed_b;
    } else {
      args.b = plain;
    }
    return args;
  }

  // The bytes of d (rows and the memory between them) after `engine` has run.
  Vector<std::byte> run(Context& context, const std::string& engine, bool per_column,
                        std::optional<DType> bias_type, bool packed) {
    const std::size_t element = dtype_size_bytes(output);
    Vector<std::byte> d(count(m * stride) * element + 64, std::byte{0x5a});
    Vector<std::uint16_t> narrow_bias(count(n));
    PackedWeight packed_b;
    GemmArgs args = arguments(context, {d.data(), output, m, n, stride}, per_column,
                              packed ? &packed_b : nullptr);
    if (bias_type == DType::f32) {
      args.bias = {bias.data(), DType::f32, 1, n, n};
    } else if (bias_type) {
      for (std::size_t j = 0; j < bias.size(); ++j) {
        const std::uint16_t bits =
            *bias_type == DType::f16 ? half(bias[j]).bits : bfloat16(bias[j]).bits;
        narrow_bias[j] = bits;
      }
      args.bias = {narrow_bias.data(), *bias_type, 1, n, n};
    }
    args.engine = engine;
    gemm(context, args);
    context.synchronize();
    say_nan_alike(d);
    return d;
  }

  // The bytes of d of a rotated product, computed by one kernel, or by dp4a in f32 and rotate().
  // Empty if the device has no kernel for it.
  Vector<std::byte> run_rotated(Context& context, Rotation rotation, bool per_column, bool packed,
                                bool by_one_kernel) {
    Vector<std::byte> d(count(m * stride) * dtype_size_bytes(output) + 64, std::byte{0x5a});
    Vector<float> product(by_one_kernel ? 0 : count(m * n));
    const AnyMatrix rotated(d.data(), output, m, n, stride);
    PackedWeight packed_b;
    GemmArgs args = arguments(
        context, by_one_kernel ? rotated : AnyMatrix(MatrixView<float>(product.data(), m, n)),
        per_column, packed ? &packed_b : nullptr);
    if (by_one_kernel) {
      if (!gemm_int8::multiply_rotated(context.state(), args, static_cast<int>(rotation)))
        return {};
    } else {
      args.engine = "dp4a";
      gemm(context, args);
      rotate(context, args.d, rotation, rotated);
    }
    context.synchronize();
    say_nan_alike(d);
    return d;
  }

  // Replaces each NaN by the same NaN: the bits of a NaN are not specified, and CUTLASS's kernels
  // leave them to the device.
  void say_nan_alike(Vector<std::byte>& d) const {
    const auto alike = [&]<class T>(T) {
      for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t j = 0; j < n; ++j) {
          T value;
          std::byte* at = d.data() + count(i * stride + j) * sizeof value;
          std::memcpy(&value, at, sizeof value);
          if (!std::isnan(static_cast<float>(value))) continue;
          value = T(std::numeric_limits<float>::quiet_NaN());
          std::memcpy(at, &value, sizeof value);
        }
    };
    if (output == DType::f32) return alike(float{});
    if (output == DType::f16) return alike(half{});
    alike(bfloat16{});
  }

  gemm_int8::GemmOperands operands(void* d) const {
    gemm_int8::GemmOperands operands;
    operands.a = a.data();
    operands.b = b.data();
    operands.d = d;
    operands.absmax_a = absmax_a.data();
    operands.absmax_b = absmax_b.data();
    operands.bias = bias.data();
    return operands;
  }

  std::int64_t m, n, k;
  DType output;
  std::int64_t stride;
  Vector<std::int8_t> a, b;
  Vector<float> absmax_a, absmax_b, bias;
};

TEST_P(Int8Fused, HasTheBitsOfTheUnfusedKernels) {
  struct Shape {
    std::int64_t m, n, k;
  };
  std::vector<Shape> shapes = {{1, 16, 16},    {1, 128, 33},    {63, 128, 64},
                               {64, 256, 128}, {65, 264, 1},    {127, 144, 96},
                               {128, 256, 48}, {129, 272, 160}, {257, 16, 127}};
  // Products of few rows, whose K is smaller than one stage, than all stages, or than what the
  // warps hold.
  for (const Shape& few :
       {Shape{1, 16, 4100}, {8, 48, 129}, {16, 40, 1000}, {17, 64, 2100}, {32, 136, 520}})
    shapes.push_back(few);
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
          Product product(s.m, s.n, s.k, output, Codes::random, per_column ? 0 : 16);
          const auto want = product.run(context(), "dp4a", per_column, bias, false);
          for (const bool packed : {false, true})
            ASSERT_EQ(product.run(context(), "fused", per_column, bias, packed), want);
        }
}

// The last rows and columns are in tiles that d does not fill. The kernel is for outputs of 16
// bits, groups that fit into a tile, and a d with enough tiles.
TEST_P(Int8Fused, RotatesWithTheBitsOfTwoPasses) {
  struct Shape {
    std::int64_t m, n, k;
  };
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
          Product product(s.m, s.n, s.k, output, Codes::random, per_column ? 0 : 16);
          const auto got = product.run_rotated(context(), rotation, per_column, !per_column, true);
          ASSERT_EQ(!got.empty(), has_kernel);
          if (!has_kernel) return;
          ASSERT_EQ(got, product.run_rotated(context(), rotation, per_column, false, false));
        }
  Product wide(6401, 1024, 32, DType::bf16, Codes::random);
  EXPECT_TRUE(wide.run_rotated(context(), Rotation::hadamard_1024, true, false, true).empty());
  Product precise(6401, 256, 32, DType::f32, Codes::random);
  EXPECT_TRUE(precise.run_rotated(context(), Rotation::hadamard_256, true, false, true).empty());
  Product few(1, 256, 32, DType::bf16, Codes::random);
  EXPECT_TRUE(few.run_rotated(context(), Rotation::hadamard_256, true, false, true).empty());
}

// A copy of a vector's elements that begins at an address without any alignment.
template <class T>
class Moved {
 public:
  explicit Moved(std::span<const T> from) : count_(from.size()), bytes_(from.size_bytes() + 1) {
    std::memcpy(bytes_.data() + 1, from.data(), from.size_bytes());
  }
  const T* data() const { return reinterpret_cast<const T*>(bytes_.data() + 1); }
  std::span<const T> span() const { return {data(), count_}; }

 private:
  std::size_t count_;
  Vector<std::byte> bytes_;
};

TEST_P(Int8Fused, ScalesAndBiasMayLieAnywhere) {
  for (const DType output : {DType::f32, DType::f16, DType::bf16})
    for (const DType bias_type : {DType::f32, DType::f16, DType::bf16})
      for (const bool per_column : {true, false}) {
        SCOPED_TRACE(::testing::Message()
                     << dtype_name(output) << ", bias " << dtype_name(bias_type));
        Product product(65, 272, 96, output, Codes::random);
        const auto want = product.run(context(), "dp4a", per_column, bias_type, false);
        Vector<half> narrow_bias(product.bias.size());
        for (std::size_t j = 0; j < narrow_bias.size(); ++j)
          narrow_bias[j].bits =
              bias_type == DType::f16 ? half(product.bias[j]).bits : bfloat16(product.bias[j]).bits;
        const Moved<float> absmax_a(product.absmax_a);
        const Moved<float> absmax_b(product.absmax_b);
        const Moved<float> wide(product.bias);
        const Moved<half> narrow(narrow_bias);
        Vector<std::byte> d(want.size(), std::byte{0x5a});
        GemmArgs args;
        args.a = {product.a.data(), product.m, product.k};
        args.b = {product.b.data(), product.n, product.k};
        args.d = {d.data(), output, product.m, product.n, product.stride};
        args.absmax_a = absmax_a.span();
        args.absmax_b = absmax_b.span().first(per_column ? count(product.n) : 1);
        args.bias = {bias_type == DType::f32 ? static_cast<const void*>(wide.data())
                                             : static_cast<const void*>(narrow.data()),
                     bias_type, 1, product.n, product.n};
        args.engine = "fused";
        gemm(context(), args);
        context().synchronize();
        product.say_nan_alike(d);
        ASSERT_EQ(d, want);
      }
}

// The largest sums: 127 · 127 · K just below 2^31.
TEST_P(Int8Fused, ExtremesUpToTheLargestK) {
  for (const std::int64_t k : {std::int64_t{4096}, max_exact_k}) {
    Product product(3, 16, k, DType::f32, Codes::extreme);
    const auto want = product.run(context(), "dp4a", true, DType::f32, false);
    EXPECT_EQ(product.run(context(), "fused", true, DType::f32, true), want);
  }
}

GemmProblem problem_of(std::int64_t m, std::int64_t n, std::int64_t k) {
  GemmProblem p;
  p.m = m, p.n = p.stride_d = n;
  p.k = p.stride_a = p.stride_b = k;
  p.output = DType::bf16;
  p.scale = gemm_int8::ScaleMode::row_col;
  p.alignment = 16;
  return p;
}

// Problems with fewer stages than a pipeline has, with a part of a stage, and with more tiles than
// run at a time.
TEST_P(Int8Fused, EveryShapeAndOrderOfTilesIsRight) {
  const GemmProblem large = on_emulated() ? problem_of(600, 800, 32) : problem_of(1500, 4112, 1040);
  std::vector<GemmProblem> problems = {large};
  for (const DType output : {DType::f32, DType::f16, DType::bf16})
    for (GemmProblem problem : {problem_of(200, 272, 208), problem_of(130, 272, 16)}) {
      problem.output = output;
      problems.push_back(problem);
    }
  for (GemmProblem& problem : problems) {
    Product product(problem.m, problem.n, problem.k, problem.output, Codes::random);
    const auto want = product.run(context(), "dp4a", true, DType::f32, false);
    const bool has_orders = problem == large;
    problem.has_bias = true;
    std::set<std::int64_t> shapes, rasters, swizzles;
    for (const GemmConfig& config : gemm_int8::candidates(problem, context().state())) {
      if (config.engine != EngineId::fused) continue;
      shapes.insert(config.mc * 1024 + config.nc);
      rasters.insert(config.raster);
      swizzles.insert(config.swizzle);
      SCOPED_TRACE(describe(config));
      EXPECT_EQ(test::config_of(gemm_int8::to_choice(config)), config);
      Vector<std::byte> d(want.size(), std::byte{0x5a});
      gemm_int8::run(context(), problem, config, product.operands(d.data()));
      context().synchronize();
      product.say_nan_alike(d);
      ASSERT_EQ(d, want);
    }
    EXPECT_GE(shapes.size(), 2u);
    if (has_orders) {
      EXPECT_GE(rasters.size(), 2u);
      EXPECT_GE(swizzles.size(), 2u);
    }
  }
}

TEST_P(Int8Fused, ConfigurationsThatNoKernelHasAreRefused) {
  GemmProblem problem = problem_of(200, 272, 208);
  for (const GemmConfig& config : gemm_int8::candidates(problem, context().state())) {
    if (config.engine != EngineId::fused) continue;
    GemmConfig unknown = config;
    unknown.cluster = 7;
    EXPECT_EQ(gemm_int8::check_config(problem, unknown, context().state()),
              fmt::format("engine 'fused': there is no kernel with tiles of {}x{} (kc={}) and "
                          "clusters of 7 for this device",
                          config.mc, config.nc, config.kc));
    unknown = config;
    unknown.raster = 3;
    EXPECT_EQ(gemm_int8::check_config(problem, unknown, context().state()),
              "engine 'fused': raster=3; it must be 0 (the side with fewer tiles), 1 (m) or 2 (n)");
    unknown = config;
    unknown.swizzle = 3;
    EXPECT_EQ(gemm_int8::check_config(problem, unknown, context().state()),
              "engine 'fused': swizzle=3; it must be 0, 2, 4 or 8");
    unknown = config;
    unknown.cublaslt.workspace_mib = 32;
    EXPECT_EQ(gemm_int8::check_config(problem, unknown, context().state()),
              "engine 'fused' does not support a cuBLASLt algorithm or workspace");
  }
  // A configuration that a damaged cache may hold.
  GemmConfig none;
  none.engine = EngineId::fused;
  EXPECT_NE(gemm_int8::check_config(problem, none, context().state()), "");
  Product product(200, 272, 208, DType::bf16, Codes::random);
  Vector<std::byte> d(count(200 * 272) * sizeof(bfloat16));
  EXPECT_THROW(gemm_int8::run(context(), problem, none, product.operands(d.data())), Error);
  EXPECT_NE(gemm_int8::packing_engine(context().state()).id, EngineId::fused);
}

// The default is a kernel that is trusted on this device, also if b is packed for cuBLASLt. A tuner
// tries other kernels in another process first.
TEST_P(Int8Fused, TheDefaultIsAKernelThatIsTrusted) {
  const ContextState& state = context().state();
  for (const std::int64_t m : {1, 200, 3000})
    for (const DType output : {DType::f32, DType::f16, DType::bf16})
      for (const bool packed : {false, true}) {
        GemmProblem p = problem_of(m, 272, 208);
        p.output = output;
        if (packed) {
          p.packed_for = gemm_int8::packing_engine(state).id;
          p.stride_b = 0;
        }
        int trusted = 0;
        for (const GemmConfig& config : gemm_int8::candidates(p, state))
          if (config.engine == EngineId::fused && !gemm_int8::needs_validation(p, config, state))
            ++trusted;
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
  Product product(2, 16, max_exact_k, DType::f32, Codes::extreme);
  for (std::int64_t i = 0; i < product.m; ++i)
    for (std::int64_t k = 0; k < product.k; ++k)
      product.a[count(i * product.k + k)] = k < up ? std::int8_t{-128} : std::int8_t{127};
  for (std::int8_t& q : product.b)
    q = std::int8_t{-128};
  const auto want = product.run(context(), "dp4a", true, DType::f32, false);
  EXPECT_EQ(product.run(context(), "fused", true, DType::f32, false), want);
  float first = 0.0f;
  std::memcpy(&first, want.data() + count(product.stride) * sizeof(float), sizeof first);
  const std::int64_t sum = 128 * 128 * up - 128 * 127 * (max_exact_k - up);
  static_assert(128 * 128 * up > std::numeric_limits<std::int32_t>::max());
  ASSERT_LE(sum, std::numeric_limits<std::int32_t>::max());
  const float scaled = static_cast<float>(sum) * 0x1.040c2p-14f;
  const float y = product.absmax_b[0] * (product.absmax_a[1] * scaled) + product.bias[0];
  EXPECT_EQ(first, y);
}

// Orders of tiles (raster and swizzle) are candidates if a product has many tiles, but not too many
// orders are tried.
TEST_P(Int8Fused, OrdersAreCandidatesOfLargeProducts) {
  const auto all_of = [&](const GemmProblem& p) {
    std::vector<GemmConfig> all;
    for (const GemmConfig& config : gemm_int8::candidates(p, context().state()))
      if (config.engine == EngineId::fused) {
        EXPECT_EQ(gemm_int8::check_config(p, config, context().state()), "") << describe(config);
        EXPECT_EQ(std::count(all.begin(), all.end(), config), 0) << describe(config);
        all.push_back(config);
      }
    return all;
  };
  const auto sets = [](const std::vector<GemmConfig>& all, auto member) {
    std::set<std::int64_t> values;
    for (const GemmConfig& config : all)
      values.insert(config.*member);
    return values;
  };
  using Values = std::set<std::int64_t>;
  const auto large = all_of(problem_of(16384, 16384, 4096));
  EXPECT_EQ(sets(large, &GemmConfig::swizzle), (Values{0, 8}));
  // The order along m is a candidate for square tiles and for tiles that are wider than high: they
  // have no fewer tiles in a column than in a row.
  EXPECT_TRUE(sets(large, &GemmConfig::raster).contains(1));
  EXPECT_LE(large.size(), 48u);
  const auto wide = all_of(problem_of(1024, 65536, 4096));
  EXPECT_EQ(sets(wide, &GemmConfig::raster), (Values{0, 2}));
  // All tiles of a small product run at once, so no order is tried.
  const auto small = all_of(problem_of(128, 128, 4096));
  EXPECT_EQ(sets(small, &GemmConfig::raster), (Values{0}));
  EXPECT_EQ(sets(small, &GemmConfig::swizzle), (Values{0}));
  EXPECT_LT(small.size(), large.size());
  // Tiles of more than 64 rows are not tried for a decode step (one row), and are not its default.
  const auto decode = all_of(problem_of(1, 4096, 4096));
  for (const GemmConfig& config : decode)
    EXPECT_LE(config.mc, 64) << describe(config);
  // Kernels for few rows support at most 16 rows.
  EXPECT_NE(gemm_int8::check_config(problem_of(17, 4096, 4096), decode.front(), context().state())
                .find("supports at most 16 rows, not m=17"),
            std::string::npos);
  const auto* engine =
      gemm_int8::find_engine(context().state().device.kind, std::string_view("fused"));
  const auto by_default = [&](std::int64_t m) {
    return engine->default_config(problem_of(m, 4096, 4096), context().state()).mc;
  };
  EXPECT_LE(by_default(1), 64);
  EXPECT_GE(by_default(4096), 128);
}

TEST_P(Int8Fused, ConfigurationsAreWrittenAsTheirTilesClustersAndOrder) {
  GemmConfig fused;
  fused.engine = EngineId::fused;
  fused.mc = 128, fused.nc = 128, fused.cluster = 2;
  const std::string reason =
      gemm_int8::check_config(problem_of(512, 512, 512), fused, context().state());
  const int capability = context().state().runtime->info().compute_capability();
  EXPECT_EQ(reason.empty(), capability == 90 || capability == 100) << reason;
  EXPECT_EQ(describe(fused), "fused plain mc=128 nc=128 kc=0 threads=0 cluster=2");
  fused.raster = 1, fused.swizzle = 8;
  EXPECT_EQ(describe(fused),
            "fused plain mc=128 nc=128 kc=0 threads=0 cluster=2 raster=1 swizzle=8");
  // Engines other than `fused` have neither clusters nor orders of tiles.
  GemmConfig other;
  other.engine = EngineId::dp4a;
  other.cluster = 2;
  EXPECT_EQ(gemm_int8::check_config(problem_of(512, 512, 512), other, context().state()),
            "engine 'dp4a' does not support clusters");
  other.cluster = 0, other.swizzle = 4;
  EXPECT_EQ(gemm_int8::check_config(problem_of(512, 512, 512), other, context().state()),
            "engine 'dp4a' does not support an order of tiles");
  other.swizzle = -4;
  EXPECT_NE(gemm_int8::check_config(problem_of(512, 512, 512), other, context().state())
                .find("swizzle=-4; it must not be negative"),
            std::string::npos);
}

TEST_P(Int8Fused, WhatItDoesNotTakeIsRefusedWithTheReason) {
  const auto reason = [&](const std::function<void(GemmProblem&)>& change) {
    GemmProblem p;
    p.m = 32, p.n = p.stride_d = 64;
    p.k = p.stride_a = p.stride_b = 48;
    p.output = DType::bf16;
    p.scale = gemm_int8::ScaleMode::row_scalar;
    p.alignment = 16;
    change(p);
    const auto* engine =
        gemm_int8::find_engine(context().state().device.kind, std::string_view("fused"));
    return std::string(engine->unsupported(p, context().state()));
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
  // computes.
  Product odd(8, 13, 32, DType::f32, Codes::random);
  EXPECT_THROW(odd.run(context(), "fused", true, DType::f32, false), Error);
  const auto want = odd.run(context(), "dp4a", true, DType::f32, false);
  EXPECT_EQ(odd.run(context(), "", true, DType::f32, false), want);
  // Another engine also computes if b was packed for the fused engine.
  PackedWeight packed;
  pack_weight(context(), MatrixView<const std::int8_t>(odd.b.data(), odd.n, odd.k), packed,
              "fused");
  Vector<std::byte> d(want.size(), std::byte{0x5a});
  GemmArgs args;
  args.a = {odd.a.data(), odd.m, odd.k};
  args.packed_b = &packed;
  args.d = {d.data(), odd.output, odd.m, odd.n, odd.stride};
  args.absmax_a = odd.absmax_a;
  args.absmax_b = odd.absmax_b;
  args.bias = {odd.bias.data(), DType::f32, 1, odd.n, odd.n};
  gemm(context(), args);
  context().synchronize();
  EXPECT_EQ(d, want);
}

// The device's generation decides whether it has the fused engine, and with which tiles.
class Int8FusedDevices : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!on_emulated()) GTEST_SKIP() << "only the emulated device can change its generation";
  }
  void TearDown() override {
    show_fused_products(false);
    emulate_compute_capability(90);
  }
  static EngineInfo engine(const Context& context) {
    for (const EngineInfo& one : gemm_engines(context))
      if (one.name == "fused") return one;
    throw std::logic_error("no engine 'fused'");
  }
};

TEST_F(Int8FusedDevices, GenerationsHaveTilesOfTheirOwn) {
  constexpr auto generations = "its kernels are for compute capability 8.x, 9.0, 10.0 and 12.x";
  show_fused_products(true);
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
    const Context context(device_options());
    const EngineInfo info = engine(context);
    ASSERT_EQ(info.available, c.depth >= 0) << info.reason;
    EXPECT_EQ(info.reason, info.available ? "" : generations);
    std::set<std::int64_t> depths;
    bool has_clusters = false;
    for (const GemmConfig& config :
         gemm_int8::candidates(problem_of(4096, 4096, 4096), context.state())) {
      if (config.engine != EngineId::fused) continue;
      if (config.nc == 128) depths.insert(config.kc);
      has_clusters = has_clusters || config.cluster > 1;
    }
    if (info.available)
      EXPECT_EQ(depths, std::set<std::int64_t>{c.depth});
    else
      EXPECT_TRUE(depths.empty());
    EXPECT_EQ(has_clusters, c.depth == 0);
  }
  show_fused_products(false);
  emulate_compute_capability(103);
  const Context context(device_options());
  EXPECT_EQ(engine(context).reason, generations);
  for (const int capability : {86, 90, 100, 120}) {
    emulate_compute_capability(capability);
    const Context hidden(device_options());
    EXPECT_EQ(engine(hidden).reason, "the emulated device shows its fused products on demand");
  }
}

// A configuration with the tiles of one generation is refused on a device of another.
TEST_F(Int8FusedDevices, AnotherDevicesTilesAreRefused) {
  show_fused_products(true);
  const GemmProblem problem = problem_of(4096, 4096, 4096);
  emulate_compute_capability(80);
  GemmConfig tall;
  const Context ampere(device_options());
  for (const GemmConfig& config : gemm_int8::candidates(problem, ampere.state()))
    if (config.engine == EngineId::fused && config.mc == 256) tall = config;
  ASSERT_EQ(tall.engine, EngineId::fused);
  EXPECT_EQ(gemm_int8::check_config(problem, tall, ampere.state()), "");
  emulate_compute_capability(90);
  const Context hopper(device_options());
  EXPECT_EQ(gemm_int8::check_config(problem, tall, hopper.state()),
            "engine 'fused': there is no kernel with tiles of 256x128 (kc=64) and clusters of 1 "
            "for this device");
}

}  // namespace
}  // namespace switchback::test
