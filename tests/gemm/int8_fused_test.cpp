// SPDX-License-Identifier: Apache-2.0
// The fused engine: what it takes, that nobody gets it unasked, and that it stores the bits of the
// device's own unfused kernels. On a GPU this is its proof; on the emulated device, where a
// stand-in computes, the proof of everything around the kernels.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "gemm/candidates.hpp"
#include "gemm/engine.hpp"
#include "gemm/int8_support.hpp"
#include "support/device_memory.hpp"

namespace switchback::test {
namespace {

using gemm_int8::EngineId;
using gemm_int8::GemmConfig;
using gemm_int8::GemmProblem;

class Int8Fused : public ::testing::Test {
 protected:
  void SetUp() override {
    if (on_cpu()) GTEST_SKIP() << "a device's engine";
    show_fused_products(true);
    context_.emplace(device_options());
    for (const EngineInfo& engine : gemm_engines(*context_))
      if (engine.name == "fused" && !engine.available) GTEST_SKIP() << engine.reason;
  }
  void TearDown() override { show_fused_products(false); }
  Context& context() { return *context_; }

 private:
  std::optional<Context> context_;
};

std::size_t count(std::int64_t n) {
  return static_cast<std::size_t>(n);
}

enum class Codes { random, extreme };

// A product with room around its rows, so that a write outside of them is seen.
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
    // Rows and columns of zeros, and what must stay visible.
    absmax_a.front() = 0.0f;
    if (m > 2) absmax_a.back() = std::numeric_limits<float>::quiet_NaN();
    for (float& value : bias)
      value = static_cast<float>(random.normal());
  }

  // The bytes of d, rows and what lies between them, as `engine` leaves them.
  Vector<std::byte> run(Context& context, const std::string& engine, bool per_column,
                        std::optional<DType> bias_type, bool packed) {
    const std::size_t element = dtype_size_bytes(output);
    Vector<std::byte> d(count(m * stride) * element + 64, std::byte{0x5a});
    Vector<std::uint16_t> narrow_bias(count(n));
    GemmArgs args;
    args.a = {a.data(), m, k};
    args.d = {d.data(), output, m, n, stride};
    args.absmax_a = absmax_a;
    args.absmax_b = std::span<const float>(absmax_b).first(per_column ? count(n) : 1);
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
    PackedWeight packed_b;
    const MatrixView<const std::int8_t> plain(b.data(), n, k);
    if (packed) {
      pack_weight(context, plain, packed_b, "");
      args.packed_b = &packed_b;
    } else {
      args.b = plain;
    }
    args.engine = engine;
    gemm(context, args);
    context.synchronize();
    return d;
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

TEST_F(Int8Fused, HasTheBitsOfTheUnfusedKernels) {
  struct Shape {
    std::int64_t m, n, k;
  };
  std::vector<Shape> shapes = {{1, 16, 16},    {1, 128, 33},    {63, 128, 64},
                               {64, 256, 128}, {65, 264, 1},    {127, 144, 96},
                               {128, 256, 48}, {129, 272, 160}, {257, 16, 127}};
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

// The largest sums there are: 127 · 127 · K just below 2^31.
TEST_F(Int8Fused, ExtremesUpToTheLargestK) {
  for (const std::int64_t k : {std::int64_t{4096}, max_exact_k}) {
    Product product(3, 16, k, DType::f32, Codes::extreme);
    const auto want = product.run(context(), "dp4a", true, DType::f32, false);
    EXPECT_EQ(product.run(context(), "fused", true, DType::f32, true), want);
  }
}

TEST_F(Int8Fused, EveryShapeOfTilesIsRight) {
  Product product(200, 272, 208, DType::f16, Codes::random);
  const auto want = product.run(context(), "dp4a", true, DType::f32, false);
  GemmProblem problem;
  problem.m = 200, problem.n = problem.stride_d = 272;
  problem.k = problem.stride_a = problem.stride_b = 208;
  problem.output = DType::f16;
  problem.scale = gemm_int8::ScaleMode::row_col;
  problem.has_bias = true;
  problem.alignment = 16;
  int shapes = 0;
  for (const GemmConfig& config : gemm_int8::candidates(problem, context())) {
    if (config.engine != EngineId::fused) continue;
    ++shapes;
    SCOPED_TRACE(describe(config));
    EXPECT_TRUE(gemm_int8::is_risky(config)) << "a tuner tries it in another process first";
    EXPECT_EQ(gemm_int8::from_choice(gemm_int8::to_choice(config)), config);
    Vector<std::byte> d(want.size(), std::byte{0x5a});
    gemm_int8::run(context(), problem, config, product.operands(d.data()));
    context().synchronize();
    EXPECT_EQ(d, want);
    GemmConfig unknown = config;
    unknown.cluster = 7;
    EXPECT_EQ(gemm_int8::check_config(problem, unknown, context().state()),
              "engine 'fused': this build has no kernel of tiles " + std::to_string(config.mc) +
                  "x" + std::to_string(config.nc) + " in clusters of 7");
  }
  EXPECT_GE(shapes, 2);
  // What a damaged cache may hold.
  GemmConfig none;
  none.engine = EngineId::fused;
  Vector<std::byte> d(want.size());
  EXPECT_THROW(gemm_int8::run(context(), problem, none, product.operands(d.data())), Error);
  EXPECT_NE(gemm_int8::default_config(problem, context()).engine, EngineId::fused)
      << "nobody gets it before it was proven there";
  EXPECT_NE(gemm_int8::packing_engine(context().state()).id, EngineId::fused);
}

TEST_F(Int8Fused, WhatItDoesNotTakeIsRefusedWithTheReason) {
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
    return std::string(engine->rejects(p));
  };
  EXPECT_EQ(reason([](GemmProblem&) {}), "");
  EXPECT_EQ(reason([](GemmProblem& p) { p.alignment = 1; }),
            "an operand's address is no multiple of 16 bytes");
  EXPECT_EQ(reason([](GemmProblem& p) { p.n = 60; }),
            "the bytes of a row of d are no multiple of 16");
  EXPECT_EQ(reason([](GemmProblem& p) { p.stride_d = 65; }),
            "the bytes between rows of d are no multiple of 16");
  EXPECT_EQ(reason([](GemmProblem& p) { p.k = 0; }), "k is 0");
  EXPECT_EQ(reason([](GemmProblem& p) {
              p.output = DType::s32;
              p.scale = gemm_int8::ScaleMode::none;
            }),
            "it has no int32 output");
  // Forced, that is an error; chosen, another engine does it.
  Product odd(8, 13, 32, DType::f32, Codes::random);
  EXPECT_THROW(odd.run(context(), "fused", true, DType::f32, false), Error);
  const auto want = odd.run(context(), "dp4a", true, DType::f32, false);
  EXPECT_EQ(odd.run(context(), "", true, DType::f32, false), want);
  // Packed for it, too.
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

}  // namespace
}  // namespace switchback::test
