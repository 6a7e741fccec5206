// SPDX-License-Identifier: Apache-2.0
// Configurations that name an algorithm of cuBLASLt: their results, the cases in which such a
// configuration is refused, and what an ordinary call then runs instead.
#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <set>

#include "cuda/cuda_support.hpp"
#include "gemm/floating/engine.hpp"
#include "gemm/int8/candidates.hpp"
#include "support/tuning.hpp"

namespace switchback::test {
namespace {

using gemm_int8::EngineId;
using gemm_int8::GemmConfig;
using switchback_cuda_emu::calls;
using switchback_cuda_emu::options;

// A stand-in for a tuner: answers every query for `op` with one choice, and records whether the
// choice was refused.
class Tuned final : public ConfigSource {
 public:
  Tuned(ConfigOp op, const ConfigChoice& choice) : op_(op), choice_(choice) {}
  bool find(const ConfigQuery& query, const ContextState&, ConfigChoice& choice) const override {
    choice = choice_;
    return query.op == op_;
  }
  void refused(const ConfigQuery& query, const ConfigChoice& choice,
               std::string_view reason) const noexcept override {
    EXPECT_EQ(query.op, op_);
    EXPECT_EQ(choice, choice_);
    reasons.emplace_back(reason);
  }
  mutable std::vector<std::string> reasons;

 private:
  ConfigOp op_;
  ConfigChoice choice_;
};

// An int8 product, to int32 or to f32 with scales, that a test runs with configurations.
struct Product : ProductOnDevice {
  Product(Context& context, std::int64_t m, std::int64_t n, std::int64_t k,
          DType output = DType::s32)
      : ProductOnDevice(context, m, n, k) {
    problem.m = m;
    problem.n = problem.stride_d = n;
    problem.k = problem.stride_a = problem.stride_b = k;
    problem.output = output;
    if (output == DType::s32) return;
    problem.scale = gemm_int8::ScaleMode::row_col;
    right_scaled.emplace(scaled("dp4a"));  // another suite shows that this kernel is exact
  }
  using ProductOnDevice::run;
  void run(const GemmConfig& config) {
    gemm_int8::GemmOperands operands;
    operands.a = a.data();
    operands.b = b.data();
    operands.d = right_scaled ? static_cast<void*>(d.data()) : sums.data();
    operands.absmax_a = absmax_a.data();
    operands.absmax_b = absmax_b.data();
    gemm_int8::run(a.context(), problem, config, operands);
  }
  bool right() {
    if (!right_scaled) return ProductOnDevice::right();
    const bool is_right = d.download() == *right_scaled;
    d.fill(0x55);
    return is_right;
  }
  [[nodiscard]] std::vector<GemmConfig> candidates() const {
    return gemm_int8::all_candidates(problem, a.context().state());
  }
  [[nodiscard]] std::string refusal(const GemmConfig& config) const {
    return gemm_int8::check_config(problem, config, a.context().state());
  }
  [[nodiscard]] std::string provenance(const GemmConfig& config) const {
    return gemm_int8::provenance(problem, config, a.context().state());
  }

  gemm_int8::GemmProblem problem;
  std::optional<Matrix<float>> right_scaled;
};

// A configuration with an algorithm that no other test of this file uses.
GemmConfig chosen(EngineId engine = EngineId::cublaslt) {
  GemmConfig config;
  config.engine = engine;
  config.cublaslt.algorithm = CublasLtAlgorithm{};
  config.cublaslt.algorithm->id = 31;
  config.cublaslt.algorithm->tile = CUBLASLT_MATMUL_TILE_128x128;
  config.cublaslt.algorithm->stages = CUBLASLT_MATMUL_STAGES_128x3;
  config.cublaslt.algorithm->custom = 1;
  return config;
}

std::shared_ptr<Tuned> tune(Context& context, const GemmConfig& config) {
  auto source = std::make_shared<Tuned>(ConfigOp::gemm_int8, gemm_int8::to_choice(config));
  context.set_config_source(source);
  return source;
}

using CudaAlgorithmConfigs = Cuda;

TEST_F(CudaAlgorithmConfigs, EveryCandidateHasTheReferencesBits) {
  Context context(emulated());
  for (const DType output : {DType::s32, DType::f32})
    for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{64, 128, 512},
                                  {33, 52, 144},
                                  {1, 3, 20},
                                  {300, 16, 64},
                                  {17, 4, 1}}) {
      Product product(context, m, n, k, output);
      const std::vector<GemmConfig> all = product.candidates();
      EXPECT_GT(all.size(), 8u);
      EXPECT_EQ(all.front(), gemm_int8::default_config(product.problem, context.state()));
      std::set<std::string> seen;
      for (auto i = all.begin(); i != all.end(); ++i) {
        SCOPED_TRACE(describe(product.problem) + " by " + describe(*i));
        EXPECT_FALSE(gemm_int8::needs_validation(product.problem, *i, context.state()));
        EXPECT_EQ(product.refusal(*i), "");
        EXPECT_EQ(std::find(i + 1, all.end(), *i), all.end());
        // An entry of a tuner stores cuBLASLt's own 64 bytes of an algorithm.
        const std::string bytes = product.provenance(*i);
        EXPECT_EQ(bytes.size(), i->engine == EngineId::dp4a ? 0u : 128u);
        EXPECT_EQ(bytes.find_first_not_of("0123456789abcdef"), std::string::npos);
        if (i->engine == EngineId::cublaslt) {
          EXPECT_TRUE(seen.insert(bytes).second) << "the same algorithm twice";
        }
        product.run(*i);
        EXPECT_TRUE(product.right());
      }
    }
}

TEST_F(CudaAlgorithmConfigs, PanelsAreTriedInPartsOfTheCache) {
  Context context(emulated());
  gemm_int8::GemmProblem problem;
  problem.m = 3000;
  problem.n = problem.stride_d = 1024;
  problem.k = problem.stride_a = problem.stride_b = 16;
  problem.output = DType::f32;
  problem.scale = gemm_int8::ScaleMode::row_col;
  std::set<std::int64_t> rows;
  for (const GemmConfig& config : gemm_int8::all_candidates(problem, context.state()))
    if (config.engine == EngineId::cublaslt_panels) {
      EXPECT_EQ(config.cublaslt, CublasLtChoice{});
      rows.insert(config.mc);
    }
  // Panels of rows are sized by the L2 cache: its 4 MiB hold 1024 rows of 1024 sums.
  EXPECT_EQ(rows, (std::set<std::int64_t>{128, 256, 384, 512, 768, 1024}));
  problem.m = 0;
  for (const GemmConfig& config : gemm_int8::all_candidates(problem, context.state()))
    EXPECT_FALSE(config.cublaslt.algorithm.has_value());
}

TEST_F(CudaAlgorithmConfigs, PanelsTakeAnAlgorithmToo) {
  Context context(emulated());
  for (const std::int64_t rows : {0, 32, 64, 150}) {
    Product product(context, 150, 32, 64, DType::f32);
    GemmConfig config = chosen(EngineId::cublaslt_panels);
    config.mc = rows;
    EXPECT_EQ(product.refusal(config), "");
    product.run(config);
    EXPECT_TRUE(product.right()) << rows;
    config.cublaslt.algorithm->custom = 3;
    EXPECT_NE(product.refusal(config), "");
  }
}

// All engines of a device read the same packed layout: a layer's weight is packed before it is
// known which engine is the fastest for a batch.
TEST_F(CudaAlgorithmConfigs, EnginesReadWhatOthersPacked) {
  Context context(emulated());
  const std::array<EngineId, 3> engines = {EngineId::cublaslt, EngineId::cublaslt_panels,
                                           EngineId::dp4a};
  for (const EngineId packer : engines) {
    // K and N are odd sizes that packing pads with zeros. An eighth of the L2 cache holds 130 rows
    // of sums.
    Product product(context, 150, 1001, 18, DType::f32);
    PackedWeight packed;
    pack_weight(context, product.b.view(), packed, gemm_int8::engine_name(packer));
    product.problem.packed_for = packer;
    product.problem.stride_b = 0;
    std::set<EngineId> tried;
    for (const GemmConfig& config : product.candidates()) {
      tried.insert(config.engine);
      EXPECT_EQ(product.refusal(config), "");
    }
    EXPECT_EQ(tried, (std::set<EngineId>(engines.begin(), engines.end())));
    for (const EngineId reader : engines) {
      SCOPED_TRACE(std::string(gemm_int8::engine_name(packer)) + " read by " +
                   std::string(gemm_int8::engine_name(reader)));
      EXPECT_EQ(product.scaled(gemm_int8::engine_name(reader), &packed), product.right_scaled);
      // A tuner may also choose this engine for the packed b.
      GemmConfig config;
      config.engine = reader;
      const auto source = tune(context, config);
      EXPECT_EQ(product.scaled({}, &packed), product.right_scaled);
      EXPECT_TRUE(source->reasons.empty());
      context.set_config_source(nullptr);
    }
  }
}

// A refused algorithm is an error if it is demanded. If a tuner chose it, the default of the
// library runs instead, and the context does not try the algorithm again.
TEST_F(CudaAlgorithmConfigs, ARefusedOneIsUnsupportedAndTheDefaultRuns) {
  const GemmConfig config = chosen();
  for (const bool at_check : {true, false}) {
    SCOPED_TRACE(at_check ? "refused by the check" : "refused by the product");
    (at_check ? options().refuse_at_check : options().refuse_at_run) =
        pattern_of(*config.cublaslt.algorithm);
    Context context(emulated());
    Product product(context, 64, 64, 256);
    if (!at_check) {
      EXPECT_EQ(product.refusal(config), "") << "nothing says so before it runs";
    }
    const std::string message = message_of(Status::unsupported, [&] { product.run(config); });
    EXPECT_NE(("gemm: " + product.refusal(config)).find(message), std::string::npos) << message;
    EXPECT_NE(message.find(describe(*config.cublaslt.algorithm)), std::string::npos) << message;
    EXPECT_NE(message.find(at_check ? "cublasLtMatmulAlgoCheck: CUBLAS_STATUS_NOT_SUPPORTED (15)"
                                    : "cublasLtMatmul of s8·s8"),
              std::string::npos)
        << message;

    Context tuned(emulated());
    Product again(tuned, 64, 64, 256);
    const auto source = tune(tuned, config);
    EXPECT_EQ(kernels_of([&] { again.run(); }), std::vector<std::string>())
        << "the default is the library's";
    EXPECT_TRUE(again.right());
    ASSERT_EQ(source->reasons.size(), 1u);
    EXPECT_NE(("gemm: " + source->reasons[0]).find(message), std::string::npos) << message;
    const std::size_t products = calls("cublasLtMatmul");
    expect_no_calls_of(
        {"cublasLtMatmulAlgoCheck", "cublasLtMatmulAlgoInit", "cublasLtMatrixLayoutCreate"},
        [&] { again.run(); });
    EXPECT_EQ(calls("cublasLtMatmul"), products + 1) << "the default alone";
    EXPECT_TRUE(again.right());
    EXPECT_EQ(source->reasons.size(), 2u);
    options().refuse_at_check = options().refuse_at_run = {};
  }
}

TEST_F(CudaAlgorithmConfigs, APlaceThatIsRefusedWhenItRunsIsFollowedByTheDefault) {
  Context context(emulated());
  Product product(context, 64, 64, 256);
  GemmConfig config;
  config.engine = EngineId::cublaslt;
  config.algorithm = 2;  // place in the heuristic's ranking: the first with algorithm id 31
  options().refuse_at_run.id = 31;
  const auto source = tune(context, config);
  product.run();
  EXPECT_TRUE(product.right());
  EXPECT_EQ(source->reasons.size(), 1u);
  // A tuner's cache may name a place that this version of the library does not have.
  config.algorithm = 63;
  const auto other = tune(context, config);
  product.run();
  EXPECT_TRUE(product.right());
  EXPECT_TRUE(other->reasons.empty());
}

// b is packed for cuBLASLt, and the caller names that engine: the fallback is its own default
// algorithm.
TEST_F(CudaAlgorithmConfigs, ADemandedEngineFallsBackToItsOwnDefault) {
  Context context(emulated());
  Product product(context, 64, 64, 256, DType::f32);
  const GemmConfig config = chosen();
  options().refuse_at_run = pattern_of(*config.cublaslt.algorithm);
  PackedWeight packed;
  pack_weight(context, product.b.view(), packed, "cublaslt");
  const auto source = tune(context, config);
  EXPECT_EQ(
      kernels_of([&] { EXPECT_EQ(product.scaled("cublaslt", &packed), product.right_scaled); }),
      std::vector<std::string>{"epilogue"});
  EXPECT_EQ(source->reasons.size(), 1u);
}

TEST_F(CudaAlgorithmConfigs, TheWorkspaceIsNotExceeded) {
  Context context(emulated());
  Product product(context, 64, 64, 256);
  GemmConfig config;
  config.engine = EngineId::cublaslt;
  config.cublaslt.algorithm = CublasLtAlgorithm{};
  config.cublaslt.algorithm->id = 66;
  config.cublaslt.algorithm->tile = CUBLASLT_MATMUL_TILE_128x128;
  config.cublaslt.algorithm->stages = CUBLASLT_MATMUL_STAGES_128xAUTO;
  config.cublaslt.algorithm->cluster_shape = CUBLASLT_CLUSTER_SHAPE_1x2x1;
  for (const auto& [mib, bytes] : {std::pair{-1, "33554432"}, {0, "0"}, {32, "33554432"}}) {
    config.cublaslt.workspace_mib = mib;
    const std::string reason = product.refusal(config);
    EXPECT_TRUE(reason.ends_with(
        std::string("it needs 41943040 bytes of workspace; the limit is ") + bytes))
        << reason;
  }
  config.cublaslt.workspace_mib = 64;
  EXPECT_EQ(product.refusal(config), "");
  product.run(config);
  EXPECT_TRUE(product.right());
  EXPECT_GE(context.workspace_bytes(), std::size_t{40} << 20);

  // Without a workspace, cuBLASLt's first choice is the first algorithm that needs none.
  GemmConfig none;
  none.engine = EngineId::cublaslt;
  none.cublaslt.workspace_mib = 0;
  EXPECT_EQ(product.refusal(none), "");
  product.run(none);
  EXPECT_TRUE(product.right());
  GemmConfig same = chosen();
  same.cublaslt.algorithm->tile = CUBLASLT_MATMUL_TILE_256x128;
  same.cublaslt.algorithm->stages = CUBLASLT_MATMUL_STAGES_64x4;
  same.cublaslt.algorithm->custom = 0;
  EXPECT_EQ(product.provenance(none), product.provenance(same));
}

TEST_F(CudaAlgorithmConfigs, TheSecondCallPlansAndAllocatesNothing) {
  Context context(emulated());
  Product product(context, 33, 52, 144);
  tune(context, chosen());
  product.run();
  product.run();  // this second call takes one block where the first allocated several
  EXPECT_TRUE(product.right());
  const std::size_t products = calls("cublasLtMatmul");
  expect_no_calls_of(
      {"cublasLtMatmulAlgoInit", "cublasLtMatmulAlgoCheck", "cublasLtMatmulAlgoGetHeuristic",
       "cublasLtMatmulDescCreate", "cublasLtMatrixLayoutCreate",
       "cublasLtMatmulAlgoConfigSetAttribute", "cudaMalloc", "cudaMallocAsync"},
      [&] { product.run(); });
  EXPECT_EQ(calls("cublasLtMatmul"), products + 1);
  EXPECT_TRUE(product.right());
}

// Operands of a floating point product on the device, with all its options.
struct StandardProduct {
  StandardProduct(Context& context, DType input, bool accumulate_)
      : accumulate(accumulate_),
        a(context, normal_matrix<std::uint16_t>(40, 256, 1)),
        b(context, normal_matrix<std::uint16_t>(48, 256, 2)),
        old(normal_matrix<float>(40, 48, 3)),
        d(context, old) {
    problem.m = 40;
    problem.n = problem.ldd = 48;
    problem.k = problem.lda = problem.ldb = 256;
    problem.input = input;
    problem.output = DType::f32;
    problem.transpose_b = true;
    problem.accumulate = accumulate;
    problem.device = context.state().device.kind;
    problem.compute_capability = 90;
    run();
    want.emplace(d.download());
    d.upload(old);
  }
  void run() {
    StandardGemmArgs args;
    args.a = ConstAnyMatrix(a.data(), problem.input, 40, 256, 256);
    args.b = ConstAnyMatrix(b.data(), problem.input, 48, 256, 256);
    args.d = d.view();
    args.transpose_b = true;
    args.accumulate = accumulate;
    gemm_standard(a.context(), args);
  }
  void run(const floating::Config& config) {
    floating::run(a.context(), problem, config, {a.data(), b.data(), d.data(), {}});
  }
  bool right() {
    const bool is_right = d.download() == *want;
    d.upload(old);
    return is_right;
  }
  bool accumulate;
  floating::Problem problem;
  DeviceMatrix<std::uint16_t> a, b;
  Matrix<float> old;
  DeviceMatrix<float> d;
  std::optional<Matrix<float>> want;
};

// The stand-in adds in the same order for every algorithm, so even floats have the same bits.
TEST_F(CudaAlgorithmConfigs, EveryStandardCandidateIsRight) {
  Context context(emulated());
  for (const DType input : {DType::bf16, DType::f16})
    for (const bool accumulate : {false, true}) {
      StandardProduct product(context, input, accumulate);
      const auto all = floating::all_candidates(product.problem, context.state());
      EXPECT_GT(all.size(), 8u);
      EXPECT_EQ(all.front(), floating::default_config(product.problem, context.state()));
      std::set<std::string> seen;
      for (const floating::Config& config : all) {
        SCOPED_TRACE(describe(config));
        EXPECT_EQ(config.engine, floating::EngineId::cublaslt) << "tf32 is another product";
        EXPECT_EQ(floating::check_config(product.problem, config, context.state()), "");
        const std::string bytes = floating::provenance(product.problem, config, context.state());
        EXPECT_TRUE(seen.insert(bytes).second) << "the same algorithm twice";
        product.run(config);
        EXPECT_TRUE(product.right());
      }
    }
}

TEST_F(CudaAlgorithmConfigs, ARefusedStandardOneLeavesTheDefaultWhatItAddsTo) {
  for (const bool at_check : {true, false}) {
    Context context(emulated());
    StandardProduct product(context, DType::bf16, true);
    floating::Config config;
    config.engine = floating::EngineId::cublaslt;
    config.cublaslt = chosen().cublaslt;
    (at_check ? options().refuse_at_check : options().refuse_at_run) =
        pattern_of(*config.cublaslt.algorithm);
    const auto source =
        std::make_shared<Tuned>(ConfigOp::gemm_floating, floating::to_choice(config));
    context.set_config_source(source);
    for (std::size_t i = 1; i < 3; ++i) {
      product.run();
      EXPECT_TRUE(product.right());
      EXPECT_EQ(source->reasons.size(), i);
      EXPECT_NE(source->reasons.back().find(describe(*config.cublaslt.algorithm)),
                std::string::npos);
    }
    EXPECT_NE(message_of(Status::unsupported, [&] { product.run(config); }), "");
    options().refuse_at_check = options().refuse_at_run = {};
  }
}

TEST_F(CudaAlgorithmConfigs, Tf32TakesAnAlgorithmAndIsNoCandidate) {
  Context context(emulated());
  floating::Problem problem;
  problem.m = problem.n = problem.k = problem.lda = problem.ldb = problem.ldd = 64;
  problem.device = context.state().device.kind;
  problem.compute_capability = 90;
  floating::Config config;
  config.engine = floating::EngineId::cublaslt_tf32;
  config.cublaslt = chosen().cublaslt;
  EXPECT_EQ(floating::check_config(problem, config, context.state()), "");
  for (const floating::Config& candidate : floating::all_candidates(problem, context.state()))
    EXPECT_EQ(candidate.engine, floating::EngineId::cublaslt);
  problem.k = 0;
  EXPECT_EQ(floating::all_candidates(problem, context.state()).size(), 1u);
}

}  // namespace
}  // namespace switchback::test
