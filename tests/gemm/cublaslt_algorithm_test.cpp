// SPDX-License-Identifier: Apache-2.0
// cuBLASLt's algorithms stored as numbers: reading gives what was stored, in builds with and
// without CUDA.

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

#include "gemm/cublaslt/choice.hpp"
#include "gemm/floating/engine.hpp"
#include "gemm/int8/candidates.hpp"
#include "support/contexts.hpp"
#include "support/generators.hpp"
#include "support/tuning.hpp"

namespace switchback::test {
namespace {

CublasLtAlgorithm random_algorithm(Random& random) {
  CublasLtAlgorithm algorithm;
  for (const CublasLtAttribute& a : cublaslt_attributes()) {
    // An attribute is zero, the largest value or a value in between.
    const std::int64_t dice = random.below(4);
    algorithm.*a.value = dice == 0 ? 0 : dice == 1 ? a.most : random.below(a.most + 1);
  }
  return algorithm;
}

void expect_round_trip(const CublasLtAlgorithm& algorithm) {
  SCOPED_TRACE(describe(algorithm));
  const CublasLtWords words = pack(algorithm);
  EXPECT_NE(words, (CublasLtWords{0, 0}));
  EXPECT_GE(words[0], 0);
  EXPECT_GE(words[1], 0);
  EXPECT_EQ(out_of_range(algorithm), "");
  std::optional<CublasLtAlgorithm> back;
  EXPECT_TRUE(unpack(words, back));
  EXPECT_EQ(back, algorithm);
}

TEST(CublasLtAlgorithm, WordsRoundTrip) {
  expect_round_trip({});
  CublasLtAlgorithm largest;
  // Sets each attribute alone, to see that no two attributes share a bit.
  for (const CublasLtAttribute& a : cublaslt_attributes()) {
    CublasLtAlgorithm one;
    one.*a.value = largest.*a.value = a.most;
    expect_round_trip(one);
  }
  expect_round_trip(largest);
  EXPECT_EQ(pack(std::nullopt), (CublasLtWords{0, 0}));
  std::optional<CublasLtAlgorithm> none = CublasLtAlgorithm{};
  EXPECT_TRUE(unpack({0, 0}, none));
  EXPECT_FALSE(none.has_value());
}

TEST(CublasLtAlgorithm, OutOfRangeIsNamedAndNotStored) {
  for (const CublasLtAttribute& a : cublaslt_attributes())
    for (const std::int64_t value :
         {a.most + 1, std::int64_t{-1}, std::numeric_limits<std::int64_t>::max(),
          std::numeric_limits<std::int64_t>::min()}) {
      CublasLtAlgorithm algorithm;
      algorithm.*a.value = value;
      EXPECT_EQ(out_of_range(algorithm).find(std::string(a.name) + " = "), 0u)
          << out_of_range(algorithm);
      EXPECT_EQ(pack(algorithm), (CublasLtWords{-1, -1}));
    }
}

// Any two words in a cache file give an algorithm that packs to the same words, or are refused.
TEST(CublasLtAlgorithm, AnyWordsAreUnderstoodOrRefused) {
  Random random(2);
  const auto word = [&] {
    const auto high = static_cast<std::uint64_t>(random.below(std::int64_t{1} << 32)) << 32;
    return static_cast<std::int64_t>(
        high | static_cast<std::uint64_t>(random.below(std::int64_t{1} << 32)));
  };
  int understood = 0;
  for (int i = 0; i < 4000; ++i) {
    const CublasLtWords words = {word(), word()};
    std::optional<CublasLtAlgorithm> found;
    if (!unpack(words, found)) {
      EXPECT_FALSE(found.has_value());
      continue;
    }
    ++understood;
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(pack(found), words);
  }
  EXPECT_GT(understood, 0);
  for (const CublasLtWords& words :
       {CublasLtWords{-1, -1}, CublasLtWords{0, 1}, CublasLtWords{1 << 16, 1}}) {
    std::optional<CublasLtAlgorithm> found;
    EXPECT_FALSE(unpack(words, found)) << words[0] << ' ' << words[1];
  }
}

TEST(CublasLtChoice, ConfigurationsOfBothProductsRoundTrip) {
  EXPECT_EQ(to_words({}), (CublasLtChoiceWords{0, 0, 0}));
  EXPECT_EQ(workspace_bytes({}), default_workspace_mib << 20);
  const Context context(cpu_options());
  Random random(3);
  for (int i = 0; i < 500; ++i) {
    CublasLtChoice choice;
    if (random.below(3) != 0) choice.algorithm = random_algorithm(random);
    choice.workspace_mib = random.below(66) - 1;
    SCOPED_TRACE(describe(choice));
    EXPECT_EQ(out_of_range(choice), "");
    EXPECT_EQ(from_words(to_words(choice)), choice);

    gemm_int8::GemmConfig int8{gemm_int8::EngineId::cublaslt, {}, 1, 2, 3, 4, random.below(64)};
    int8.cublaslt = choice;
    EXPECT_EQ(test::config_of(gemm_int8::to_choice(int8)), int8);
    EXPECT_FALSE(gemm_int8::needs_validation(gemm_int8::GemmProblem(), int8, context.state()));
    EXPECT_NE(gemm_int8::describe(int8).find(describe(choice)), std::string::npos);

    floating::Config config{floating::EngineId::cublaslt, false, random.below(64)};
    config.cublaslt = choice;
    floating::Config back;
    EXPECT_TRUE(floating::from_choice(floating::to_choice(config), back));
    EXPECT_EQ(back, config);
  }
}

TEST(CublasLtChoice, WhatNoVersionStoresIsRefused) {
  constexpr std::int64_t lowest = std::numeric_limits<std::int64_t>::min();
  constexpr std::int64_t highest = std::numeric_limits<std::int64_t>::max();
  const Context context(cpu_options());
  for (const CublasLtChoiceWords& words :
       {CublasLtChoiceWords{-1, -1, 0}, CublasLtChoiceWords{0, 0, -1},
        CublasLtChoiceWords{0, 0, lowest}, CublasLtChoiceWords{0, 0, highest}}) {
    EXPECT_NE(out_of_range(from_words(words)), "");
    ConfigChoice choice;
    choice.words = {static_cast<std::int64_t>(gemm_int8::EngineId::reference)};
    for (std::size_t i = 0; i < words.size(); ++i)
      choice.words[7 + i] = words[i];
    EXPECT_NE(
        gemm_int8::check_config(gemm_int8::GemmProblem(), test::config_of(choice), context.state()),
        "");
    choice.words = {static_cast<std::int64_t>(floating::EngineId::reference)};
    for (std::size_t i = 0; i < words.size(); ++i)
      choice.words[3 + i] = words[i];
    floating::Config config;
    EXPECT_FALSE(floating::from_choice(choice, config));
  }
}

TEST(CublasLtChoice, EnginesWithoutTheLibrarySayThatTheyHaveNone) {
  const Context context(cpu_options());
  gemm_int8::GemmProblem problem;
  problem.m = problem.n = problem.k = problem.stride_a = problem.stride_b = problem.stride_d = 1;
  gemm_int8::GemmConfig config;
  config.cublaslt.algorithm = CublasLtAlgorithm{};
  EXPECT_EQ(gemm_int8::check_config(problem, config, context.state()),
            "engine 'reference' does not support a cuBLASLt algorithm or workspace");
  EXPECT_EQ(gemm_int8::provenance(problem, {}, context.state()), "");
  config.cublaslt = {};
  config.algorithm = most_ranked_algorithms;
  EXPECT_EQ(gemm_int8::check_config(problem, config, context.state()),
            "algorithm=64; a ranking has at most 64 places");
  floating::Problem p;
  p.m = p.n = p.k = p.lda = p.ldb = p.ldd = 1;
  floating::Config standard_config;
  standard_config.cublaslt.workspace_mib = 0;
  EXPECT_EQ(floating::check_config(p, standard_config, context.state()),
            "engine 'reference' does not support a cuBLASLt algorithm or workspace");
  EXPECT_EQ(floating::provenance(p, {}, context.state()), "");
}

}  // namespace
}  // namespace switchback::test
