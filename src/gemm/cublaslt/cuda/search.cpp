// SPDX-License-Identifier: Apache-2.0
// This file looks for algorithms of one form of a product. Row-major d = a · bᵀ has only one useful
// form among cuBLASLt's int8 products: column-major dᵀ = b · aᵀ. It is TN, as cuBLASLt requires.
// With the operands exchanged it would be TN as well, but cuBLASLt would write d by columns. The
// dequantize kernel would then read the int32 sums across rows, which costs more than another tile
// shape could gain. A D in row order would avoid this, but is not documented for int8.
#include "gemm/cublaslt/cuda/search.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>

#include "gemm/cublaslt/cuda/build.hpp"

namespace switchback::products::cuda {

namespace {

constexpr std::array<std::int64_t, 3> workspaces_mib = {default_workspace_mib, 0, 64};

// The smallest of the tried workspaces that is large enough, in MiB.
std::int64_t workspace_mib_for(std::size_t bytes) {
  std::int64_t least = *std::max_element(workspaces_mib.begin(), workspaces_mib.end());
  for (const std::int64_t mib : workspaces_mib)
    if (bytes <= static_cast<std::size_t>(mib) << 20) least = std::min(least, mib);
  return least;
}

// Collects candidates from cuBLASLt's rankings for several workspaces, each algorithm once.
class Ranking {
 public:
  Ranking(cublasLtHandle_t handle, const Product& product, std::size_t most)
      : handle_(handle), product_(product), descriptors_(product), most_(most) {}

  void add(std::int64_t mib) {
    product_.most_workspace_bytes = mib << 20;
    const auto ranked =
        ranking(handle_, product_, descriptors_, static_cast<int>(most_ranked_algorithms));
    for (std::size_t place = 0; place < ranked.size() && candidates.size() < most_; ++place) {
      const cublasLtMatmulHeuristicResult_t& one = ranked[place];
      const auto is_same = [&](const auto& other) { return same_bytes(other, one.algo); };
      if (std::any_of(met_.begin(), met_.end(), is_same)) continue;
      met_.push_back(one.algo);
      // `candidates` already begins with the default
      if (mib == default_workspace_mib && place == 0) continue;
      Candidate candidate;
      candidate.choice.algorithm = described(one.algo);
      if (candidate.choice.algorithm.has_value()) {
        candidate.choice.workspace_mib = workspace_mib_for(one.workspaceSize);
      } else {
        candidate.place = static_cast<std::int64_t>(place);
        if (mib != default_workspace_mib) candidate.choice.workspace_mib = mib;
      }
      candidates.push_back(candidate);
    }
  }

  std::vector<Candidate> candidates = {{}};

 private:
  // The algorithm's attributes, if building it from them gives the same 64 bytes. Otherwise only
  // its position in the ranking identifies it.
  std::optional<CublasLtAlgorithm> described(const cublasLtMatmulAlgo_t& algo) const {
    const std::optional<CublasLtAlgorithm> algorithm = attributes_of(algo);
    if (!algorithm.has_value()) return std::nullopt;
    const Built built = build(handle_, product_, descriptors_, *algorithm);
    return built.refusal.empty() && same_bytes(built.result.algo, algo) ? algorithm : std::nullopt;
  }

  cublasLtHandle_t handle_;
  Product product_;
  Descriptors descriptors_;
  std::size_t most_;
  std::vector<cublasLtMatmulAlgo_t> met_;
};

}  // namespace

std::vector<Candidate> candidates(cublasLtHandle_t handle, const Product& product) {
  Ranking ranking(handle, product, few_ranked);
  ranking.add(default_workspace_mib);
  return std::move(ranking.candidates);
}

std::vector<Candidate> all_candidates(cublasLtHandle_t handle, const Product& product) {
  Ranking ranking(handle, product, std::numeric_limits<std::size_t>::max());
  for (const std::int64_t mib : workspaces_mib)
    ranking.add(mib);
  return std::move(ranking.candidates);
}

}  // namespace switchback::products::cuda
