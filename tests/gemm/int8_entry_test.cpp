// SPDX-License-Identifier: Apache-2.0
// Tests of the entry point of the int8 products: refused arguments and their messages, empty
// shapes, the life of PackedWeight.
#include <gtest/gtest.h>

#include <cstdlib>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "core/context_state.hpp"
#include "gemm/int8_support.hpp"
#include "switchback/error.hpp"

namespace switchback::test {
namespace {

template <class F>
void expect_error(Status status, const std::string& message, F&& f) {
  try {
    f();
    ADD_FAILURE() << "no error; expected: " << message;
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), status) << status_name(error.status());
    EXPECT_EQ(std::string(error.what()), message);
  }
}

// Valid arguments of gemm; each test makes one of them invalid.
struct Call {
  Matrix<std::int8_t> a{3, 5};
  Matrix<std::int8_t> b{4, 5};
  Matrix<float> d{3, 4};
  Matrix<std::int32_t> d_s32{3, 4};
  Vector<float> absmax_a = Vector<float>(3, 1.0f);
  Vector<float> absmax_b = Vector<float>(4, 1.0f);
  Vector<float> bias = Vector<float>(4, 0.0f);

  GemmArgs gemm_args() {
    GemmArgs args;
    args.a = a.cview();
    args.b = b.cview();
    args.d = d.view();
    args.absmax_a = absmax_a;
    args.absmax_b = absmax_b;
    return args;
  }
  GemmS8S8S32Args s32_args() {
    GemmS8S8S32Args args;
    args.a = a.cview();
    args.b = b.cview();
    args.d = d_s32.view();
    return args;
  }
};

TEST(Int8Entry, RefusesWithTheArgumentTheValueAndTheRule) {
  Context context(device_options());
  Call call;
  const auto refused = [&](const std::string& message, auto&& change) {
    GemmArgs args = call.gemm_args();
    change(args);
    expect_error(Status::invalid_argument, message, [&] { gemm(context, args); });
  };
  refused("gemm: a has stride = 4; it must be at least cols = 5",
          [](GemmArgs& args) { args.a.stride = 4; });
  refused("gemm: b is [4,4]; it must be [N,K] = [4,5]", [](GemmArgs& args) { args.b.cols = 4; });
  refused("gemm: b [4,5] stride 5 s8 has a null pointer; only an empty matrix may have one",
          [](GemmArgs& args) { args.b.data = nullptr; });
  refused("gemm: d is [3,3]; it must be [M,N] = [3,4]", [](GemmArgs& args) { args.d.cols = 3; });
  refused("gemm: d has dtype s32; it must be f32, f16 or bf16",
          [](GemmArgs& args) { args.d.dtype = DType::s32; });
  refused("gemm: absmax_a holds 2 floats; it must hold M = 3",
          [](GemmArgs& args) { args.absmax_a = args.absmax_a.first(2); });
  refused("gemm: absmax_b holds 3 floats; it must hold N = 4 or 1",
          [](GemmArgs& args) { args.absmax_b = args.absmax_b.first(3); });
  refused("gemm: bias is [1,3]; it must be [1,N] = [1,4]", [&](GemmArgs& args) {
    args.bias = as_row(call.bias);
    args.bias.cols = 3;
  });
  refused("gemm: bias has dtype s8; it must be f32, f16 or bf16", [&](GemmArgs& args) {
    args.bias = as_row(call.bias);
    args.bias.dtype = DType::s8;
  });
  refused("gemm: output d overlaps input bias; they must not share memory",
          [&](GemmArgs& args) { args.bias = ConstAnyMatrix(call.d.data(), DType::f32, 1, 4, 4); });
  refused("gemm: output d overlaps input a; they must not share memory",
          [&](GemmArgs& args) { args.d = AnyMatrix(call.a.data(), DType::f32, 3, 4, 4); });
  EXPECT_TRUE(call.d.guards_intact());

  GemmS8S8S32Args args = call.s32_args();
  args.d.rows = 2;
  expect_error(Status::invalid_argument, "gemm_s8s8s32: d is [2,4]; it must be [M,N] = [3,4]",
               [&] { gemm_s8s8s32(context, args); });
}

TEST(Int8Entry, RefusesKBeyondExactSums) {
  Context context(device_options());
  Vector<std::int8_t> row(max_exact_k + 1, 127);
  std::int32_t sum = 5;
  const MatrixView<const std::int8_t> view(row.data(), 1, max_exact_k + 1);
  GemmS8S8S32Args args;
  args.a = args.b = view;
  args.d = MatrixView<std::int32_t>(&sum, 1, 1);
  expect_error(Status::invalid_argument,
               "gemm_s8s8s32: K = 133145; it must be at most 133144, or the int32 sums of codes "
               "could overflow",
               [&] { gemm_s8s8s32(context, args); });
  EXPECT_EQ(sum, 5);
  PackedWeight packed;
  expect_error(Status::invalid_argument,
               "pack_weight: K = 133145; it must be at most 133144, or the int32 sums of codes "
               "could overflow",
               [&] { pack_weight(context, view, packed); });
  EXPECT_TRUE(packed.empty());
}

// If K is too large for exact sums of arbitrary codes, the CPU checks that no code is -128. A GPU
// does not, because the call would have to wait for it.
TEST(Int8Entry, RefusesMinus128WhereItsSumsCouldOverflow) {
  ContextOptions options;
  options.device = "cpu";
  options.threads = 2;
  Context context(options);
  for (const std::int64_t k : {max_exact_k_of_any_codes + 1, max_exact_k}) {
    Matrix<std::int8_t> a(3, k, {5, 0});
    Matrix<std::int8_t> b(2, k);
    fill_constant(a, 127);
    fill_constant(b, -127);
    b.set(1, k - 1, -128);
    b.set(1, k - 2, -128);
    Matrix<std::int32_t> d(3, 2);
    const Matrix<std::int32_t> before = d;
    GemmS8S8S32Args args;
    args.a = a.view();
    args.b = b.view();
    args.d = d.view();
    const std::string rule =
        "] = -128; codes must be from -127 to 127 where K is above 131071, or the int32 sums could "
        "overflow";
    const std::string in_b = "b[1," + std::to_string(k - 2) + rule;
    expect_error(Status::invalid_argument, "gemm_s8s8s32: " + in_b,
                 [&] { gemm_s8s8s32(context, args); });
    EXPECT_TRUE(d == before);
    PackedWeight packed;
    expect_error(Status::invalid_argument, "pack_weight: " + in_b,
                 [&] { pack_weight(context, b.view(), packed); });
    EXPECT_TRUE(packed.empty());
    fill_constant(b, -127);
    gemm_s8s8s32(context, args);
    EXPECT_EQ(d.get(2, 1), -127 * 127 * k);
    a.set(2, 0, -128);
    const Vector<float> scales(3, 1.0f);
    Matrix<float> y(3, 2);
    GemmArgs scaled;
    scaled.a = a.view();
    scaled.b = b.view();
    scaled.d = AnyMatrix(y.data(), DType::f32, 3, 2, y.stride());
    scaled.absmax_a = {scales.data(), 3};
    scaled.absmax_b = {scales.data(), 2};
    expect_error(Status::invalid_argument, "gemm: a[2,0" + rule, [&] { gemm(context, scaled); });
  }
}

TEST(Int8Entry, RefusesUnknownAndUnavailableEngines) {
  Context context(device_options());
  Call call;
  std::string names;
  for (const EngineInfo& engine : gemm_engines(context))
    names += (names.empty() ? "" : ", ") + engine.name;
  GemmArgs args = call.gemm_args();
  args.engine = "abacus";
  expect_error(Status::invalid_argument, "gemm: engine 'abacus' is not one of " + names,
               [&] { gemm(context, args); });
  PackedWeight packed;
  expect_error(Status::invalid_argument, "pack_weight: engine 'abacus' is not one of " + names,
               [&] { pack_weight(context, call.b.cview(), packed, "abacus"); });

  for (const ContextOptions& options : isa_contexts()) {
    Context capped(options);
    const std::vector<EngineInfo> engines = gemm_engines(capped);
    EXPECT_EQ(engines.back().name, "reference");
    EXPECT_TRUE(engines.back().available);
    for (const EngineInfo& engine : engines) {
      EXPECT_EQ(engine.available, engine.reason.empty()) << engine.name;
      args.engine = engine.name;
      if (engine.available)
        EXPECT_NO_THROW(gemm(capped, args)) << engine.name;
      else
        expect_error(Status::unsupported,
                     "gemm: engine '" + engine.name + "' is not available: " + engine.reason,
                     [&] { gemm(capped, args); });
    }
  }
}

// ctest runs this test a second time with ONEDNN_MAX_CPU_ISA=AVX512_CORE, under which oneDNN's int8
// sums saturate.
TEST(Int8Entry, OnednnIsRefusedWhereItsSumsSaturate) {
  const char* cap = std::getenv("ONEDNN_MAX_CPU_ISA");
  Context context(device_options());
  for (const EngineInfo& engine : gemm_engines(context)) {
    if (engine.name != "onednn" || !context.state().features.avx512_vnni) continue;
    EXPECT_EQ(engine.available, cap == nullptr);
    if (cap != nullptr) {
      EXPECT_EQ(engine.reason,
                "oneDNN is capped below avx512_core_vnni (ONEDNN_MAX_CPU_ISA), where its int8 sums "
                "saturate");
    }
  }
}

TEST(Int8Entry, PackedWeightIsNamedWhenItDoesNotFit) {
  Context context(device_options());
  Call call;
  PackedWeight packed;
  GemmArgs args = call.gemm_args();
  args.packed_b = &packed;
  expect_error(Status::invalid_argument, "gemm: both b and packed_b are given; give one of them",
               [&] { gemm(context, args); });
  args.b = {};
  expect_error(Status::invalid_state, "gemm: packed_b is empty; call pack_weight first",
               [&] { gemm(context, args); });
  pack_weight(context, call.b.cview(), packed, on_cpu() ? "reference" : "dp4a");
  EXPECT_NO_THROW(gemm(context, args));
  args.a.cols = 4;
  expect_error(Status::invalid_argument, "gemm: packed_b is [4,5]; it must be [N,K] = [4,4]",
               [&] { gemm(context, args); });
  args.a.cols = 5;
  if (!on_cpu()) return;  // all engines of a device read its packed weights
  for (const EngineInfo& engine : gemm_engines(context)) {
    if (engine.name == "reference") continue;
    args.engine = engine.name;
    expect_error(Status::invalid_argument,
                 "gemm: packed_b is packed for engine 'reference'; it cannot be used by engine '" +
                     engine.name + "'",
                 [&] { gemm(context, args); });
  }
}

TEST(Int8Entry, PackedWeightMovesAndReusesItsMemory) {
  Context context(device_options());
  Random random(1);
  const Matrix<std::int8_t> b = random_codes(65, 130, random);
  PackedWeight packed;
  EXPECT_TRUE(packed.empty());
  EXPECT_EQ(packed.bytes(), 0u);
  EXPECT_EQ(packed.engine(), "");
  pack_weight(context, b.cview(), packed);
  EXPECT_FALSE(packed.empty());
  EXPECT_EQ(packed.rows(), 65);
  EXPECT_EQ(packed.cols(), 130);
  const std::size_t bytes = packed.bytes();
  EXPECT_GE(bytes, 65u * 130u);
  pack_weight(context, MatrixView<const std::int8_t>(b.data(), 64, 128, 130), packed);
  EXPECT_EQ(packed.rows(), 64);
  EXPECT_EQ(packed.bytes(), bytes);

  PackedWeight other(std::move(packed));
  EXPECT_EQ(other.cols(), 128);
  EXPECT_TRUE(packed.empty());  // NOLINT(bugprone-use-after-move): what it promises
  EXPECT_EQ(packed.rows(), 0);
  EXPECT_EQ(packed.cols(), 0);
  EXPECT_EQ(packed.bytes(), 0u);
  EXPECT_EQ(packed.engine(), "");
  Call call;
  GemmArgs args = call.gemm_args();
  args.b = {};
  args.packed_b = &packed;
  expect_error(Status::invalid_state, "gemm: packed_b is empty; call pack_weight first",
               [&] { gemm(context, args); });
  pack_weight(context, call.b.cview(), packed);
  EXPECT_NO_THROW(gemm(context, args));
}

// The result of products without summands is the bias.
TEST(Int8Entry, EmptyShapes) {
  for (const ContextOptions& options : isa_contexts()) {
    Context context(options);
    std::vector<EngineInfo> engines = gemm_engines(context);
    std::erase_if(engines, [](const EngineInfo& engine) { return !engine.available; });
    for (const EngineInfo& engine : engines)
      for (const Give give : {Give::plain, Give::packed})
        for (const auto& [m, n, k] : {Shape{0, 4, 5}, {3, 0, 5}, {3, 4, 0}, {0, 0, 0}}) {
          const Matrix<std::int8_t> a(m, k);
          const Matrix<std::int8_t> b(n, k);
          Matrix<float> d(m, n, {3, 0});
          fill_constant(d, -1.0f);
          const Vector<float> absmax_a(static_cast<std::size_t>(m), 2.0f);
          const Vector<float> absmax_b(static_cast<std::size_t>(n), 3.0f);
          Vector<float> bias(static_cast<std::size_t>(n));
          std::iota(bias.begin(), bias.end(), 0.5f);
          PackedWeight packed;
          GemmArgs args;
          args.a = a.view();
          if (give == Give::packed) {
            pack_weight(context, b.view(), packed, engine.name);
            args.packed_b = &packed;
          } else {
            args.b = b.view();
          }
          args.d = d.view();
          args.absmax_a = absmax_a;
          args.absmax_b = absmax_b;
          if (n > 0) args.bias = as_row(bias);
          args.engine = engine.name;
          gemm(context, args);
          for (std::int64_t r = 0; r < m; ++r)
            for (std::int64_t c = 0; c < n; ++c)
              EXPECT_EQ(d.get(r, c), bias[static_cast<std::size_t>(c)]) << engine.name;
          EXPECT_TRUE(d.guards_intact());
        }
  }
}

}  // namespace
}  // namespace switchback::test
