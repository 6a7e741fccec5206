// SPDX-License-Identifier: Apache-2.0
// Engine zone: int8 operands and sums in the form that cuBLASLt needs: padded and aligned. They are
// copied to scratch memory if the caller's memory does not qualify.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/cuda/runtime.hpp"
#include "gemm/cublaslt/cuda/cublaslt.hpp"
#include "gemm/int8/cuda/kernels.hpp"
#include "gemm/int8/engine.hpp"

namespace switchback::products::cuda {

/// The number of rows of b with padding: cuBLASLt's D needs a multiple of 4.
constexpr std::int64_t padded_n(std::int64_t n) {
  return n % 4 == 0 ? n : (n + 15) / 16 * 16;
}
/// The length of the inner dimension with padding: the fast kernels of every generation need rows
/// of a multiple of 16 bytes.
constexpr std::int64_t padded_k(std::int64_t k) {
  return (k + 15) / 16 * 16;
}
/// The number of rows of a with padding: some versions of cuBLASLt refuse 16 or fewer.
constexpr std::int64_t padded_m(std::int64_t m) {
  constexpr std::int64_t fewest = 32;
  return m < fewest ? fewest : m;
}

/// Size of a packed b[n,k]: row-major [padded_n, padded_k], padded with zeros.
std::size_t packed_bytes(std::int64_t n, std::int64_t k);
std::int64_t packed_stride(std::int64_t n, std::int64_t k);
void pack(ContextState& state, MatrixView<const std::int8_t> b, void* out);
/// Restores b[n,k] from its packed form.
void unpack(ContextState& state, const void* from, MatrixView<std::int8_t> b);
/// Converts a packed b[n,k] to its packed transpose.
void pack_transposed(ContextState& state, std::int64_t n, std::int64_t k, const void* from,
                     void* out);

/// Codes in memory that cuBLASLt can read. If the caller's memory does not qualify, `copy`
/// describes the copy that must be queued first.
struct StagedCodes {
  const std::int8_t* data = nullptr;
  std::int64_t stride = 0;
  bool copied = false;
  PadArguments copy{};
};
/// Stages codes [rows,cols] as [padded_rows,padded_k(cols)]: in place if possible, otherwise in the
/// frame.
StagedCodes stage(core::Workspace::Frame& frame, const std::int8_t* from, std::int64_t rows,
                  std::int64_t cols, std::int64_t stride, std::int64_t padded_rows);
StagedCodes stage_a(core::Workspace::Frame& frame, const gemm_int8::GemmProblem& problem,
                    const gemm_int8::GemmOperands& operands);
StagedCodes stage_b(core::Workspace::Frame& frame, const gemm_int8::GemmProblem& problem,
                    const gemm_int8::GemmOperands& operands);
void queue_copy(core::cuda::Runtime& runtime, const StagedCodes& codes);

/// The cuBLASLt product that computes a panel, `rows` rows of int32 sums with the stride `ld`, by
/// the configuration's algorithm.
Product panel_product(const StagedCodes& a, const StagedCodes& b, std::int64_t rows,
                      std::int64_t cols, std::int64_t k, std::int64_t ld, const void* a_data,
                      const void* d, const gemm_int8::GemmConfig& config);
/// As panel_product(), for operands with the alignment of allocated device memory. It serves to
/// judge a configuration before operands exist.
Product expected_product(const gemm_int8::GemmProblem& problem, const gemm_int8::GemmConfig& config,
                         std::int64_t rows, std::int64_t ld);
/// Whether the sums can be written directly to the caller's int32 output.
bool sums_in_place(const gemm_int8::GemmProblem& problem, const void* d);

/// Copies of `by_default`, each with another cuBLASLt algorithm. The first leaves the choice to
/// cuBLASLt. `all`: every algorithm that cuBLASLt ranks; else only the few that it ranks first.
std::vector<gemm_int8::GemmConfig> algorithm_candidates(core::cuda::Runtime& runtime,
                                                        const Product& product,
                                                        const gemm_int8::GemmConfig& by_default,
                                                        bool all);

/// Queues the epilogue for rows [first, first + rows) of d, from the sums of these rows.
void queue_epilogue(core::cuda::Runtime& runtime, const gemm_int8::GemmProblem& problem,
                    const gemm_int8::GemmOperands& operands, const std::int32_t* sums,
                    std::int64_t stride_sums, std::int64_t first, std::int64_t rows,
                    cudaStream_t stream);

/// For Engine::scratch_bytes: the workspace that cuBLASLt may use with a configuration.
std::int64_t library_workspace(const gemm_int8::GemmProblem& problem,
                               const gemm_int8::GemmConfig& config);
/// For Engine::unavailable: "cuBLASLt …" if cuBLASLt is missing.
std::string_view cublaslt_unavailable(const ContextState& state);

}  // namespace switchback::products::cuda
