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
using switchback_cuda_emu::AlgoPattern;
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

// Operands of one int8 product on the device, to int32 or to f32 with scales, and its result from
// the CPU.
struct Product {
  Product(Context& context_, std::int64_t m, std::int64_t n, std::int64_t k,
          DType output = DType::s32)
      : context(context_), host_a(m, k), host_b(n, k), want(m, n), want_f32(m, n) {
    Random random(1);
    fill_codes(host_a, random);
    fill_codes(host_b, random);
    Context cpu(cpu_options());
    GemmS8S8S32Args args;
    args.a = host_a.view();
    args.b = host_b.view();
    args.d = want.view();
    gemm_s8s8s32(cpu, args);
    const Matrix<float> host_absmax_a = normal_matrix<float>(1, m, 2);
    const Matrix<float> host_absmax_b = normal_matrix<float>(1, n, 3);
    a.emplace(context, host_a);
    b.emplace(context, host_b);
    d.emplace(context, m, n);
    d_f32.emplace(context, m, n);
    absmax_a.emplace(context, host_absmax_a);
    absmax_b.emplace(context, host_absmax_b);
    problem.m = m;
    problem.n = problem.stride_d = n;
    problem.k = problem.stride_a = problem.stride_b = k;
    problem.output = output;
    if (output == DType::f32) {
      problem.scale = gemm_int8::ScaleMode::row_col;
      GemmConfig own;  // the kernel dp4a, which another suite shows to be exact
      own.engine = EngineId::dp4a;
      run(own);
      want_f32 = d_f32->download();
    }
  }

  void run(const GemmConfig& config) {
    gemm_int8::GemmOperands operands;
    operands.a = a->data();
    operands.b = b->data();
    operands.d = problem.output == DType::s32 ? static_cast<void*>(d->data()) : d_f32->data();
    operands.absmax_a = absmax_a->data();
    operands.absmax_b = absmax_b->data();
    gemm_int8::run(context, problem, config, operands);
  }
  // Calls the product through the public function gemm_s8s8s32.
  void call() {
    GemmS8S8S32Args args;
    args.a = a->view();
    args.b = b->view();
    args.d = d->view();
    gemm_s8s8s32(context, args);
  }
  bool right() {
    if (problem.output == DType::s32) {
      const bool is_right = d->download() == want;
      context.state().runtime->fill(d->data(), 0x55, want.rows() * want.cols() * sizeof(int));
      return is_right;
    }
    const bool is_right = d_f32->download() == want_f32;
    context.state().runtime->fill(d_f32->data(), 0x55, want.rows() * want.cols() * sizeof(float));
    return is_right;
  }
  std::vector<GemmConfig> candidates() const {
    return gemm_int8::all_candidates(problem, context.state());
  }
  std::string refusal(const GemmConfig& config) const {
    return gemm_int8::check_config(problem, config, context.state());
  }

  Context& context;
  gemm_int8::GemmProblem problem;
  Matrix<std::int8_t> host_a, host_b;
  Matrix<std::int32_t> want;
  Matrix<float> want_f32;
  std::optional<DeviceMatrix<std::int8_t>> a, b;
  std::optional<DeviceMatrix<std::int32_t>> d;
  std::optional<DeviceMatrix<float>> d_f32, absmax_a, absmax_b;
};

// Matches the stand-in's algorithm that a configuration names.
AlgoPattern pattern_of(const CublasLtAlgorithm& a) {
  return {a.id,      a.tile,   a.stages,      a.split_k,      a.reduction,
          a.swizzle, a.custom, a.inner_shape, a.cluster_shape};
}

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
      const auto needs_validation = [&](const GemmConfig& config) {
        return gemm_int8::needs_validation(product.problem, config, context.state());
      };
      EXPECT_TRUE(std::none_of(all.begin(), all.end(), needs_validation));
      for (auto i = all.begin(); i != all.end(); ++i) {
        SCOPED_TRACE(describe(product.problem) + " by " + describe(*i));
        EXPECT_EQ(product.refusal(*i), "");
        EXPECT_EQ(test::config_of(gemm_int8::to_choice(*i)), *i);
        EXPECT_EQ(std::find(i + 1, all.end(), *i), all.end());
        product.run(*i);
        EXPECT_TRUE(product.right());
      }
    }
}

TEST_F(CudaAlgorithmConfigs, PanelsAreTriedInPartsOfTheCache) {
  Context context(emulated());
  Product product(context, 3000, 1024, 16, DType::f32);
  std::set<std::int64_t> rows;
  for (const GemmConfig& config : product.candidates())
    if (config.engine == EngineId::cublaslt_panels) {
      EXPECT_EQ(config.cublaslt, CublasLtChoice{});
      EXPECT_FALSE(gemm_int8::needs_validation(product.problem, config, context.state()));
      rows.insert(config.mc);
    }
  // Panels of rows are sized by the L2 cache: its 4 MiB hold 1024 rows of 1024 sums.
  EXPECT_EQ(rows, (std::set<std::int64_t>{128, 256, 384, 512, 768, 1024}));
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
    pack_weight(context, product.b->view(), packed, gemm_int8::engine_name(packer));
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
      GemmArgs args;
      args.a = product.a->view();
      args.packed_b = &packed;
      args.d = product.d_f32->view();
      args.absmax_a = product.absmax_a->span();
      args.absmax_b = product.absmax_b->span();
      args.engine = gemm_int8::engine_name(reader);
      gemm(context, args);
      EXPECT_TRUE(product.right());
      // A tuner may also choose this engine for the packed b.
      args.engine = {};
      GemmConfig config;
      config.engine = reader;
      const auto source = tune(context, config);
      gemm(context, args);
      EXPECT_TRUE(product.right());
      EXPECT_TRUE(source->reasons.empty());
      context.set_config_source(nullptr);
    }
  }
}

TEST_F(CudaAlgorithmConfigs, CandidatesRunNothing) {
  Context context(emulated());
  Product product(context, 64, 64, 256);
  const std::size_t products = calls("cublasLtMatmul");
  const std::size_t launched = calls("launch");
  EXPECT_FALSE(product.candidates().empty());
  EXPECT_EQ(calls("cublasLtMatmul"), products);
  EXPECT_EQ(calls("launch"), launched);
  product.problem.m = 0;
  for (const GemmConfig& config : product.candidates())
    EXPECT_FALSE(config.cublaslt.algorithm.has_value());
}

TEST_F(CudaAlgorithmConfigs, ProvenanceIsTheLibrarysBytes) {
  Context context(emulated());
  Product product(context, 64, 64, 256);
  std::set<std::string> seen;
  std::size_t explicit_ones = 0;
  for (const GemmConfig& config : product.candidates()) {
    const std::string hex = gemm_int8::provenance(product.problem, config, context.state());
    if (config.engine == EngineId::dp4a) {
      EXPECT_EQ(hex, "");
      continue;
    }
    EXPECT_EQ(hex.size(), 128u);
    EXPECT_EQ(hex.find_first_not_of("0123456789abcdef"), std::string::npos);
    seen.insert(hex);
    ++explicit_ones;
  }
  EXPECT_EQ(seen.size(), explicit_ones) << "no two are the same algorithm";
  options().cublaslt_version += 1;
  Context other(emulated());
  EXPECT_EQ(seen.count(gemm_int8::provenance(product.problem, chosen(), other.state())), 0u);
}

TEST_F(CudaAlgorithmConfigs, RefusedAtTheCheckIsUnsupportedAndTheDefaultRuns) {
  Context context(emulated());
  Product product(context, 64, 64, 256);
  const GemmConfig config = chosen();
  EXPECT_EQ(product.refusal(config), "");
  options().refuse_at_check = pattern_of(*config.cublaslt.algorithm);
  Context fresh(emulated());
  Product again(fresh, 64, 64, 256);
  const std::string message = message_of(Status::unsupported, [&] { again.run(config); });
  EXPECT_EQ(message, "gemm: " + again.refusal(config));
  EXPECT_NE(message.find(describe(*config.cublaslt.algorithm)), std::string::npos) << message;
  EXPECT_NE(message.find("cublasLtMatmulAlgoCheck: CUBLAS_STATUS_NOT_SUPPORTED (15)"),
            std::string::npos)
      << message;

  const auto source = tune(fresh, config);
  again.call();
  EXPECT_TRUE(again.right());
  ASSERT_EQ(source->reasons.size(), 1u);
  EXPECT_EQ("gemm: " + source->reasons[0], message);
  for (const auto& launch : switchback_cuda_emu::launches())
    EXPECT_NE(launch.name, "dp4a") << "the default is the library's";
  // The context remembers the refusal, so it does not ask cuBLASLt again.
  const std::size_t checks = calls("cublasLtMatmulAlgoCheck");
  const std::size_t inits = calls("cublasLtMatmulAlgoInit");
  const std::size_t layouts = calls("cublasLtMatrixLayoutCreate");
  again.call();
  EXPECT_TRUE(again.right());
  EXPECT_EQ(source->reasons.size(), 2u);
  EXPECT_EQ(calls("cublasLtMatmulAlgoCheck"), checks);
  EXPECT_EQ(calls("cublasLtMatmulAlgoInit"), inits);
  EXPECT_EQ(calls("cublasLtMatrixLayoutCreate"), layouts);
}

TEST_F(CudaAlgorithmConfigs, RefusedWhenItRunsIsUnsupportedAndTheDefaultRuns) {
  Context context(emulated());
  const GemmConfig config = chosen();
  options().refuse_at_run = pattern_of(*config.cublaslt.algorithm);
  Product product(context, 64, 64, 256);
  EXPECT_EQ(product.refusal(config), "") << "nothing says so before it runs";
  const auto source = tune(context, config);
  product.call();
  EXPECT_TRUE(product.right());
  ASSERT_EQ(source->reasons.size(), 1u);
  EXPECT_NE(source->reasons[0].find("cublasLtMatmul of s8·s8"), std::string::npos);
  EXPECT_NE(source->reasons[0].find(describe(*config.cublaslt.algorithm)), std::string::npos);
  EXPECT_NE(source->reasons[0].find("CUBLAS_STATUS_NOT_SUPPORTED (15)"), std::string::npos);
  for (const auto& launch : switchback_cuda_emu::launches())
    EXPECT_NE(launch.name, "dp4a");
  // The context now knows that cuBLASLt refuses this algorithm.
  EXPECT_NE(product.refusal(config), "");
  const std::size_t products = calls("cublasLtMatmul");
  product.call();
  EXPECT_TRUE(product.right());
  EXPECT_EQ(calls("cublasLtMatmul"), products + 1) << "the default alone";
  EXPECT_NE(message_of(Status::unsupported, [&] { product.run(config); }), "");
}

TEST_F(CudaAlgorithmConfigs, APlaceThatIsRefusedWhenItRunsIsFollowedByTheDefault) {
  Context context(emulated());
  Product product(context, 64, 64, 256);
  GemmConfig config;
  config.engine = EngineId::cublaslt;
  config.algorithm = 2;  // place in the heuristic's ranking: the first with algorithm id 31
  options().refuse_algo = 31;
  const auto source = tune(context, config);
  product.call();
  EXPECT_TRUE(product.right());
  EXPECT_EQ(source->reasons.size(), 1u);
}

// b is packed for cuBLASLt, and the caller names that engine: the fallback is its own default
// algorithm.
TEST_F(CudaAlgorithmConfigs, ADemandedEngineFallsBackToItsOwnDefault) {
  Context context(emulated());
  Product product(context, 64, 64, 256);
  const GemmConfig config = chosen();
  options().refuse_at_run = pattern_of(*config.cublaslt.algorithm);
  PackedWeight packed;
  pack_weight(context, product.b->view(), packed, "cublaslt");
  const auto source = tune(context, config);
  GemmS8S8S32Args args;
  args.a = product.a->view();
  args.packed_b = &packed;
  args.d = product.d->view();
  args.engine = "cublaslt";
  gemm_s8s8s32(context, args);
  EXPECT_TRUE(product.right());
  EXPECT_EQ(source->reasons.size(), 1u);
  for (const auto& launch : switchback_cuda_emu::launches())
    EXPECT_NE(launch.name, "dp4a");
}

TEST_F(CudaAlgorithmConfigs, ACorruptOneIsWrongAlone) {
  Context context(emulated());
  Product product(context, 64, 64, 256);
  GemmConfig config = chosen();
  options().corrupt = pattern_of(*config.cublaslt.algorithm);
  product.run(config);
  EXPECT_FALSE(product.right());
  for (const GemmConfig& other : product.candidates())
    if (other.cublaslt.algorithm != config.cublaslt.algorithm) {
      product.run(other);
      EXPECT_TRUE(product.right()) << describe(other);
    }
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
    EXPECT_NE(
        reason.find(std::string("it needs 41943040 bytes of workspace; the limit is ") + bytes),
        std::string::npos)
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
  EXPECT_EQ(gemm_int8::provenance(product.problem, none, context.state()),
            gemm_int8::provenance(product.problem, same, context.state()));
}

TEST_F(CudaAlgorithmConfigs, TheSecondCallPlansAndAllocatesNothing) {
  Context context(emulated());
  Product product(context, 33, 52, 144);
  tune(context, chosen());
  product.call();
  product.call();  // this second call takes one block where the first allocated several
  EXPECT_TRUE(product.right());
  const char* const functions[] = {"cublasLtMatmulAlgoInit",
                                   "cublasLtMatmulAlgoCheck",
                                   "cublasLtMatmulAlgoGetHeuristic",
                                   "cublasLtMatmulDescCreate",
                                   "cublasLtMatrixLayoutCreate",
                                   "cudaMalloc",
                                   "cudaMallocAsync",
                                   "cublasLtMatmulAlgoConfigSetAttribute"};
  std::vector<std::size_t> before;
  for (const char* function : functions)
    before.push_back(calls(function));
  const std::size_t products = calls("cublasLtMatmul");
  for (int i = 0; i < 3; ++i)
    product.call();
  for (std::size_t i = 0; i < before.size(); ++i)
    EXPECT_EQ(calls(functions[i]), before[i]) << functions[i];
  EXPECT_EQ(calls("cublasLtMatmul"), products + 3);
  EXPECT_TRUE(product.right());
}

// A configuration stored with one version of cuBLASLt runs with the next version, after it has been
// checked again.
TEST_F(CudaAlgorithmConfigs, AnotherVersionBuildsItAgain) {
  const ConfigChoice stored = gemm_int8::to_choice(chosen());
  options().cublaslt_version += 100;
  Context context(emulated());
  Product product(context, 64, 64, 256);
  const auto source = std::make_shared<Tuned>(ConfigOp::gemm_int8, stored);
  context.set_config_source(source);
  product.call();
  EXPECT_TRUE(product.right());
  EXPECT_TRUE(source->reasons.empty());
}

// Operands of a floating point product on the device, with all its options.
struct StandardProduct {
  StandardProduct(Context& context_, DType input, bool accumulate_)
      : context(context_), accumulate(accumulate_) {
    problem.m = 40;
    problem.n = problem.ldd = 48;
    problem.k = problem.lda = problem.ldb = 256;
    problem.input = input;
    problem.output = DType::f32;
    problem.transpose_b = true;
    problem.accumulate = accumulate;
    problem.device = context.state().device.kind;
    problem.compute_capability = 90;
    a.emplace(context, normal_matrix<std::uint16_t>(40, 256, 1));
    b.emplace(context, normal_matrix<std::uint16_t>(48, 256, 2));
    old.emplace(context, normal_matrix<float>(40, 48, 3));
    d.emplace(context, 40, 48);
    reset();
    call();
    want.emplace(d->download());
    reset();
  }
  void reset() {
    context.state().runtime->copy(d->data(), 48 * 4, old->data(), 48 * 4, 48 * 4, 40);
  }
  void call() {
    StandardGemmArgs args;
    args.a = ConstAnyMatrix(a->data(), problem.input, 40, 256, 256);
    args.b = ConstAnyMatrix(b->data(), problem.input, 48, 256, 256);
    args.d = d->view();
    args.transpose_b = true;
    args.accumulate = accumulate;
    gemm_standard(context, args);
  }
  void run(const floating::Config& config) {
    floating::run(context, problem, config, {a->data(), b->data(), d->data(), {}});
  }
  bool right() {
    const bool is_right = d->download() == *want;
    reset();
    return is_right;
  }
  Context& context;
  bool accumulate;
  floating::Problem problem;
  std::optional<DeviceMatrix<std::uint16_t>> a, b;
  std::optional<DeviceMatrix<float>> old, d;
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
      for (auto i = all.begin(); i != all.end(); ++i) {
        SCOPED_TRACE(describe(*i));
        EXPECT_EQ(i->engine, floating::EngineId::cublaslt) << "tf32 is another product";
        EXPECT_EQ(std::find(i + 1, all.end(), *i), all.end());
        EXPECT_EQ(floating::check_config(product.problem, *i, context.state()), "");
        floating::Config back;
        EXPECT_TRUE(floating::from_choice(floating::to_choice(*i), back));
        EXPECT_EQ(back, *i);
        EXPECT_TRUE(seen.insert(floating::provenance(product.problem, *i, context.state())).second);
        product.run(*i);
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
      product.call();
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
