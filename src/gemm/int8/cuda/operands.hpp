// SPDX-License-Identifier: Apache-2.0
// Engine zone: int8 operands and sums where cuBLASLt can work on them: padded, aligned, in scratch
// where the caller's memory will not do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/cuda/runtime.hpp"
#include "gemm/cublaslt/cuda/cublaslt.hpp"
#include "gemm/int8/cuda/kernels.hpp"
#include "gemm/int8/engine.hpp"

namespace switchback::products::SWITCHBACK_CUDA_NS {

/// Rows of b as the product has them: its D needs a multiple of 4.
constexpr std::int64_t padded_n(std::int64_t n) {
  return n % 4 == 0 ? n : (n + 15) / 16 * 16;
}
/// The inner dimension: 16-byte rows, which the fast kernels of every generation want.
constexpr std::int64_t padded_k(std::int64_t k) {
  return (k + 15) / 16 * 16;
}
/// Rows of a: some versions refuse 16 or fewer.
constexpr std::int64_t padded_m(std::int64_t m) {
  constexpr std::int64_t fewest = 32;
  return m < fewest ? fewest : m;
}

/// A packed b[n,k]: row-major [padded_n, padded_k], zeros around it.
std::size_t packed_bytes(std::int64_t n, std::int64_t k);
std::int64_t packed_stride(std::int64_t n, std::int64_t k);
void pack(ContextState& state, MatrixView<const std::int8_t> b, void* out);

/// Codes that cuBLASLt reads, and the copy that has to be queued first, if they had to move.
struct StagedCodes {
  const std::int8_t* data = nullptr;
  std::int64_t stride = 0;
  bool copied = false;
  PadArguments copy{};
};
/// [rows,cols] as [padded_rows,padded_k(cols)]: where it lies if that will do, else in the frame.
StagedCodes stage(core::Workspace::Frame& frame, const std::int8_t* from, std::int64_t rows,
                  std::int64_t cols, std::int64_t stride, std::int64_t padded_rows);
StagedCodes stage_a(core::Workspace::Frame& frame, const gemm_int8::GemmProblem& problem,
                    const gemm_int8::GemmOperands& operands);
StagedCodes stage_b(core::Workspace::Frame& frame, const gemm_int8::GemmProblem& problem,
                    const gemm_int8::GemmOperands& operands);
void queue_copy(core::SWITCHBACK_CUDA_NS::Runtime& runtime, const StagedCodes& codes);

/// `rows` rows of sums, a panel of the product, into int32 rows of `ld`, by the algorithm that the
/// configuration says.
Product panel_product(const StagedCodes& a, const StagedCodes& b, std::int64_t rows,
                      std::int64_t cols, std::int64_t k, std::int64_t ld, const void* a_data,
                      const void* d, const gemm_int8::GemmConfig& config);
/// The same of a problem whose operands are aligned as a device's memory is: what a configuration
/// is judged by before there are operands.
Product expected_product(const gemm_int8::GemmProblem& problem, const gemm_int8::GemmConfig& config,
                         std::int64_t rows, std::int64_t ld);
/// Whether the sums can be written where the caller wants int32.
bool sums_in_place(const gemm_int8::GemmProblem& problem, const void* d);

/// Every configuration of a product that names an algorithm or leaves it to the library, the
/// default first.
std::vector<gemm_int8::GemmConfig> algorithm_candidates(core::SWITCHBACK_CUDA_NS::Runtime& runtime,
                                                        const Product& product,
                                                        const gemm_int8::GemmConfig& usual);

/// The epilogue over rows [first, first + rows) of d from sums of their own.
void queue_epilogue(core::SWITCHBACK_CUDA_NS::Runtime& runtime,
                    const gemm_int8::GemmProblem& problem, const gemm_int8::GemmOperands& operands,
                    const std::int32_t* sums, std::int64_t stride_sums, std::int64_t first,
                    std::int64_t rows, cudaStream_t stream);

/// For Engine::scratch_bytes: the workspace that a configuration lets the library have.
std::int64_t library_workspace(const gemm_int8::GemmProblem& problem,
                               const gemm_int8::GemmConfig& config);
/// "cuBLASLt …" if it is missing, for Engine::unavailable.
std::string_view cublaslt_unavailable(const ContextState& state);

}  // namespace switchback::products::SWITCHBACK_CUDA_NS
