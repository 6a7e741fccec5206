// SPDX-License-Identifier: Apache-2.0
// cuBLASLt stand-in: a small family of algorithms that callers enumerate, configure and check, and
// from which the heuristic chooses.
#include <algorithm>
#include <cstring>

#include "lt_state.hpp"
#include "state.hpp"

namespace switchback_cuda_emu {

namespace {

// The mark of algorithms that belong to this version of the library.
std::uint32_t magic() {
  return 0x53424c54u ^ static_cast<std::uint32_t>(options().cublaslt_version);
}

// The stand-in's algorithms, best first. Together they use every attribute. They need from 4 to 16
// bytes of alignment (for int8), and workspaces from none to more than the usual 32 MiB.
const std::vector<LtAlgoFamily>& families() {
  static const auto* const all = new std::vector<LtAlgoFamily>{
      {66,
       {CUBLASLT_MATMUL_TILE_128x256, CUBLASLT_MATMUL_TILE_128x128},
       {CUBLASLT_MATMUL_STAGES_128xAUTO},
       0,
       true,
       0,
       {},
       {CUBLASLT_CLUSTER_SHAPE_2x1x1, CUBLASLT_CLUSTER_SHAPE_1x2x1},
       16,
       4096,
       90},
      {31,
       {CUBLASLT_MATMUL_TILE_256x128, CUBLASLT_MATMUL_TILE_128x256, CUBLASLT_MATMUL_TILE_128x128},
       {CUBLASLT_MATMUL_STAGES_64x4, CUBLASLT_MATMUL_STAGES_128x3},
       0,
       true,
       2,
       {},
       {},
       16,
       0,
       75},
      {21,
       {CUBLASLT_MATMUL_TILE_128x128, CUBLASLT_MATMUL_TILE_64x64},
       {CUBLASLT_MATMUL_STAGES_64x3},
       CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE | CUBLASLT_REDUCTION_SCHEME_INPLACE,
       false,
       0,
       {CUBLASLT_MATMUL_INNER_SHAPE_MMA16816},
       {},
       4,
       0,
       75},
      {0, {}, {}, 0, false, 0, {}, {}, 4, 0, 75},
  };
  return *all;
}

const LtAlgoFamily* find_family(int id) {
  for (const LtAlgoFamily& family : families())
    if (family.id == id) return &family;
  return nullptr;
}

bool runs_here(const LtAlgoFamily& family) {
  return options().compute_capability >= family.min_compute_capability;
}

// An algorithm without a list of tile or stage ids supports only id 0 (undefined). For shapes, 0 is
// always valid.
template <class Id>
bool contains(const std::vector<Id>& values, std::uint32_t value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}
bool has_id(const std::vector<std::uint32_t>& values, std::uint32_t value) {
  return values.empty() ? value == 0 : contains(values, value);
}
bool has_shape(const std::vector<std::uint16_t>& values, std::uint32_t value) {
  return value == 0 || contains(values, value);
}

// The schemes by which the parts of a split K can be added up. For 16-bit results, adding in the
// output's type is one more scheme.
std::uint32_t reductions_of(const LtAlgoFamily& family, std::uint32_t type_d) {
  const bool of_16_bits = type_d == CUDA_R_16F || type_d == CUDA_R_16BF;
  return family.reductions == 0 || !of_16_bits
             ? family.reductions
             : family.reductions | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
}

// The workspace of an algorithm with a cluster of 1x2: more than 32 MiB, less than 64.
constexpr std::size_t large_workspace_bytes = std::size_t{40} << 20;

// The alignment in bytes that an algorithm needs. One that needs 4 for int8 needs only 2 for other
// types.
std::uint32_t needed_alignment(const LtAlgoFamily& family, bool int8) {
  return int8 ? family.alignment : std::max(2u, family.alignment > 4 ? family.alignment : 2u);
}

LtAlgo fresh_algo(int id, const LtProblem& p) {
  LtAlgo algo{};
  algo.magic = magic();
  algo.id = id;
  algo.split_k = 1;
  const std::uint32_t types[] = {static_cast<std::uint32_t>(p.desc.compute),
                                 static_cast<std::uint32_t>(p.desc.scale),
                                 p.a.type,
                                 p.b.type,
                                 p.c.type,
                                 p.d.type};
  for (int i = 0; i < 6; ++i)
    algo.types[i] = static_cast<std::uint8_t>(types[i]);
  return algo;
}

cublasLtMatmulAlgo_t pack(const LtAlgo& algo) {
  cublasLtMatmulAlgo_t packed{};
  std::memcpy(&packed, &algo, sizeof algo);
  return packed;
}

struct Candidate {
  LtAlgo algo;
  std::size_t workspace;
};

// The algorithms that the heuristic proposes, best first.
std::vector<Candidate> candidates(const LtProblem& p, const std::uint32_t alignment[4],
                                  std::size_t workspace_bytes, std::uint32_t reduction_mask) {
  std::vector<Candidate> result;
  const auto propose = [&](const LtAlgo& algo) {
    std::size_t workspace = 0;
    std::uint32_t needed = 0;
    if (check_algo(p, algo, &workspace, &needed) != CUBLAS_STATUS_SUCCESS) return;
    if (workspace > workspace_bytes) return;
    if (std::any_of(alignment, alignment + 4,
                    [needed](std::uint32_t promised) { return promised < needed; }))
      return;
    result.push_back({algo, workspace});
    result.back().algo.hidden = options().hidden_attributes ? 1 : 0;
  };
  for (const LtAlgoFamily& family : families()) {
    if (!runs_here(family)) continue;
    std::vector<std::uint32_t> tiles = family.tiles;
    if (tiles.empty()) tiles.push_back(CUBLASLT_MATMUL_TILE_UNDEFINED);
    for (const std::uint32_t tile : tiles) {
      LtAlgo algo = fresh_algo(family.id, p);
      algo.tile = tile;
      algo.stages = family.stages.empty() ? 0u : family.stages.front();
      const auto propose_split = [&](cublasLtReductionScheme_t scheme) {
        if (p.k < 256 || (reductions_of(family, p.d.type) & reduction_mask & scheme) == 0) return;
        LtAlgo split = algo;
        split.split_k = 2;
        split.reduction = scheme;
        propose(split);
      };
      // As cuBLASLt itself does at odd shapes: for 16-bit results, algorithms that round the parts
      // of a split K come first.
      propose_split(CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE);
      if (p.rounds_to_16_bits()) propose_split(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
      propose(algo);
      if (!p.rounds_to_16_bits()) propose_split(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
    }
  }
  // Algorithms with other cluster or inner shapes come last, because they are seldom the best.
  for (const LtAlgoFamily& family : families()) {
    if (!runs_here(family)) continue;
    LtAlgo algo = fresh_algo(family.id, p);
    algo.tile = family.tiles.empty() ? 0u : family.tiles.front();
    algo.stages = family.stages.empty() ? 0u : family.stages.front();
    for (const std::uint16_t shape : family.cluster_shapes) {
      algo.cluster_shape = shape;
      propose(algo);
    }
    algo.cluster_shape = 0;
    for (const std::uint16_t shape : family.inner_shapes) {
      algo.inner_shape = shape;
      propose(algo);
    }
  }
  return result;
}

float waves(const LtProblem& p) {
  return static_cast<float>((p.m + 127) / 128 * ((p.n + 127) / 128)) /
         static_cast<float>(options().multiprocessor_count);
}

struct ConfigMember {
  void* at = nullptr;
  std::size_t bytes = 0;
  bool constant = false;
};

ConfigMember find(LtAlgo& algo, cublasLtMatmulAlgoConfigAttributes_t attribute) {
  switch (attribute) {
    case CUBLASLT_ALGO_CONFIG_ID:
      return {&algo.id, 4, true};
    case CUBLASLT_ALGO_CONFIG_TILE_ID:
      return {&algo.tile, 4};
    case CUBLASLT_ALGO_CONFIG_SPLITK_NUM:
      return {&algo.split_k, 4};
    case CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME:
      return {&algo.reduction, 4};
    case CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING:
      return {&algo.swizzling, 4};
    case CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION:
      return {&algo.custom, 4};
    case CUBLASLT_ALGO_CONFIG_STAGES_ID:
      return {&algo.stages, 4};
    case CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID:
      return {&algo.inner_shape, 2};
    case CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID:
      return {&algo.cluster_shape, 2};
  }
  return {};
}

}  // namespace

LtAlgo unpack(const cublasLtMatmulAlgo_t& algo) {
  LtAlgo unpacked;
  std::memcpy(&unpacked, &algo, sizeof unpacked);
  return unpacked;
}

cublasStatus_t check_algo(const LtProblem& p, const LtAlgo& algo, std::size_t* workspace,
                          std::uint32_t* alignment) {
  if (algo.magic != magic()) return CUBLAS_STATUS_INVALID_VALUE;
  const LtAlgoFamily* family = find_family(algo.id);
  if (family == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  const LtAlgo expected = fresh_algo(algo.id, p);
  if (std::memcmp(expected.types, algo.types, sizeof algo.types) != 0)
    return CUBLAS_STATUS_INVALID_VALUE;
  if (!runs_here(*family)) return CUBLAS_STATUS_ARCH_MISMATCH;
  if (!has_id(family->tiles, algo.tile) || !has_id(family->stages, algo.stages) ||
      !has_shape(family->inner_shapes, algo.inner_shape) ||
      !has_shape(family->cluster_shapes, algo.cluster_shape))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (algo.split_k < 1 || (algo.split_k > 1 && algo.split_k > p.k))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  // The parts of a split K are added up by one scheme that the algorithm supports. An unsplit
  // product uses no scheme.
  const bool one_scheme = algo.reduction == CUBLASLT_REDUCTION_SCHEME_INPLACE ||
                          algo.reduction == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE ||
                          algo.reduction == CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
  if (algo.split_k > 1 ? !one_scheme || (reductions_of(*family, p.d.type) & algo.reduction) == 0
                       : algo.reduction != CUBLASLT_REDUCTION_SCHEME_NONE)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (algo.swizzling > (family->swizzling ? 1u : 0u) ||
      algo.custom > static_cast<std::uint32_t>(family->custom_options))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (matches(options().refuse_at_check, algo)) return CUBLAS_STATUS_NOT_SUPPORTED;
  // The leading dimensions, in bytes, must be multiples of the alignment too.
  const std::int64_t aligned = needed_alignment(*family, p.int8());
  for (const auto* layout : {&p.a, &p.b, &p.c, &p.d})
    if (layout->ld * static_cast<std::int64_t>(element_bytes(layout->type)) % aligned != 0)
      return CUBLAS_STATUS_NOT_SUPPORTED;
  *workspace = family->workspace_bytes;
  if (algo.cluster_shape == CUBLASLT_CLUSTER_SHAPE_1x2x1) *workspace = large_workspace_bytes;
  // The workspace of a split K: a counter for each tile if parts are added up in place, otherwise
  // every part.
  if (algo.reduction == CUBLASLT_REDUCTION_SCHEME_INPLACE)
    *workspace += static_cast<std::size_t>((p.m + 63) / 64 * ((p.n + 63) / 64)) * 4;
  else if (algo.split_k > 1)
    *workspace += static_cast<std::size_t>(algo.split_k * p.m * p.n) * 4;
  *alignment = needed_alignment(*family, p.int8());
  return CUBLAS_STATUS_SUCCESS;
}

bool matches(const AlgoPattern& pattern, const LtAlgo& algo) {
  if (pattern.id < 0) return false;
  const auto is = [](std::int64_t wanted, std::int64_t value) {
    return wanted < 0 || wanted == value;
  };
  return is(pattern.id, algo.id) && is(pattern.tile, algo.tile) &&
         is(pattern.stages, algo.stages) && is(pattern.split_k, algo.split_k) &&
         is(pattern.reduction, algo.reduction) && is(pattern.swizzling, algo.swizzling) &&
         is(pattern.custom, algo.custom) && is(pattern.inner_shape, algo.inner_shape) &&
         is(pattern.cluster_shape, algo.cluster_shape);
}

bool default_algo(const LtProblem& p, const std::uint32_t alignment[4], std::size_t workspace_bytes,
                  LtAlgo* algo) {
  const auto found = candidates(p, alignment, workspace_bytes, CUBLASLT_REDUCTION_SCHEME_MASK);
  if (found.empty()) return false;
  *algo = found.front().algo;
  return true;
}

namespace names {

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int* returned) {
  return library_call("cublasLtMatmulAlgoGetHeuristic", [&] {
    if (!valid(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!valid(desc) || !valid(a) || !valid(b) || !valid(c) || !valid(d) || !valid(preference) ||
        requested <= 0 || results == nullptr || returned == nullptr)
      return CUBLAS_STATUS_INVALID_VALUE;
    *returned = 0;
    LtProblem p;
    if (const cublasStatus_t status = check_problem(*desc, *a, *b, *c, *d, &p)) return status;
    const auto found = candidates(p, preference->alignment, preference->workspace_bytes,
                                  preference->reduction_mask);
    if (found.empty()) return CUBLAS_STATUS_NOT_SUPPORTED;
    for (const Candidate& candidate : found) {
      if (*returned == requested) break;
      cublasLtMatmulHeuristicResult_t& result = results[(*returned)++];
      result = {};
      result.algo = pack(candidate.algo);
      result.workspaceSize = candidate.workspace;
      result.state = CUBLAS_STATUS_SUCCESS;
      result.wavesCount = waves(p);
    }
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t cublasLtMatmulAlgoInit(cublasLtHandle_t handle, cublasComputeType_t compute,
                                      cudaDataType_t scale, cudaDataType_t a, cudaDataType_t b,
                                      cudaDataType_t c, cudaDataType_t d, int id,
                                      cublasLtMatmulAlgo_t* algo) {
  return library_call("cublasLtMatmulAlgoInit", [&] {
    if (!valid(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (algo == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
    if (find_family(id) == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
    if (!supported_types(compute, scale, a, b, c, d)) return CUBLAS_STATUS_NOT_SUPPORTED;
    LtProblem p;
    p.desc.compute = compute;
    p.desc.scale = scale;
    p.a.type = static_cast<std::uint32_t>(a);
    p.b.type = static_cast<std::uint32_t>(b);
    p.c.type = static_cast<std::uint32_t>(c);
    p.d.type = static_cast<std::uint32_t>(d);
    *algo = pack(fresh_algo(id, p));
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t* algo,
                                       cublasLtMatmulHeuristicResult_t* result) {
  return library_call("cublasLtMatmulAlgoCheck", [&] {
    if (!valid(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!valid(desc) || !valid(a) || !valid(b) || !valid(c) || !valid(d) || algo == nullptr ||
        result == nullptr)
      return CUBLAS_STATUS_INVALID_VALUE;
    LtProblem p;
    if (const cublasStatus_t status = check_problem(*desc, *a, *b, *c, *d, &p)) return status;
    std::size_t workspace = 0;
    std::uint32_t alignment = 0;
    if (const cublasStatus_t status = check_algo(p, unpack(*algo), &workspace, &alignment))
      return status;
    // `algo` may be part of *result. This call must not change result->algo.
    const cublasLtMatmulAlgo_t kept = result->algo;
    *result = {};
    result->algo = kept;
    result->workspaceSize = workspace;
    result->state = CUBLAS_STATUS_SUCCESS;
    result->wavesCount = waves(p);
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t cublasLtMatmulAlgoCapGetAttribute(const cublasLtMatmulAlgo_t* algo,
                                                 cublasLtMatmulAlgoCapAttributes_t attribute,
                                                 void* value, std::size_t bytes,
                                                 std::size_t* written) {
  return library_call("cublasLtMatmulAlgoCapGetAttribute", [&] {
    if (algo == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
    const LtAlgo unpacked = unpack(*algo);
    const LtAlgoFamily* family = unpacked.magic == magic() ? find_family(unpacked.id) : nullptr;
    if (family == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
    switch (attribute) {
      case CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_A_BYTES:
      case CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_B_BYTES:
      case CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_C_BYTES:
      case CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_D_BYTES: {
        const auto alignment = needed_alignment(*family, unpacked.types[2] == CUDA_R_8I);
        return get_bytes(&alignment, sizeof alignment, value, bytes, written);
      }
    }
    return CUBLAS_STATUS_INVALID_VALUE;
  });
}

cublasStatus_t cublasLtMatmulAlgoConfigSetAttribute(cublasLtMatmulAlgo_t* algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute,
                                                    const void* value, std::size_t bytes) {
  return library_call("cublasLtMatmulAlgoConfigSetAttribute", [&] {
    if (algo == nullptr || value == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
    LtAlgo unpacked = unpack(*algo);
    const ConfigMember member = find(unpacked, attribute);
    if (unpacked.magic != magic() || member.at == nullptr || member.constant ||
        member.bytes != bytes)
      return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(member.at, value, bytes);
    *algo = pack(unpacked);
    return CUBLAS_STATUS_SUCCESS;
  });
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute,
                                                    void* value, std::size_t bytes,
                                                    std::size_t* written) {
  return library_call("cublasLtMatmulAlgoConfigGetAttribute", [&] {
    if (algo == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
    LtAlgo unpacked = unpack(*algo);
    const ConfigMember member = find(unpacked, attribute);
    if (unpacked.magic != magic() || member.at == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
    return get_bytes(member.at, member.bytes, value, bytes, written);
  });
}

}  // namespace names
}  // namespace switchback_cuda_emu
