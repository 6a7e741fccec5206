// SPDX-License-Identifier: Apache-2.0
// Engine zone: plans of cuBLASLt: a matrix product is planned once and then looked up.
#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/cuda/runtime.hpp"
#include "gemm/cublaslt/cuda/library.hpp"

namespace switchback::products::cuda {

/// The plan of a product: its cuBLASLt descriptors, and the algorithms that may run it, best first.
class Plan {
 public:
  /// Throws Error(unsupported) if the library has no algorithm for the product.
  Plan(cublasLtHandle_t handle, const Product& product);

  /// Why the product's algorithm cannot be built or did not run. Empty if it can run, or if the
  /// product does not name an algorithm. The library is asked once.
  [[nodiscard]] const std::string& refusal() const noexcept { return refusal_; }
  [[nodiscard]] std::size_t workspace_bytes() const noexcept;
  /// The 64 bytes of the algorithm that runs next, in hexadecimal digits; empty if none can run.
  [[nodiscard]] std::string algorithm_hex() const;
  /// Queues the product. `workspace` has workspace_bytes() and is 256-byte aligned. If the library
  /// offered an algorithm and then refuses to run it, the algorithm is dropped for good. Throws
  /// Error(unsupported) when no algorithm is left.
  void run(cublasLtHandle_t handle, const void* a, const void* b, void* d, const void* bias,
           void* workspace, cudaStream_t stream);

 private:
  Product product_;
  Descriptors descriptors_;
  std::vector<cublasLtMatmulHeuristicResult_t> found_;
  std::string refusal_;
};

/// cuBLASLt's state in a Context: its handle and all plans made so far.
class Plans final : public core::cuda::Extension {
 public:
  /// The plans of this runtime, created on first use. This may invalidate plans that were returned
  /// before. Throws Error(unsupported) if the library is missing.
  static Plans& of(core::cuda::Runtime& runtime);
  ~Plans() override;

  [[nodiscard]] cublasLtHandle_t handle() const noexcept { return handle_; }
  /// The plan of a product, made on first use. Throws Error(unsupported) if the plan cannot run.
  Plan& plan(const Product& product);
  /// The plan of a product, made on first use, even if it cannot run.
  Plan& find_or_make(const Product& product);

 private:
  struct Hash {
    std::size_t operator()(const Product& product) const noexcept;
  };
  explicit Plans(cublasLtHandle_t handle) : handle_(handle) {}

  cublasLtHandle_t handle_;
  std::unordered_map<Product, std::unique_ptr<Plan>, Hash> plans_;
};

/// Why the algorithm that the product names cannot be built; empty if it can, or if the product
/// names none.
std::string refusal(core::cuda::Runtime& runtime, const Product& product);
/// The 64 bytes of the algorithm that runs the product, in hexadecimal digits; empty if there is
/// none.
std::string algorithm_hex(core::cuda::Runtime& runtime, const Product& product);

}  // namespace switchback::products::cuda
