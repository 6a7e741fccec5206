// SPDX-License-Identifier: Apache-2.0
// Test support, emulated CUDA: the declarations that the files of the cuBLASLt stand-in share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cublasLt.h"
#include "switchback_cuda_emu/control.h"

namespace switchback_cuda_emu {

std::size_t library_handle_count();
void delete_library_handles();

namespace names {

struct cublasLtContext {
  int device = 0;
};

struct cublasLtMatmulDescOpaque_t {
  std::int32_t compute = 0;
  std::int32_t scale = 0;
  std::int32_t transa = CUBLAS_OP_N, transb = CUBLAS_OP_N;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  std::int32_t bias_type = -1;
};

struct cublasLtMatrixLayoutOpaque_t {
  std::uint32_t type = 0;
  std::int32_t order = CUBLASLT_ORDER_COL;
  std::uint64_t rows = 0, cols = 0;
  std::int64_t ld = 0;
};

struct cublasLtMatmulPreferenceOpaque_t {
  std::uint64_t workspace_bytes = 0;
  std::uint32_t reduction_mask = CUBLASLT_REDUCTION_SCHEME_MASK;
  std::uint32_t alignment[4] = {256, 256, 256, 256};
};

}  // namespace names

/// A product whose descriptors agree with each other and with the documented tables.
struct LtProblem {
  cublasLtMatmulDescOpaque_t desc;
  cublasLtMatrixLayoutOpaque_t a, b, c, d;
  std::int64_t m = 0, n = 0, k = 0;
  cudaDataType_t bias_type = CUDA_R_32F;  ///< the bias's type, if there is a bias
  [[nodiscard]] bool has_bias() const { return desc.epilogue == CUBLASLT_EPILOGUE_BIAS; }
  [[nodiscard]] bool int8() const { return a.type == CUDA_R_8I; }
  [[nodiscard]] bool rounds_to_16_bits() const {
    return d.type == CUDA_R_16F || d.type == CUDA_R_16BF;
  }
};

/// An algorithm of the stand-in, with the configurations that it supports.
struct LtAlgoFamily {
  int id;
  std::vector<std::uint32_t> tiles, stages;  ///< tile and stage ids; empty: only "undefined"
  std::uint32_t reductions;                  ///< reduction schemes of a split K; 0: it cannot split
  bool swizzling;
  std::int32_t custom_options;
  std::vector<std::uint16_t> inner_shapes, cluster_shapes;  ///< ids of shapes, in addition to 0
  std::uint32_t alignment;                                  ///< bytes; alignment of every pointer
  std::uint64_t workspace_bytes;
  int min_compute_capability;
};

/// The stand-in's content of a cublasLtMatmulAlgo_t. It belongs to one version of the library: for
/// another version the same bytes are not an algorithm.
struct LtAlgo {
  std::uint32_t magic;
  std::int32_t id;
  std::uint32_t tile, stages;
  std::int32_t split_k;
  std::uint32_t reduction, swizzling, custom;
  std::uint16_t inner_shape, cluster_shape;
  std::uint8_t types[6];  ///< types of compute, scale, A, B, C, D
  std::uint8_t hidden;    ///< state that no attribute shows
};
static_assert(sizeof(LtAlgo) <= sizeof(cublasLtMatmulAlgo_t));

// Functions of lt_descriptor.cpp.
bool valid(cublasLtHandle_t handle);
bool valid(cublasLtMatmulDesc_t desc);
bool valid(cublasLtMatrixLayout_t layout);
bool valid(cublasLtMatmulPreference_t preference);
cublasStatus_t library_call(const char* name, cublasStatus_t (*body)(void*), void* context);
/// The start of every function of the library: takes the lock, counts the call, and lets failures
/// be injected.
template <class Body>
cublasStatus_t library_call(const char* name, Body&& body) {
  return library_call(
      name, [](void* context) { return (*static_cast<std::remove_reference_t<Body>*>(context))(); },
      &body);
}
/// Copies an attribute of a descriptor, `member`, to the caller's `value`.
cublasStatus_t get_bytes(const void* member, std::size_t member_bytes, void* value,
                         std::size_t bytes, std::size_t* written);

// Functions of lt_rules.cpp.
std::size_t element_bytes(std::uint32_t type);
/// Whether the documented table has this combination of types.
bool supported_types(int compute, int scale, int a, int b, int c, int d);
/// Checks everything about a product that needs neither pointers nor an algorithm.
cublasStatus_t check_problem(const cublasLtMatmulDescOpaque_t& desc,
                             const cublasLtMatrixLayoutOpaque_t& a,
                             const cublasLtMatrixLayoutOpaque_t& b,
                             const cublasLtMatrixLayoutOpaque_t& c,
                             const cublasLtMatrixLayoutOpaque_t& d, LtProblem* problem);
/// The number of bytes from the first to the last element of a matrix.
std::size_t extent_bytes(const cublasLtMatrixLayoutOpaque_t& layout);

// Functions of lt_algo.cpp.
LtAlgo unpack(const cublasLtMatmulAlgo_t& algo);
/// Checks that the algorithm was initialised for these types, and finds the workspace and alignment
/// that it needs. INVALID_VALUE: it does not match the product. ARCH_MISMATCH: it belongs to
/// another device. NOT_SUPPORTED: its capabilities do not include its configuration.
cublasStatus_t check_algo(const LtProblem& problem, const LtAlgo& algo, std::size_t* workspace,
                          std::uint32_t* alignment);
/// The algorithm that cublasLtMatmul uses if the caller gives none. False if there is no such
/// algorithm.
bool default_algo(const LtProblem& problem, const std::uint32_t alignment[4],
                  std::size_t workspace_bytes, LtAlgo* algo);

bool matches(const AlgoPattern& pattern, const LtAlgo& algo);

// Functions of lt_compute.cpp.
struct LtScalars {
  double alpha = 1.0, beta = 0.0;  ///< alpha and beta: double is exact for int32 and for float
};
void compute_product(const LtProblem& problem, const LtAlgo& algo, LtScalars scalars, const void* a,
                     const void* b, const void* c, void* d, bool corrupt);

}  // namespace switchback_cuda_emu
