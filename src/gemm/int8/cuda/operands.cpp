// SPDX-License-Identifier: Apache-2.0
#include "gemm/int8/cuda/operands.hpp"

#include "core/cuda/status.hpp"
#include "gemm/cublaslt/cuda/algorithms.hpp"

namespace switchback::products::cuda {

using core::cuda::check;
using core::cuda::CurrentDevice;
using core::cuda::Runtime;
using core::cuda::runtime;
using gemm_int8::GemmConfig;
using gemm_int8::GemmOperands;
using gemm_int8::GemmProblem;
using gemm_int8::ScaleMode;

std::size_t packed_bytes(std::int64_t n, std::int64_t k) {
  return static_cast<std::size_t>(padded_n(n)) * static_cast<std::size_t>(padded_k(k));
}

std::int64_t packed_stride(std::int64_t, std::int64_t k) {
  return padded_k(k);
}

void pack(ContextState& state, MatrixView<const std::int8_t> b, void* out) {
  if (b.rows == 0 || b.cols == 0) return;
  Runtime& device = runtime(state);
  const CurrentDevice current(device.index());
  const PadArguments arguments = {
      b.data,           b.rows,          b.cols, b.stride, static_cast<std::int8_t*>(out),
      padded_n(b.rows), padded_k(b.cols)};
  check(launch_pad(arguments, device.cuda_stream()), "kernel pad");
}

void unpack(ContextState& state, const void* from, MatrixView<std::int8_t> b) {
  runtime(state).copy(b.data, static_cast<std::size_t>(b.stride), from,
                      static_cast<std::size_t>(padded_k(b.cols)), static_cast<std::size_t>(b.cols),
                      b.rows);
}

void pack_transposed(ContextState& state, std::int64_t n, std::int64_t k, const void* from,
                     void* out) {
  if (n == 0 || k == 0) return;
  Runtime& device = runtime(state);
  const CurrentDevice current(device.index());
  const PadArguments arguments = {
      static_cast<const std::int8_t*>(from), n,           k,          padded_k(k),
      static_cast<std::int8_t*>(out),        padded_n(k), padded_k(n)};
  check(launch_transpose(arguments, device.cuda_stream()), "kernel transpose");
}

namespace {

// Whether cuBLASLt can read the codes in place.
bool lies_well(const void* from, std::int64_t rows, std::int64_t cols, std::int64_t stride,
               std::int64_t padded_rows) {
  return rows == padded_rows && cols == padded_k(cols) && stride % 16 == 0 &&
         reinterpret_cast<std::uintptr_t>(from) % 16 == 0;
}

}  // namespace

StagedCodes stage(core::Workspace::Frame& frame, const std::int8_t* from, std::int64_t rows,
                  std::int64_t cols, std::int64_t stride, std::int64_t padded_rows) {
  StagedCodes staged;
  if (lies_well(from, rows, cols, stride, padded_rows)) {
    staged.data = from;
    staged.stride = stride;
    return staged;
  }
  auto* to = frame.take<std::int8_t>(padded_rows * padded_k(cols));
  staged.data = to;
  staged.stride = padded_k(cols);
  staged.copied = true;
  staged.copy = {from, rows, cols, stride, to, padded_rows, staged.stride};
  return staged;
}

StagedCodes stage_a(core::Workspace::Frame& frame, const GemmProblem& p, const GemmOperands& o) {
  return stage(frame, o.a, p.m, p.k, p.stride_a, padded_m(p.m));
}

StagedCodes stage_b(core::Workspace::Frame& frame, const GemmProblem& p, const GemmOperands& o) {
  if (o.packed_b == nullptr) return stage(frame, o.b, p.n, p.k, p.stride_b, padded_n(p.n));
  StagedCodes packed;
  packed.data = static_cast<const std::int8_t*>(o.packed_b);
  packed.stride = padded_k(p.k);
  return packed;
}

void queue_copy(Runtime& device, const StagedCodes& codes) {
  if (codes.copied) check(launch_pad(codes.copy, device.cuda_stream()), "kernel pad");
}

Product panel_product(const StagedCodes& a, const StagedCodes& b, std::int64_t rows,
                      std::int64_t cols, std::int64_t k, std::int64_t ld, const void* a_data,
                      const void* d, const GemmConfig& config) {
  // Row-major d = a · bᵀ is column-major dᵀ = b · aᵀ: b is cuBLASLt's A, transposed, and a its B.
  Product p;
  p.m = padded_n(cols);
  p.n = rows;
  p.k = padded_k(k);
  p.lda = b.stride;
  p.ldb = a.stride;
  p.ldd = ld;
  p.align_a = alignment_of(b.data);
  p.align_b = alignment_of(a_data);
  p.align_d = alignment_of(d);
  p.choose(config.algorithm, config.cublaslt);
  return p;
}

Product expected_product(const GemmProblem& p, const GemmConfig& config, std::int64_t rows,
                         std::int64_t ld) {
  StagedCodes a;
  a.stride = lies_well(nullptr, p.m, p.k, p.stride_a, padded_m(p.m)) ? p.stride_a : padded_k(p.k);
  StagedCodes b;
  const bool b_in_place = p.packed_for == gemm_int8::EngineId::none &&
                          lies_well(nullptr, p.n, p.k, p.stride_b, padded_n(p.n));
  b.stride = b_in_place ? p.stride_b : padded_k(p.k);
  return panel_product(a, b, rows, p.n, p.k, ld, nullptr, nullptr, config);
}

bool sums_in_place(const GemmProblem& p, const void* d) {
  return p.output == DType::s32 && padded_m(p.m) == p.m && padded_n(p.n) == p.n &&
         p.stride_d % 4 == 0 && reinterpret_cast<std::uintptr_t>(d) % 16 == 0;
}

std::vector<GemmConfig> algorithm_candidates(Runtime& device, const Product& product,
                                             const GemmConfig& by_default, bool all) {
  const CurrentDevice current(device.index());
  cublasLtHandle_t handle = Plans::of(device).handle();
  std::vector<GemmConfig> configs;
  for (const Candidate& candidate :
       all ? all_candidates(handle, product) : candidates(handle, product)) {
    GemmConfig config = by_default;
    config.algorithm = candidate.place;
    config.cublaslt = candidate.choice;
    configs.push_back(config);
  }
  return configs;
}

void queue_epilogue(Runtime& device, const GemmProblem& p, const GemmOperands& o,
                    const std::int32_t* sums, std::int64_t stride_sums, std::int64_t first,
                    std::int64_t rows, cudaStream_t stream) {
  const auto element = static_cast<std::int64_t>(dtype_size_bytes(p.output));
  EpilogueArguments e{};
  e.acc = sums;
  e.acc_stride = stride_sums;
  e.d = static_cast<char*>(o.d) + first * p.stride_d * element;
  e.d_stride = p.stride_d;
  e.rows = rows;
  e.cols = p.n;
  if (p.scale != ScaleMode::none) {
    e.absmax_a = o.absmax_a + first;
    e.absmax_b = o.absmax_b;
    e.scalar_b = p.scale == ScaleMode::row_scalar;
    e.bias = p.has_bias ? o.bias : nullptr;
    e.bias_type = p.bias;
  }
  check(launch_epilogue(p.output, e, device.info().multiprocessors, stream), "kernel epilogue");
}

std::int64_t library_workspace(const gemm_int8::GemmProblem&, const gemm_int8::GemmConfig& config) {
  return workspace_bytes(config.cublaslt);
}

std::string_view cublaslt_unavailable(const ContextState&) {
  return CublasLt::missing();
}

}  // namespace switchback::products::cuda
