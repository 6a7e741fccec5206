// SPDX-License-Identifier: Apache-2.0
// cuBLASLt stand-in: which products cuBLASLt's documentation allows.
#include "lt_state.hpp"
#include "state.hpp"

namespace switchback_cuda_emu {

namespace {

struct Row {
  int compute, scale, ab, cd, bias;  ///< bias: its type, -1 if only the default epilogue is allowed
};

// The part of the table of types in cuBLASLt's documentation that the stand-in can compute.
constexpr Row rows[] = {
    {CUBLAS_COMPUTE_32I, CUDA_R_32I, CUDA_R_8I, CUDA_R_32I, -1},
    {CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16BF, CUDA_R_16BF, CUDA_R_16BF},
    {CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16F, CUDA_R_16F, CUDA_R_16F},
    {CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16BF, CUDA_R_32F, CUDA_R_32F},
    {CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16F, CUDA_R_32F, CUDA_R_32F},
    {CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F},
    {CUBLAS_COMPUTE_32F_FAST_TF32, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F},
};

const Row* find_row(int compute, int scale, int a, int b, int c, int d) {
  if (a != b || c != d) return nullptr;
  for (const Row& row : rows)
    if (row.compute == compute && row.scale == scale && row.ab == a && row.cd == d) return &row;
  return nullptr;
}

bool good_shape(const cublasLtMatrixLayoutOpaque_t& l) {
  return l.rows > 0 && l.cols > 0 && l.ld >= static_cast<std::int64_t>(l.rows);
}

}  // namespace

std::size_t element_bytes(std::uint32_t type) {
  switch (type) {
    case CUDA_R_8I:
      return 1;
    case CUDA_R_16F:
    case CUDA_R_16BF:
      return 2;
    default:
      return 4;
  }
}

bool supported_types(int compute, int scale, int a, int b, int c, int d) {
  return find_row(compute, scale, a, b, c, d) != nullptr;
}

std::size_t extent_bytes(const cublasLtMatrixLayoutOpaque_t& l) {
  const std::int64_t elements =
      l.ld * (static_cast<std::int64_t>(l.cols) - 1) + static_cast<std::int64_t>(l.rows);
  return static_cast<std::size_t>(elements) * element_bytes(l.type);
}

cublasStatus_t check_problem(const cublasLtMatmulDescOpaque_t& desc,
                             const cublasLtMatrixLayoutOpaque_t& a,
                             const cublasLtMatrixLayoutOpaque_t& b,
                             const cublasLtMatrixLayoutOpaque_t& c,
                             const cublasLtMatrixLayoutOpaque_t& d, LtProblem* problem) {
  LtProblem p;
  p.desc = desc;
  p.a = a;
  p.b = b;
  p.c = c;
  p.d = d;
  for (const auto* layout : {&a, &b, &c, &d}) {
    if (layout->order != CUBLASLT_ORDER_COL) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (!good_shape(*layout)) return CUBLAS_STATUS_INVALID_VALUE;
  }
  const bool ta = desc.transa != CUBLAS_OP_N;
  const bool tb = desc.transb != CUBLAS_OP_N;
  if (desc.transa < CUBLAS_OP_N || desc.transa > CUBLAS_OP_C || desc.transb < CUBLAS_OP_N ||
      desc.transb > CUBLAS_OP_C)
    return CUBLAS_STATUS_INVALID_VALUE;
  p.m = static_cast<std::int64_t>(d.rows);
  p.n = static_cast<std::int64_t>(d.cols);
  p.k = static_cast<std::int64_t>(ta ? a.rows : a.cols);
  if (static_cast<std::int64_t>(ta ? a.cols : a.rows) != p.m ||
      static_cast<std::int64_t>(tb ? b.rows : b.cols) != p.n ||
      static_cast<std::int64_t>(tb ? b.cols : b.rows) != p.k || c.rows != d.rows ||
      c.cols != d.cols)
    return CUBLAS_STATUS_INVALID_VALUE;

  const auto type = [](std::uint32_t t) { return static_cast<int>(t); };
  const Row* row =
      find_row(desc.compute, desc.scale, type(a.type), type(b.type), type(c.type), type(d.type));
  if (row == nullptr) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (desc.epilogue != CUBLASLT_EPILOGUE_DEFAULT) {
    if (desc.epilogue != CUBLASLT_EPILOGUE_BIAS || row->bias < 0)
      return CUBLAS_STATUS_NOT_SUPPORTED;
    if (desc.bias_type != -1 && desc.bias_type != row->bias) return CUBLAS_STATUS_NOT_SUPPORTED;
    p.bias_type = static_cast<cudaDataType_t>(row->bias);
  }
  if (p.int8()) {
    // What cuBLASLt's integer tensor core kernels require of ordinary layouts.
    if (desc.transa != CUBLAS_OP_T || desc.transb != CUBLAS_OP_N)
      return CUBLAS_STATUS_NOT_SUPPORTED;
    if (p.m % 4 != 0 || p.k % 4 != 0) return CUBLAS_STATUS_NOT_SUPPORTED;
    for (const auto* layout : {&a, &b, &c, &d})
      if (layout->ld % 4 != 0) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (options().refuse_rows_up_to_16 && p.n <= 16) return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  *problem = p;
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace switchback_cuda_emu
