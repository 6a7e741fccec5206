// SPDX-License-Identifier: Apache-2.0
// Engine zone: cuBLASLt: matrix products that were planned once and are then only looked up.
#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/cuda/runtime.hpp"
#include "gemm/cublaslt/cuda/library.hpp"

namespace switchback::products::SWITCHBACK_CUDA_NS {

/// The descriptors of a product and the algorithms that may run it, best first.
class Plan {
 public:
  /// Throws Error(unsupported) where the library has nothing for the product.
  Plan(cublasLtHandle_t handle, const Product& product);

  /// Why the product's algorithm cannot be had, or has not run; empty if it can, and where the
  /// product names none. It is asked of the library once.
  [[nodiscard]] const std::string& refusal() const noexcept { return refusal_; }
  [[nodiscard]] std::size_t workspace_bytes() const noexcept;
  /// The 64 bytes of the algorithm that runs next, in hexadecimal digits; empty if none can.
  [[nodiscard]] std::string algorithm_hex() const;
  /// Queues it. `workspace` holds workspace_bytes(), 256-byte aligned. An algorithm that the
  /// library offered and then refuses is dropped for good; throws Error(unsupported) when none is
  /// left.
  void run(cublasLtHandle_t handle, const void* a, const void* b, void* d, const void* bias,
           void* workspace, cudaStream_t stream);

 private:
  Product product_;
  Descriptors descriptors_;
  std::vector<cublasLtMatmulHeuristicResult_t> found_;
  std::string refusal_;
};

/// What a Context keeps of the library: its handle and every plan it has made.
class Plans final : public core::SWITCHBACK_CUDA_NS::Extension {
 public:
  /// The runtime's, made on first use. Plans taken before may be gone afterwards. Throws
  /// Error(unsupported) if the library is missing.
  static Plans& of(core::SWITCHBACK_CUDA_NS::Runtime& runtime);
  ~Plans() override;

  [[nodiscard]] cublasLtHandle_t handle() const noexcept { return handle_; }
  /// A plan that can run. Throws Error(unsupported) if it refuses.
  Plan& plan(const Product& product);
  /// Any plan, also one that refuses.
  Plan& find_or_make(const Product& product);

 private:
  struct Hash {
    std::size_t operator()(const Product& product) const noexcept;
  };
  explicit Plans(cublasLtHandle_t handle) : handle_(handle) {}

  cublasLtHandle_t handle_;
  std::unordered_map<Product, std::unique_ptr<Plan>, Hash> plans_;
};

/// Why the product's own algorithm cannot be had; empty if it can, and where it names none.
std::string refusal(core::SWITCHBACK_CUDA_NS::Runtime& runtime, const Product& product);
/// Of the algorithm that runs it, in hexadecimal digits; empty if there is none.
std::string algorithm_hex(core::SWITCHBACK_CUDA_NS::Runtime& runtime, const Product& product);

}  // namespace switchback::products::SWITCHBACK_CUDA_NS
