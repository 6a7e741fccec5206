// SPDX-License-Identifier: Apache-2.0
// Engine zone: cuBLASLt's functions, loaded at run time, and a matrix product as cuBLASLt describes
// it.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/cuda/api.hpp"
#include "gemm/cublaslt/choice.hpp"

namespace switchback::products::cuda {

/// The functions of cuBLASLt that are used here.
struct CublasLt {
  decltype(&::cublasLtCreate) create = nullptr;
  decltype(&::cublasLtDestroy) destroy = nullptr;
  decltype(&::cublasLtGetVersion) version = nullptr;
  decltype(&::cublasLtGetStatusName) status_name = nullptr;
  decltype(&::cublasLtMatmul) matmul = nullptr;
  decltype(&::cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;
  decltype(&::cublasLtMatmulDescCreate) desc_create = nullptr;
  decltype(&::cublasLtMatmulDescDestroy) desc_destroy = nullptr;
  decltype(&::cublasLtMatmulDescSetAttribute) desc_set = nullptr;
  decltype(&::cublasLtMatrixLayoutCreate) layout_create = nullptr;
  decltype(&::cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
  decltype(&::cublasLtMatmulPreferenceCreate) preference_create = nullptr;
  decltype(&::cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
  decltype(&::cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;

  // Functions that build algorithms from attributes. Without them cuBLASLt's ranking of algorithms
  // still works.
  decltype(&::cublasLtMatmulAlgoInit) algo_init = nullptr;
  decltype(&::cublasLtMatmulAlgoCheck) algo_check = nullptr;
  decltype(&::cublasLtMatmulAlgoCapGetAttribute) algo_capability = nullptr;
  decltype(&::cublasLtMatmulAlgoConfigSetAttribute) algo_set = nullptr;
  decltype(&::cublasLtMatmulAlgoConfigGetAttribute) algo_get = nullptr;

  /// Empty if the library and all its functions were found; otherwise the missing parts.
  static const std::string& missing();
  /// Empty if algorithms can be built from attributes; otherwise why they cannot.
  static const std::string& cannot_build();
  /// The functions of cuBLASLt. Call get() only if missing() is empty.
  static const CublasLt& get();
};

/// A product in cuBLASLt's terms: column-major D[m,n] = alpha · op(A) · op(B) + beta · D (+ bias
/// along m). An alignment (align_a and so on) is the largest power of two, up to 256, that divides
/// the pointer of a call.
struct Product {
  cudaDataType_t type_a = CUDA_R_8I;
  cudaDataType_t type_b = CUDA_R_8I;
  cudaDataType_t type_d = CUDA_R_32I;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32I;
  bool transpose_a = true;
  bool transpose_b = false;
  bool accumulate = false;
  bool bias = false;  ///< whether a bias of D's type is added
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t lda = 0;
  std::int64_t ldb = 0;
  std::int64_t ldd = 0;
  std::uint32_t align_a = 16;
  std::uint32_t align_b = 16;
  std::uint32_t align_d = 16;

  // The following three members select the algorithm: see choose().
  std::int64_t place = 0;  ///< position in cuBLASLt's ranking
  std::optional<CublasLtAlgorithm> algorithm;
  std::int64_t most_workspace_bytes = default_workspace_mib << 20;

  /// Sets the algorithm and the workspace limit. The algorithm is the one in `choice`, or otherwise
  /// the one at a position in cuBLASLt's ranking.
  void choose(std::int64_t ranked_place, const CublasLtChoice& choice);
  /// The split-K reductions that the product may use, as a mask of CUBLASLT_REDUCTION_SCHEME_*. For
  /// 16-bit results these are the schemes that round the sum once. All other schemes add parts that
  /// were already rounded to D's type. (A bias is added after the reduction has rounded. Forbidding
  /// split K for products with a bias would make some of them slow.)
  [[nodiscard]] std::uint32_t reductions() const noexcept;
  /// The data type of the scalars alpha and beta.
  [[nodiscard]] cudaDataType_t scale_type() const noexcept {
    return compute == CUBLAS_COMPUTE_32I ? CUDA_R_32I : CUDA_R_32F;
  }

  friend bool operator==(const Product&, const Product&) = default;
};
std::string describe(const Product& product);
/// The largest power of two up to 256 that divides the address.
std::uint32_t alignment_of(const void* data) noexcept;

/// Throws an Error that names the call, the product and the status, unless the status is success.
void check(cublasStatus_t status, std::string_view call, const Product& product);
/// A status as text, for example "CUBLAS_STATUS_NOT_SUPPORTED (15)".
std::string status_text(cublasStatus_t status);

/// The cuBLASLt descriptors of a product and of its matrices. Owns them.
struct Descriptors {
  explicit Descriptors(const Product& product);
  ~Descriptors();
  Descriptors(const Descriptors&) = delete;
  Descriptors& operator=(const Descriptors&) = delete;
  cublasLtMatmulDesc_t matmul = nullptr;
  cublasLtMatrixLayout_t a = nullptr;
  cublasLtMatrixLayout_t b = nullptr;
  cublasLtMatrixLayout_t d = nullptr;

 private:
  Descriptors() = default;
  void make(const Product& product);
};

}  // namespace switchback::products::cuda
