// SPDX-License-Identifier: Apache-2.0
#include "gemm/cublaslt/cuda/algorithms.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

namespace switchback::products::cuda {

namespace {

// Owns a cuBLASLt preference (limits for the ranking of algorithms), and destroys it.
struct Preference {
  explicit Preference(const Product& product) {
    check(CublasLt::get().preference_create(&handle), "cublasLtMatmulPreferenceCreate", product);
  }
  ~Preference() { (void)CublasLt::get().preference_destroy(handle); }
  Preference(const Preference&) = delete;
  Preference& operator=(const Preference&) = delete;
  template <class Value>
  void set(cublasLtMatmulPreferenceAttributes_t what, Value value, const Product& product) {
    check(CublasLt::get().preference_set(handle, what, &value, sizeof value),
          "cublasLtMatmulPreferenceSetAttribute", product);
  }
  cublasLtMatmulPreference_t handle = nullptr;
};

// An attribute in the library's terms: its number, the size of its value in bytes, and the value
// that cublasLtMatmulAlgoInit() gives it.
struct Attribute {
  cublasLtMatmulAlgoConfigAttributes_t id;
  std::size_t bytes;
  std::int64_t initial;
  std::int64_t CublasLtAlgorithm::*value;
};

constexpr std::array<Attribute, 8> settable = {{
    {CUBLASLT_ALGO_CONFIG_TILE_ID, 4, 0, &CublasLtAlgorithm::tile},
    {CUBLASLT_ALGO_CONFIG_STAGES_ID, 4, 0, &CublasLtAlgorithm::stages},
    {CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 4, 1, &CublasLtAlgorithm::split_k},
    {CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, 4, 0, &CublasLtAlgorithm::reduction},
    {CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, 4, 0, &CublasLtAlgorithm::swizzle},
    {CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, 4, 0, &CublasLtAlgorithm::custom},
    {CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, 2, 0, &CublasLtAlgorithm::inner_shape},
    {CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, 2, 0, &CublasLtAlgorithm::cluster_shape},
}};

// Which operand's pointer is not aligned as the algorithm requires; empty if all are. cuBLASLt's
// own check does not see pointers. A requirement that this version of cuBLASLt cannot report is
// ignored.
std::string misalignment(const Product& p, const cublasLtMatmulAlgo_t& algo) {
  struct Operand {
    cublasLtMatmulAlgoCapAttributes_t capability;
    char name;
    std::uint32_t alignment;
  };
  const std::array<Operand, 4> operands = {{
      {CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_A_BYTES, 'A', p.align_a},
      {CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_B_BYTES, 'B', p.align_b},
      {CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_C_BYTES, 'C', p.align_d},
      {CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_D_BYTES, 'D', p.align_d},
  }};
  for (const Operand& operand : operands) {
    std::uint32_t wanted = 0;
    const cublasStatus_t status =
        CublasLt::get().algo_capability(&algo, operand.capability, &wanted, sizeof wanted, nullptr);
    if (status == CUBLAS_STATUS_SUCCESS && wanted > operand.alignment)
      return fmt::format("{} must be aligned to {} bytes; it is aligned to {}", operand.name,
                         wanted, operand.alignment);
  }
  return {};
}

}  // namespace

std::vector<cublasLtMatmulHeuristicResult_t> ranking(cublasLtHandle_t handle, const Product& p,
                                                     const Descriptors& descriptors, int most) {
  Preference preference(p);
  preference.set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                 static_cast<std::size_t>(p.most_workspace_bytes), p);
  preference.set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, p.reductions(), p);
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, p.align_a, p);
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, p.align_b, p);
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, p.align_d, p);
  preference.set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, p.align_d, p);
  std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<std::size_t>(most));
  int count = 0;
  const cublasStatus_t status = CublasLt::get().heuristic(
      handle, descriptors.matmul, descriptors.a, descriptors.b, descriptors.d, descriptors.d,
      preference.handle, most, results.data(), &count);
  // cuBLASLt returns NOT_SUPPORTED if it found no algorithm.
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return {};
  check(status, "cublasLtMatmulAlgoGetHeuristic", p);
  results.resize(static_cast<std::size_t>(count));
  std::erase_if(results, [](const auto& result) { return result.state != CUBLAS_STATUS_SUCCESS; });
  return results;
}

Built build(cublasLtHandle_t handle, const Product& p, const Descriptors& descriptors,
            const CublasLtAlgorithm& algorithm) {
  const CublasLt& lt = CublasLt::get();
  Built built;
  const auto refused = [&](const std::string& why) {
    built.refusal = fmt::format("algorithm {}: {}", describe(algorithm), why);
    return built;
  };
  if (!CublasLt::cannot_build().empty()) return refused(CublasLt::cannot_build());
  if (const std::string reason = out_of_range(algorithm); !reason.empty()) return refused(reason);
  if ((algorithm.reduction & ~static_cast<std::int64_t>(p.reductions())) != 0)
    return refused("its reduction adds partial sums that were rounded to 16 bits");
  cublasLtMatmulAlgo_t& algo = built.result.algo;
  cublasStatus_t status = lt.algo_init(handle, p.compute, p.scale_type(), p.type_a, p.type_b,
                                       p.type_d, p.type_d, static_cast<int>(algorithm.id), &algo);
  if (status != CUBLAS_STATUS_SUCCESS)
    return refused("cublasLtMatmulAlgoInit: " + status_text(status));
  for (const Attribute& attribute : settable) {
    const std::int64_t value = algorithm.*attribute.value;
    // An attribute with its initial value is not set: an older cuBLASLt may not know the attribute.
    if (value == attribute.initial) continue;
    const auto wide = static_cast<std::uint32_t>(value);
    const auto narrow = static_cast<std::uint16_t>(value);
    const void* const from = attribute.bytes == 2 ? static_cast<const void*>(&narrow) : &wide;
    status = lt.algo_set(&algo, attribute.id, from, attribute.bytes);
    if (status != CUBLAS_STATUS_SUCCESS)
      return refused(fmt::format("cublasLtMatmulAlgoConfigSetAttribute {}: {}",
                                 static_cast<int>(attribute.id), status_text(status)));
  }
  cublasLtMatmulHeuristicResult_t checked{};
  status = lt.algo_check(handle, descriptors.matmul, descriptors.a, descriptors.b, descriptors.d,
                         descriptors.d, &algo, &checked);
  if (status == CUBLAS_STATUS_SUCCESS) status = checked.state;
  if (status != CUBLAS_STATUS_SUCCESS)
    return refused("cublasLtMatmulAlgoCheck: " + status_text(status));
  built.result.workspaceSize = checked.workspaceSize;
  built.result.wavesCount = checked.wavesCount;
  if (checked.workspaceSize > static_cast<std::size_t>(p.most_workspace_bytes))
    return refused(fmt::format("it needs {} bytes of workspace; the limit is {}",
                               checked.workspaceSize, p.most_workspace_bytes));
  if (const std::string reason = misalignment(p, algo); !reason.empty()) return refused(reason);
  return built;
}

std::optional<CublasLtAlgorithm> attributes_of(const cublasLtMatmulAlgo_t& algo) {
  const CublasLt& lt = CublasLt::get();
  if (!CublasLt::cannot_build().empty()) return std::nullopt;
  CublasLtAlgorithm algorithm;
  std::int32_t id = 0;
  if (lt.algo_get(&algo, CUBLASLT_ALGO_CONFIG_ID, &id, sizeof id, nullptr) != CUBLAS_STATUS_SUCCESS)
    return std::nullopt;
  algorithm.id = id;
  for (const Attribute& attribute : settable) {
    std::uint32_t wide = 0;
    std::uint16_t narrow = 0;
    void* const to = attribute.bytes == 2 ? static_cast<void*>(&narrow) : &wide;
    if (lt.algo_get(&algo, attribute.id, to, attribute.bytes, nullptr) != CUBLAS_STATUS_SUCCESS) {
      // The attributes of two bytes (inner and cluster shape) came with CUDA 11 and Hopper. A
      // cuBLASLt that does not know them does not use them.
      if (attribute.bytes == 2) continue;
      return std::nullopt;
    }
    algorithm.*attribute.value = attribute.bytes == 2 ? narrow : wide;
  }
  if (!out_of_range(algorithm).empty()) return std::nullopt;
  return algorithm;
}

std::string to_hex(const cublasLtMatmulAlgo_t& algo) {
  std::array<unsigned char, sizeof algo.data> bytes{};
  std::memcpy(bytes.data(), algo.data, bytes.size());
  std::string text;
  for (const unsigned char byte : bytes)
    text += fmt::format("{:02x}", byte);
  return text;
}

bool same_bytes(const cublasLtMatmulAlgo_t& x, const cublasLtMatmulAlgo_t& y) noexcept {
  return std::memcmp(x.data, y.data, sizeof x.data) == 0;
}

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
