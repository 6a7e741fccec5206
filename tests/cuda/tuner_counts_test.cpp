// SPDX-License-Identifier: Apache-2.0
// Counts on which the time of tuning depends: the problems of one layer shape on a device, and the
// candidates of each problem.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "autotune/entry/candidate.hpp"
#include "autotune/entry/key.hpp"
#include "autotune/layer_queries.hpp"
#include "autotune/trials.hpp"
#include "cuda/cuda_support.hpp"
#include "gemm/cublaslt/cuda/search.hpp"

namespace switchback::test {
namespace {

using autotune::Problems;
using autotune::Trial;
using products::cuda::few_ranked;

class CudaTunerCounts : public Cuda {
 protected:
  static std::vector<ConfigQuery> list(Context& context, bool bias, Problems problems) {
    return autotune::layer_queries(context, {160, 512, 768, DType::bf16, bias}, problems);
  }
  // The number of candidates of the engine cublaslt: named algorithms, and cuBLASLt's own choice.
  static std::size_t of_library(const ConfigQuery& query, const std::vector<ConfigChoice>& among) {
    return static_cast<std::size_t>(
        std::count_if(among.begin(), among.end(), [&](const ConfigChoice& choice) {
          return autotune::to_text(query.op, choice).engine == "cublaslt";
        }));
  }
};

TEST_F(CudaTunerCounts, OneShapeHasFewProblems) {
  Context context(emulated());
  EXPECT_EQ(list(context, false, Problems::layers).size(), 20u);
  EXPECT_EQ(list(context, true, Problems::layers).size(), 23u);
  EXPECT_EQ(list(context, false, Problems::all).size(), 28u);
  EXPECT_EQ(list(context, true, Problems::all).size(), 38u);
}

TEST_F(CudaTunerCounts, AProblemHasFewAlgorithmsUnlessAllAreAskedFor) {
  Context context(emulated());
  std::size_t products = 0;
  std::size_t in_all = 0;
  for (const ConfigQuery& query : list(context, true, Problems::layers)) {
    const std::unique_ptr<Trial> trial = autotune::make_trial(context, query);
    const std::vector<ConfigChoice> some = trial->candidates();
    const std::vector<ConfigChoice> all = trial->all_candidates();
    EXPECT_EQ(some.front(), all.front()) << autotune::describe(query);
    for (const ConfigChoice& choice : some) {
      EXPECT_NE(std::find(all.begin(), all.end(), choice), all.end()) << autotune::describe(query);
      // A committed record shows that every kernel for 9.0 gave right results.
      EXPECT_FALSE(trial->needs_validation(choice)) << autotune::describe(query);
    }
    in_all += some.size();
    if (of_library(query, some) == 0) continue;
    ++products;
    EXPECT_LE(of_library(query, some), few_ranked) << autotune::describe(query);
    EXPECT_GT(of_library(query, all), few_ranked) << autotune::describe(query);
  }
  EXPECT_EQ(products, 5u);  // forward and dX, each with scales of rows or one scale, and dW
  EXPECT_LE(in_all, 125u);
}

}  // namespace
}  // namespace switchback::test
