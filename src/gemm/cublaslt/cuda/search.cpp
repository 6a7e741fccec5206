// SPDX-License-Identifier: Apache-2.0
// Row-major d = a · bᵀ has only one useful form in cuBLASLt's int8 products: column-major
// dᵀ = b · aᵀ, which is TN, as they require. With the operands exchanged, which is TN as well, the
// library would write d by columns, and the dequantize would have to read that int32 across rows,
// which costs more than another tile shape could gain. A D in row order, which would avoid that, is
// not documented for int8. So there is no second form to try.
#include "gemm/cublaslt/cuda/search.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <utility>

#include "gemm/cublaslt/cuda/build.hpp"

namespace switchback::products::SWITCHBACK_CUDA_NS {

namespace {

constexpr std::array<std::int64_t, 3> workspaces_mib = {usual_workspace_mib, 0, 64};

// The number of custom options to try: their meaning is not documented, and there can be many.
constexpr std::int64_t most_custom = 31;
// Variants of one algorithm, tile and stages. More of them would rarely win.
constexpr std::size_t most_variants = 512;
// The limit on checks for each algorithm that is wanted, so that a library which refuses nearly all
// of them does not keep the caller waiting for seconds.
constexpr std::size_t checks_per_algorithm = 32;
// Splitting K into pieces shorter than this never pays, because of the sum over the pieces.
constexpr std::int64_t shortest_piece = 64;

// The capabilities of an initialized algorithm, as attributes.
struct Family {
  std::int64_t id = 0;
  std::vector<std::int64_t> tiles;
  std::vector<std::int64_t> stages;
  std::vector<CublasLtAlgorithm> variants;  ///< all else; the first is the plain one
};

// The values of an attribute that occur in the library's ranking, best first. There is no
// capability to query for cluster shapes, so this is the only source for them.
struct Seen {
  std::vector<std::int64_t> ids, tiles, stages;
  std::set<std::int64_t> inner_shapes = {0};
  std::set<std::int64_t> cluster_shapes = {0};
};

// Moves the values that the library ranks to the front; the others keep their order.
void prefer(std::vector<std::int64_t>& values, const std::vector<std::int64_t>& ranked) {
  const auto place = [&](std::int64_t value) {
    return std::find(ranked.begin(), ranked.end(), value) - ranked.begin();
  };
  std::stable_sort(values.begin(), values.end(),
                   [&](std::int64_t x, std::int64_t y) { return place(x) < place(y); });
}

template <class Value>
Value capability(const cublasLtMatmulAlgo_t& algo, cublasLtMatmulAlgoCapAttributes_t which) {
  Value value{};
  const cublasStatus_t status =
      CublasLt::get().algo_capability(&algo, which, &value, sizeof value, nullptr);
  return status == CUBLAS_STATUS_SUCCESS ? value : Value{};
}

// A list of ids; for an algorithm without any, the single id "undefined".
std::vector<std::int64_t> capability_list(const cublasLtMatmulAlgo_t& algo,
                                          cublasLtMatmulAlgoCapAttributes_t which) {
  const CublasLt& lt = CublasLt::get();
  std::size_t bytes = 0;
  std::vector<std::uint32_t> ids;
  if (lt.algo_capability(&algo, which, nullptr, 0, &bytes) == CUBLAS_STATUS_SUCCESS &&
      bytes >= sizeof(std::uint32_t)) {
    ids.resize(bytes / sizeof(std::uint32_t));
    const cublasStatus_t status =
        lt.algo_capability(&algo, which, ids.data(), ids.size() * sizeof(std::uint32_t), &bytes);
    ids.resize(status == CUBLAS_STATUS_SUCCESS ? bytes / sizeof(std::uint32_t) : 0);
  }
  if (ids.empty()) ids.push_back(0);
  return {ids.begin(), ids.end()};
}

// Combinations of the other attributes. Each attribute has a list of values that starts with the
// plain one. Combinations are ordered by the sum of their places in the lists, and then by how
// likely the attributes in which they differ are to matter.
std::vector<CublasLtAlgorithm> variants_of(const cublasLtMatmulAlgo_t& algo, const Product& p,
                                           const Seen& seen) {
  struct Split {
    std::int64_t pieces, reduction;
  };
  std::vector<Split> splits = {{1, CUBLASLT_REDUCTION_SCHEME_NONE}};
  const auto schemes =
      capability<std::uint32_t>(algo, CUBLASLT_ALGO_CAP_REDUCTION_SCHEME_MASK) & p.reductions();
  if (capability<std::int32_t>(algo, CUBLASLT_ALGO_CAP_SPLITK_SUPPORT) != 0)
    for (const std::int64_t pieces : {2, 4, 3, 8, 6, 16, 12, 32})
      for (const std::uint32_t scheme :
           {CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, CUBLASLT_REDUCTION_SCHEME_INPLACE,
            CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE})
        if ((schemes & scheme) != 0 && pieces * shortest_piece <= p.k)
          splits.push_back({pieces, scheme});
  std::vector<std::int64_t> swizzles = {0};
  if (capability<std::uint32_t>(algo, CUBLASLT_ALGO_CAP_CTA_SWIZZLING_SUPPORT) != 0)
    swizzles.push_back(1);
  const std::int64_t last_custom = std::min<std::int64_t>(
      capability<std::int32_t>(algo, CUBLASLT_ALGO_CAP_CUSTOM_OPTION_MAX), most_custom);
  std::vector<std::int64_t> customs = {0};
  for (std::int64_t custom = 1; custom <= last_custom; ++custom)
    customs.push_back(custom);
  const std::vector<std::int64_t> inner(seen.inner_shapes.begin(), seen.inner_shapes.end());
  const std::vector<std::int64_t> clusters(seen.cluster_shapes.begin(), seen.cluster_shapes.end());

  std::vector<CublasLtAlgorithm> variants;
  const std::size_t largest_sum =
      splits.size() + swizzles.size() + customs.size() + inner.size() + clusters.size();
  for (std::size_t sum = 0; sum <= largest_sum; ++sum)
    for (std::size_t c = 0; c < std::min(customs.size(), sum + 1); ++c)
      for (std::size_t i = 0; i < std::min(inner.size(), sum - c + 1); ++i)
        for (std::size_t k = 0; k < std::min(splits.size(), sum - c - i + 1); ++k)
          for (std::size_t s = 0; s < std::min(swizzles.size(), sum - c - i - k + 1); ++s) {
            const std::size_t rest = sum - c - i - k - s;
            if (rest >= clusters.size()) continue;
            if (variants.size() == most_variants) return variants;
            CublasLtAlgorithm variant;
            variant.split_k = splits[k].pieces;
            variant.reduction = splits[k].reduction;
            variant.swizzle = swizzles[s];
            variant.cluster_shape = clusters[rest];
            variant.inner_shape = inner[i];
            variant.custom = customs[c];
            variants.push_back(variant);
          }
  return variants;
}

// A member of a family. Each step combines the tiles with other stages than the step before, so
// that a short walk covers all tiles and all stages.
CublasLtAlgorithm member(const Family& family, std::size_t tile, std::size_t step,
                         std::size_t variant) {
  CublasLtAlgorithm algorithm = family.variants[variant];
  algorithm.id = family.id;
  algorithm.tile = family.tiles[tile];
  algorithm.stages = family.stages[(tile + step) % family.stages.size()];
  return algorithm;
}

std::vector<std::int64_t> algorithm_ids(cublasLtHandle_t handle, const Product& p) {
  // More algorithms than any version has.
  std::vector<int> ids(1024);
  int count = 0;
  const cublasStatus_t status =
      CublasLt::get().algo_ids(handle, p.compute, p.scale_type(), p.type_a, p.type_b, p.type_d,
                               p.type_d, static_cast<int>(ids.size()), ids.data(), &count);
  if (status != CUBLAS_STATUS_SUCCESS) return {};
  ids.resize(static_cast<std::size_t>(count));
  return {ids.begin(), ids.end()};
}

// An algorithm that the library ranks, with its attributes.
struct Ranked {
  cublasLtMatmulAlgo_t algo;
  std::size_t workspace_bytes;
  std::optional<CublasLtAlgorithm> algorithm;
  bool rebuilds;  ///< from these attributes, byte for byte
};

class Search {
 public:
  Search(cublasLtHandle_t handle, const Product& product)
      : handle_(handle), product_(product), descriptors_(product) {}

  std::vector<Ranked> ranked(std::int64_t most_workspace_bytes) {
    product_.most_workspace_bytes = most_workspace_bytes;
    std::vector<Ranked> all;
    for (const auto& result :
         ranking(handle_, product_, descriptors_, static_cast<int>(most_ranked_algorithms))) {
      Ranked ranked{result.algo, result.workspaceSize, attributes_of(result.algo), false};
      if (ranked.algorithm.has_value()) {
        const Built built = build(handle_, product_, descriptors_, *ranked.algorithm);
        ranked.rebuilds = built.refusal.empty() && same_bytes(built.result.algo, result.algo);
      }
      all.push_back(ranked);
    }
    return all;
  }

  // Round r has the members whose places in the lists of tiles, stages and variants add up to r. So
  // all three change from the start, and every member has its round. The families take turns.
  std::vector<FoundAlgorithm> enumerated(std::size_t limit, std::int64_t most_workspace_bytes,
                                         const std::vector<CublasLtAlgorithm>& known) {
    std::vector<FoundAlgorithm> found;
    if (!CublasLt::cannot_build().empty()) return found;
    const std::vector<Family> families = families_for(most_workspace_bytes);
    std::size_t tiles = 0;
    std::size_t steps = 0;
    std::size_t variants = 0;
    for (const Family& family : families) {
      tiles = std::max(tiles, family.tiles.size());
      steps = std::max(steps, family.stages.size());
      variants = std::max(variants, family.variants.size());
    }
    std::set<CublasLtWords> met;
    for (const CublasLtAlgorithm& algorithm : known)
      met.insert(pack(algorithm));
    std::size_t checks = 0;
    for (std::size_t round = 0; round < tiles + steps + variants; ++round)
      for (std::size_t variant = 0; variant < std::min(round + 1, variants); ++variant)
        for (std::size_t step = 0; step < std::min(round - variant + 1, steps); ++step)
          for (const Family& family : families) {
            const std::size_t tile = round - variant - step;
            if (tile >= family.tiles.size() || step >= family.stages.size() ||
                variant >= family.variants.size())
              continue;
            if (found.size() == limit || checks == limit * checks_per_algorithm) return found;
            const CublasLtAlgorithm algorithm = member(family, tile, step, variant);
            if (!out_of_range(algorithm).empty() || !met.insert(pack(algorithm)).second) continue;
            ++checks;
            const Built built = build(handle_, product_, descriptors_, algorithm);
            if (built.refusal.empty()) found.push_back({algorithm, built.result.workspaceSize});
          }
    return found;
  }

 private:
  std::vector<Family> families_for(std::int64_t most_workspace_bytes) {
    Seen seen;
    for (const Ranked& one : ranked(most_workspace_bytes))
      if (one.algorithm.has_value()) {
        seen.ids.push_back(one.algorithm->id);
        seen.tiles.push_back(one.algorithm->tile);
        seen.stages.push_back(one.algorithm->stages);
        seen.inner_shapes.insert(one.algorithm->inner_shape);
        seen.cluster_shapes.insert(one.algorithm->cluster_shape);
      }
    std::vector<std::int64_t> ids = algorithm_ids(handle_, product_);
    prefer(ids, seen.ids);
    std::vector<Family> families;
    for (const std::int64_t id : ids) {
      cublasLtMatmulAlgo_t algo{};
      const Product& p = product_;
      const cublasStatus_t status =
          CublasLt::get().algo_init(handle_, p.compute, p.scale_type(), p.type_a, p.type_b,
                                    p.type_d, p.type_d, static_cast<int>(id), &algo);
      if (status != CUBLAS_STATUS_SUCCESS) continue;
      Family& family = families.emplace_back();
      family.id = id;
      family.tiles = capability_list(algo, CUBLASLT_ALGO_CAP_TILE_IDS);
      family.stages = capability_list(algo, CUBLASLT_ALGO_CAP_STAGES_IDS);
      family.variants = variants_of(algo, p, seen);
      prefer(family.tiles, seen.tiles);
      prefer(family.stages, seen.stages);
    }
    return families;
  }

  cublasLtHandle_t handle_;
  Product product_;
  Descriptors descriptors_;
};

// The smallest of the tried workspaces that is large enough.
std::int64_t workspace_mib_for(std::size_t bytes) {
  std::int64_t least = *std::max_element(workspaces_mib.begin(), workspaces_mib.end());
  for (const std::int64_t mib : workspaces_mib)
    if (bytes <= static_cast<std::size_t>(mib) << 20) least = std::min(least, mib);
  return least;
}

// Candidates from the library's rankings, each algorithm once.
class Ranking {
 public:
  Ranking(Search& search, std::size_t most) : search_(search), most_(most) {}

  void add(std::int64_t mib) {
    const std::vector<Ranked> ranked = search_.ranked(mib << 20);
    for (std::size_t place = 0; place < ranked.size() && candidates.size() < most_; ++place) {
      const Ranked& one = ranked[place];
      const auto is_same = [&](const auto& other) { return same_bytes(other, one.algo); };
      if (std::any_of(met_.begin(), met_.end(), is_same)) continue;
      met_.push_back(one.algo);
      if (one.rebuilds) known.push_back(*one.algorithm);
      if (mib == usual_workspace_mib && place == 0) continue;  // the default, which is there
      Candidate candidate;
      // If the attributes do not describe it completely, its place in the ranking identifies it.
      if (one.rebuilds) {
        candidate.choice.algorithm = one.algorithm;
        candidate.choice.workspace_mib = workspace_mib_for(one.workspace_bytes);
      } else {
        candidate.place = static_cast<std::int64_t>(place);
        if (mib != usual_workspace_mib) candidate.choice.workspace_mib = mib;
      }
      candidates.push_back(candidate);
    }
  }

  std::vector<Candidate> candidates = {{}};
  std::vector<CublasLtAlgorithm> known;

 private:
  Search& search_;
  std::size_t most_;
  std::vector<cublasLtMatmulAlgo_t> met_;
};

}  // namespace

std::vector<FoundAlgorithm> enumerate(cublasLtHandle_t handle, const Product& product,
                                      std::size_t limit, std::int64_t most_workspace_bytes) {
  return Search(handle, product).enumerated(limit, most_workspace_bytes, {});
}

std::vector<Candidate> candidates(cublasLtHandle_t handle, const Product& product) {
  Search search(handle, product);
  Ranking ranking(search, few_ranked);
  ranking.add(usual_workspace_mib);
  return std::move(ranking.candidates);
}

std::vector<Candidate> all_candidates(cublasLtHandle_t handle, const Product& product,
                                      std::size_t most_enumerated) {
  Search search(handle, product);
  Ranking ranking(search, std::numeric_limits<std::size_t>::max());
  for (const std::int64_t mib : workspaces_mib)
    ranking.add(mib);
  std::vector<Candidate> all = std::move(ranking.candidates);
  for (const FoundAlgorithm& found :
       search.enumerated(most_enumerated, workspaces_mib.back() << 20, ranking.known)) {
    Candidate candidate;
    candidate.choice.algorithm = found.algorithm;
    candidate.choice.workspace_mib = workspace_mib_for(found.workspace_bytes);
    candidate.choice.unranked = true;
    all.push_back(candidate);
  }
  return all;
}

}  // namespace switchback::products::SWITCHBACK_CUDA_NS
