// SPDX-License-Identifier: Apache-2.0
// Engine zone: converts int32 sums to d, with a MicroKernel's epilogue.
#pragma once

#include <cstdint>

#include "core/workspace.hpp"
#include "gemm/int8/cpu/micro_kernel.hpp"
#include "gemm/int8/problem.hpp"

namespace switchback::gemm_int8 {

constexpr Output output_of(DType dtype) {
  return static_cast<Output>(dtype);
}

/// Scales and bias as epilogues read them: aligned f32, one value per row or column.
struct EpilogueScales {
  const float* scale_a = nullptr;  ///< [m]
  const float* scale_b = nullptr;  ///< scale of each column, [n rounded up to 64]
  /// bias of each column, [n rounded up to 64]; −0 if there is no bias
  const float* bias = nullptr;
};

/// The length of scale_b and bias: n, rounded up to the widest tile.
constexpr std::int64_t padded_columns(std::int64_t n) {
  constexpr std::int64_t multiple = MicroKernel::max_cols;
  return (n + multiple - 1) / multiple * multiple;
}

/// Writes scale_b and bias of a problem that has scales; each is padded_columns(n) long.
void fill_column_scales(const GemmProblem& problem, const GemmOperands& operands, float* scale_b,
                        float* bias);

/// The scales of a problem; empty for int32 outputs.
EpilogueScales epilogue_scales(core::Workspace::Frame& frame, const GemmProblem& problem,
                               const GemmOperands& operands);

/// A part of d.
struct Part {
  std::int64_t row, col, rows, cols;
};

/// Sets the arguments of an epilogue for a part of d, except `streams`. It writes them in place
/// instead of returning a struct. Copying a struct that was just written would wait for all earlier
/// stores, including those to d.
void set_epilogue_tile(const GemmProblem& problem, void* d, const EpilogueScales& scales,
                       const Part& part, const std::int32_t* sums, std::int64_t stride_sums,
                       EpilogueTile& tile);

/// Converts the int32 sums of a part of d, and writes that part.
void run_epilogue(const MicroKernel& kernel, const GemmProblem& problem, void* d,
                  const EpilogueScales& scales, const Part& part, const std::int32_t* sums,
                  std::int64_t stride_sums);

}  // namespace switchback::gemm_int8
