// SPDX-License-Identifier: Apache-2.0
// Engine zone: cuBLASLt: its functions, found at run time, and matrix products that were planned
// once and are then only looked up.
#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/cuda/runtime.hpp"

namespace switchback::products::SWITCHBACK_CUDA_NS {

/// The functions of the library that are used here.
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

  /// Empty if the library was found whole, else why it was not.
  static const std::string& missing();
  /// The functions; only where nothing is missing.
  static const CublasLt& get();
};

/// A product in cuBLASLt's terms: column-major D[m,n] = alpha · op(A) · op(B) + beta · D (+ bias
/// along m). Alignments are what the pointers of a call are multiples of, up to 256.
struct Product {
  cudaDataType_t type_a = CUDA_R_8I;
  cudaDataType_t type_b = CUDA_R_8I;
  cudaDataType_t type_d = CUDA_R_32I;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32I;
  bool transpose_a = true;
  bool transpose_b = false;
  bool accumulate = false;
  bool bias = false;  ///< of the type of D
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t lda = 0;
  std::int64_t ldb = 0;
  std::int64_t ldd = 0;
  std::uint32_t align_a = 16;
  std::uint32_t align_b = 16;
  std::uint32_t align_d = 16;
  std::int64_t algorithm = 0;  ///< the place in the library's ranking to start from

  friend bool operator==(const Product&, const Product&) = default;
};
std::string describe(const Product& product);
/// The largest power of two up to 256 that divides the address.
std::uint32_t alignment_of(const void* data) noexcept;

/// The descriptors of a product and the algorithms that may run it, best first.
class Plan {
 public:
  Plan(cublasLtHandle_t handle, const Product& product);

  [[nodiscard]] std::size_t workspace_bytes() const noexcept;
  /// Queues it. `workspace` holds workspace_bytes(), 256-byte aligned. An algorithm that the
  /// library offered and then refuses is dropped for good; throws Error(unsupported) when none is
  /// left.
  void run(cublasLtHandle_t handle, const void* a, const void* b, void* d, const void* bias,
           void* workspace, cudaStream_t stream);

 private:
  struct Descriptors {
    Descriptors() = default;
    ~Descriptors();
    Descriptors(const Descriptors&) = delete;
    Descriptors& operator=(const Descriptors&) = delete;
    cublasLtMatmulDesc_t matmul = nullptr;
    cublasLtMatrixLayout_t a = nullptr;
    cublasLtMatrixLayout_t b = nullptr;
    cublasLtMatrixLayout_t d = nullptr;
  };

  Product product_;
  Descriptors descriptors_;
  std::vector<cublasLtMatmulHeuristicResult_t> found_;
};

/// What a Context keeps of the library: its handle and every plan it has made.
class Plans final : public core::SWITCHBACK_CUDA_NS::Extension {
 public:
  /// The runtime's, made on first use. Plans taken before may be gone afterwards. Throws
  /// Error(unsupported) if the library is missing.
  static Plans& of(core::SWITCHBACK_CUDA_NS::Runtime& runtime);
  ~Plans() override;

  [[nodiscard]] cublasLtHandle_t handle() const noexcept { return handle_; }
  Plan& plan(const Product& product);

 private:
  struct Hash {
    std::size_t operator()(const Product& product) const noexcept;
  };
  explicit Plans(cublasLtHandle_t handle) : handle_(handle) {}

  cublasLtHandle_t handle_;
  std::unordered_map<Product, std::unique_ptr<Plan>, Hash> plans_;
};

}  // namespace switchback::products::SWITCHBACK_CUDA_NS
