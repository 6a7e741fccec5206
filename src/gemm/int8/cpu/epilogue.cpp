// SPDX-License-Identifier: Apache-2.0
#include "gemm/int8/cpu/epilogue.hpp"

#include <algorithm>
#include <cstring>

#include "core/unaligned.hpp"

namespace switchback::gemm_int8 {

static_assert(output_of(DType::f32) == Output::f32 && output_of(DType::f16) == Output::f16 &&
              output_of(DType::bf16) == Output::bf16 && output_of(DType::s32) == Output::s32);

void fill_column_scales(const GemmProblem& p, const GemmOperands& o, float* scale_b, float* bias) {
  const auto bytes = static_cast<std::size_t>(p.n) * sizeof(float);
  if (p.scale == ScaleMode::row_col)
    std::memcpy(scale_b, o.absmax_b, bytes);
  else
    std::fill_n(scale_b, p.n, core::load(o.absmax_b, 0));
  if (!p.has_bias)
    std::fill_n(bias, p.n, -0.0f);
  else if (p.bias == DType::f32)
    std::memcpy(bias, o.bias, bytes);
  else
    for (std::int64_t j = 0; j < p.n; ++j)
      bias[j] = core::load_float(o.bias, p.bias, j);
  const std::int64_t padded = padded_columns(p.n);
  std::fill(scale_b + p.n, scale_b + padded, 0.0f);
  std::fill(bias + p.n, bias + padded, 0.0f);
}

EpilogueScales epilogue_scales(core::Workspace::Frame& frame, const GemmProblem& p,
                               const GemmOperands& o) {
  if (p.scale == ScaleMode::none) return {};
  auto* scale_a = frame.take<float>(p.m);
  auto* scale_b = frame.take<float>(padded_columns(p.n));
  auto* bias = frame.take<float>(padded_columns(p.n));
  std::memcpy(scale_a, o.absmax_a, static_cast<std::size_t>(p.m) * sizeof(float));
  fill_column_scales(p, o, scale_b, bias);
  return {scale_a, scale_b, bias};
}

void set_epilogue_tile(const GemmProblem& p, void* d, const EpilogueScales& scales,
                       const Part& part, const std::int32_t* sums, std::int64_t stride_sums,
                       EpilogueTile& tile) {
  const auto element_bytes = static_cast<std::int64_t>(dtype_size_bytes(p.output));
  tile.sums = sums;
  tile.stride_sums = stride_sums;
  tile.rows = part.rows;
  tile.cols = part.cols;
  const bool scaled = scales.scale_a != nullptr;
  tile.scale_a = scaled ? scales.scale_a + part.row : nullptr;
  tile.scale_b = scaled ? scales.scale_b + part.col : nullptr;
  tile.bias = scaled ? scales.bias + part.col : nullptr;
  tile.d = static_cast<char*>(d) + (part.row * p.stride_d + part.col) * element_bytes;
  tile.stride_d_bytes = p.stride_d * element_bytes;
}

void run_epilogue(const MicroKernel& kernel, const GemmProblem& p, void* d,
                  const EpilogueScales& scales, const Part& part, const std::int32_t* sums,
                  std::int64_t stride_sums) {
  EpilogueTile tile{};
  set_epilogue_tile(p, d, scales, part, sums, stride_sums, tile);
  kernel.epilogue[static_cast<int>(p.output)](tile);
}

}  // namespace switchback::gemm_int8
