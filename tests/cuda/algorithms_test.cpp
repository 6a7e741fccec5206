// SPDX-License-Identifier: Apache-2.0
// Which algorithms of cuBLASLt are found for a product, and building an algorithm from its
// attributes.
#include <algorithm>
#include <set>

#include "cuda/cuda_support.hpp"
#include "gemm/cublaslt/cuda/algorithms.hpp"
#include "gemm/cublaslt/cuda/cublaslt.hpp"
#include "gemm/int8/candidates.hpp"

namespace switchback::test {
namespace {

namespace lt = products::cuda;
using switchback_cuda_emu::options;

constexpr std::int64_t mib = std::int64_t{1} << 20;

// Test fixture: an int8 product, a Context, and its cuBLASLt handle.
class CudaAlgorithms : public Cuda {
 protected:
  void SetUp() override {
    Cuda::SetUp();
    product.m = 128;
    product.n = 96;
    product.k = product.lda = product.ldb = 512;
    product.ldd = 128;
    product.align_a = product.align_b = product.align_d = 256;
  }
  void TearDown() override {
    context.reset();
    Cuda::TearDown();
  }
  cublasLtHandle_t handle() {
    if (!context.has_value()) context.emplace(emulated());
    return lt::Plans::of(core::cuda::runtime(context->state())).handle();
  }
  // The attributes of the algorithms that cuBLASLt ranks for a workspace of 64 MiB.
  std::vector<CublasLtAlgorithm> ranked() {
    product.most_workspace_bytes = 64 * mib;
    std::vector<CublasLtAlgorithm> all;
    for (const auto& result : lt::ranking(handle(), product, lt::Descriptors(product), 64))
      all.push_back(lt::attributes_of(result.algo).value());
    return all;
  }
  // Builds cuBLASLt's 64-byte form of an algorithm from its attributes, or gives the reason for a
  // refusal.
  lt::Built build(const CublasLtAlgorithm& algorithm) {
    return lt::build(handle(), product, lt::Descriptors(product), algorithm);
  }

  lt::Product product;
  std::optional<Context> context;
};

CublasLtAlgorithm large_workspace() {
  CublasLtAlgorithm algorithm;
  algorithm.id = 66;
  algorithm.tile = CUBLASLT_MATMUL_TILE_128x128;
  algorithm.stages = CUBLASLT_MATMUL_STAGES_128xAUTO;
  algorithm.cluster_shape = CUBLASLT_CLUSTER_SHAPE_1x2x1;
  return algorithm;
}

// No algorithm for 16-bit results may add parts that are already rounded to 16 bits. The test
// ResultsOf16BitsAreRoundedOnce compares how often a result is rounded.
TEST_F(CudaAlgorithms, OfResultsOf16BitsNoneAddsRoundedParts) {
  using Schemes = std::set<std::int64_t>;
  const auto schemes = [&] {
    Schemes of_all;
    for (const auto& one : lt::all_candidates(handle(), product))
      if (one.choice.algorithm.has_value()) of_all.insert(one.choice.algorithm->reduction);
    return of_all;
  };
  CublasLtAlgorithm split;
  split.id = 21;
  split.tile = CUBLASLT_MATMUL_TILE_64x64;
  split.stages = CUBLASLT_MATMUL_STAGES_64x3;
  split.split_k = 2;
  const auto refusal = [&](std::int64_t reduction) {
    split.reduction = reduction;
    return build(split).refusal;
  };
  const std::string rounds = ": its reduction adds partial sums that were rounded to 16 bits";
  for (const cudaDataType_t type : {CUDA_R_16F, CUDA_R_16BF}) {
    product.type_a = product.type_b = product.type_d = type;
    product.compute = CUBLAS_COMPUTE_32F;
    EXPECT_EQ(schemes(),
              (Schemes{CUBLASLT_REDUCTION_SCHEME_NONE, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE}));
    EXPECT_EQ(refusal(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE), "");
    EXPECT_TRUE(refusal(CUBLASLT_REDUCTION_SCHEME_INPLACE).ends_with(rounds));
    EXPECT_TRUE(refusal(CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE).ends_with(rounds));
    product.type_d = CUDA_R_32F;
    EXPECT_EQ(refusal(CUBLASLT_REDUCTION_SCHEME_INPLACE), "");
  }
}

TEST_F(CudaAlgorithms, WantTheAlignmentThereIs) {
  product.align_b = 4;
  const auto all = ranked();
  EXPECT_FALSE(all.empty());
  for (const auto& one : all)
    EXPECT_TRUE(one.id == 21 || one.id == 0) << describe(one);
  product.most_workspace_bytes = 32 * mib;
  CublasLtAlgorithm aligned = large_workspace();
  aligned.cluster_shape = 0;
  EXPECT_NE(build(aligned).refusal.find("B must be aligned to 16 bytes; it is aligned to 4"),
            std::string::npos)
      << build(aligned).refusal;
  product.align_b = 16;
  EXPECT_EQ(build(aligned).refusal, "");
}

TEST_F(CudaAlgorithms, BuiltFromItsAttributesOneIsWhatItWas) {
  product.most_workspace_bytes = 64 * mib;
  const auto ranked = lt::ranking(handle(), product, lt::Descriptors(product), 64);
  EXPECT_GT(ranked.size(), 8u);
  for (const auto& result : ranked) {
    const auto algorithm = lt::attributes_of(result.algo);
    ASSERT_TRUE(algorithm.has_value());
    const lt::Built built = build(*algorithm);
    EXPECT_EQ(built.refusal, "");
    EXPECT_TRUE(lt::same_bytes(built.result.algo, result.algo)) << describe(*algorithm);
    EXPECT_EQ(lt::to_hex(built.result.algo), lt::to_hex(result.algo));
    EXPECT_EQ(built.result.workspaceSize, result.workspaceSize);
  }
}

TEST_F(CudaAlgorithms, WhyOneCannotBeBuiltIsSaid) {
  const auto refusal = [&](auto&& change) {
    CublasLtAlgorithm algorithm = large_workspace();
    algorithm.cluster_shape = 0;
    change(algorithm);
    std::string text = build(algorithm).refusal;
    EXPECT_EQ(text.find("algorithm " + describe(algorithm) + ": "), 0u) << text;
    return text.substr(text.find(": ") + 2);
  };
  const std::string unsupported = "cublasLtMatmulAlgoCheck: CUBLAS_STATUS_NOT_SUPPORTED (15)";
  EXPECT_EQ(refusal([](auto& a) { a.id = 999; }),
            "cublasLtMatmulAlgoInit: CUBLAS_STATUS_INVALID_VALUE (7)");
  EXPECT_EQ(refusal([](auto& a) { a.tile = CUBLASLT_MATMUL_TILE_64x64; }), unsupported);
  EXPECT_EQ(refusal([](auto& a) { a.stages = 0; }), unsupported);
  EXPECT_EQ(refusal([](auto& a) { a.split_k = 2; }), unsupported);
  EXPECT_EQ(refusal([](auto& a) { a.reduction = 1; }), unsupported);
  EXPECT_EQ(refusal([](auto& a) { a.swizzle = 2; }), unsupported);
  EXPECT_EQ(refusal([](auto& a) { a.custom = 1; }), unsupported);
  EXPECT_EQ(refusal([](auto& a) { a.inner_shape = 4; }), unsupported);
  EXPECT_EQ(refusal([](auto& a) { a.cluster_shape = 4; }), unsupported);
  EXPECT_EQ(refusal([](auto& a) { a.custom = -1; }).find("custom = -1"), 0u);
  EXPECT_EQ(refusal([](auto& a) { a.cluster_shape = CUBLASLT_CLUSTER_SHAPE_1x2x1; }),
            "it needs 41943040 bytes of workspace; the limit is 33554432");
  EXPECT_EQ(build({}).refusal, "") << "the one without tiles";
  options().compute_capability = 80;
  EXPECT_EQ(refusal([](auto&) {}), "cublasLtMatmulAlgoCheck: CUBLAS_STATUS_ARCH_MISMATCH (8)");
  for (const auto& one : ranked())
    EXPECT_NE(one.id, large_workspace().id) << "of a later device";
}

// The 64 bytes of an algorithm belong to one version of cuBLASLt. Its attributes can be built into
// the form of the next version.
TEST_F(CudaAlgorithms, AttributesOutliveAVersion) {
  CublasLtAlgorithm algorithm = large_workspace();
  algorithm.cluster_shape = 0;
  const lt::Built before = build(algorithm);
  EXPECT_EQ(before.refusal, "");
  options().cublaslt_version += 100;
  EXPECT_FALSE(lt::attributes_of(before.result.algo).has_value());
  const lt::Built after = build(algorithm);
  EXPECT_EQ(after.refusal, "");
  EXPECT_FALSE(lt::same_bytes(before.result.algo, after.result.algo));
  EXPECT_EQ(lt::to_hex(after.result.algo).size(), 128u);
  EXPECT_EQ(lt::attributes_of(after.result.algo), algorithm);
}

TEST_F(CudaAlgorithms, CandidatesAreTheDefaultThenTheRanked) {
  const auto all = lt::all_candidates(handle(), product);
  EXPECT_EQ(all.front().place, 0);
  EXPECT_EQ(all.front().choice, CublasLtChoice{});
  // The candidates are the algorithms that cuBLASLt ranks for 64 MiB, each once; the first is the
  // default.
  product.most_workspace_bytes = 64 * mib;
  const auto ranked = lt::ranking(handle(), product, lt::Descriptors(product), 64);
  EXPECT_EQ(all.size(), ranked.size());
  std::set<CublasLtWords> seen = {pack(lt::attributes_of(ranked.front().algo))};
  std::set<std::int64_t> workspaces;
  for (auto i = all.begin() + 1; i != all.end(); ++i) {
    EXPECT_TRUE(seen.insert(pack(i->choice.algorithm)).second) << describe(i->choice);
    workspaces.insert(i->choice.workspace_mib);
    product.most_workspace_bytes = workspace_bytes(i->choice);
    const lt::Built built = build(*i->choice.algorithm);
    EXPECT_EQ(built.refusal, "");
    EXPECT_EQ(i->choice.workspace_mib, built.result.workspaceSize == 0                       ? 0
                                       : built.result.workspaceSize <= std::size_t{32} << 20 ? 32
                                                                                             : 64);
  }
  EXPECT_EQ(workspaces, (std::set<std::int64_t>{0, 32, 64}));
  // Usually the first of the ranking are enough.
  const auto few = lt::candidates(handle(), product);
  ASSERT_EQ(few.size(), lt::few_ranked);
  ASSERT_GT(all.size(), few.size());
  for (std::size_t i = 0; i < few.size(); ++i) {
    EXPECT_EQ(few[i].place, all[i].place);
    EXPECT_EQ(few[i].choice, all[i].choice);
  }
  product.align_a = product.align_b = product.align_d = 2;
  EXPECT_EQ(lt::all_candidates(handle(), product).size(), 1u) << "none is ranked";
  EXPECT_EQ(lt::candidates(handle(), product).size(), 1u);
}

// cuBLASLt may keep state in the 64 bytes of an algorithm that no attribute shows. Then the
// algorithm is identified by its position in the ranking.
TEST_F(CudaAlgorithms, WhatAttributesDoNotTellIsTakenByPlace) {
  options().hidden_attributes = true;
  const auto ranked = lt::ranking(handle(), product, lt::Descriptors(product), 64);
  const auto all = lt::all_candidates(handle(), product);
  for (std::size_t i = 0; i < ranked.size(); ++i) {
    EXPECT_EQ(all[i].place, static_cast<std::int64_t>(i));
    EXPECT_EQ(all[i].choice, CublasLtChoice{});
    EXPECT_FALSE(
        lt::same_bytes(build(*lt::attributes_of(ranked[i].algo)).result.algo, ranked[i].algo));
  }
  const auto& large = all[ranked.size()];
  EXPECT_EQ(large.place, static_cast<std::int64_t>(ranked.size()) - 1);
  EXPECT_EQ(large.choice.workspace_mib, 64) << "the one that needs more";
}

// cuBLASLt's functions are looked up once per process, so this test has its own process.
TEST_F(CudaAlgorithms, WithoutTheirFunctionsTheRankingIsLeft) {
  if (::testing::UnitTest::GetInstance()->test_to_run_count() != 1)
    GTEST_SKIP() << "another test needs the library whole";
  options().cublaslt_missing_function = "cublasLtMatmulAlgoInit";
  const std::string reason = "cuBLASLt was found, but lacks the function cublasLtMatmulAlgoInit";
  const lt::Descriptors descriptors(product);
  EXPECT_EQ(lt::CublasLt::missing(), "");
  EXPECT_EQ(lt::CublasLt::cannot_build(), reason);
  EXPECT_EQ(build(large_workspace()).refusal,
            "algorithm " + describe(large_workspace()) + ": " + reason);
  const auto ranked = lt::ranking(handle(), product, descriptors, 64);
  EXPECT_GT(ranked.size(), 8u);
  const auto all = lt::all_candidates(handle(), product);
  EXPECT_EQ(all.size(), ranked.size() + 1) << "and the one with 64 MiB";
  for (const auto& candidate : all)
    EXPECT_FALSE(candidate.choice.algorithm.has_value());

  ProductOnDevice multiplied(*context);
  multiplied.run("cublaslt");
  EXPECT_TRUE(multiplied.right());
}

}  // namespace
}  // namespace switchback::test
