// SPDX-License-Identifier: Apache-2.0
// Engine zone: the functions that launch our own kernels for int8 products: epilogue, padding,
// dp4a.
#pragma once

#include <cstdint>

#include "core/cuda/api.hpp"
#include "core/cuda/groups.hpp"
#include "switchback/types.hpp"

namespace switchback::products::cuda {

/// d[rows,cols] = absmax_b · (absmax_a · (acc · c)) + bias, rounded once; or the unchanged sums.
struct EpilogueArguments {
  const std::int32_t* acc;  ///< null: all sums are zero
  std::int64_t acc_stride;
  void* d;
  std::int64_t d_stride;
  std::int64_t rows;
  std::int64_t cols;
  const float* absmax_a;  ///< [rows]; null: no scales, d is s32
  const float* absmax_b;  ///< [cols], or [1] if scalar_b
  const void* bias;       ///< [cols]; null: no bias
  DType bias_type;
  bool scalar_b;
};
cudaError_t launch_epilogue(DType output, const EpilogueArguments& arguments, int multiprocessors,
                            cudaStream_t stream);

/// to[to_rows,to_stride] = from[rows,cols], padded with zeros. `to` must be 16-byte aligned and
/// to_stride a multiple of 16.
struct PadArguments {
  const std::int8_t* from;
  std::int64_t rows;
  std::int64_t cols;
  std::int64_t from_stride;
  std::int8_t* to;
  std::int64_t to_rows;
  std::int64_t to_stride;
};
cudaError_t launch_pad(const PadArguments& arguments, cudaStream_t stream);
/// As launch_pad(), with the transpose of `from`, [cols,rows]. Both addresses and strides must be
/// multiples of 16, and rows of `from` must have zeros up to from_stride.
cudaError_t launch_transpose(const PadArguments& arguments, cudaStream_t stream);

/// acc[m,n] = a[m,k] · b[n,k]ᵀ by dp4a, at any size, stride and alignment. With `overlaps` it may
/// begin before the preceding kernel has ended.
struct Dp4aArguments {
  const std::int8_t* a;
  const std::int8_t* b;
  std::int32_t* acc;
  std::int64_t m, n, k, a_stride, b_stride, acc_stride;
};
cudaError_t launch_dp4a(const Dp4aArguments& arguments, bool overlaps, cudaStream_t stream);

/// The product by dp4a of each group's rows of a and the group's own matrix b, in one launch. The
/// launch also applies the epilogue, as launch_epilogue() does. k may be zero.
struct GroupedDp4aArguments {
  core::cuda::GroupArrays groups;
  const std::int8_t* a;  ///< address of the row of slot 0
  std::int64_t a_stride;
  const std::int8_t* b;  ///< address of the matrix of group 0
  std::int64_t b_stride;
  std::int64_t b_step;  ///< distance between the b of consecutive groups
  void* d;              ///< address of the result of slot 0 and group 0
  std::int64_t d_stride;
  std::int64_t d_column_stride;  ///< if above zero: step from one group's d to the next
  std::int64_t n, k;
  const float* absmax_a;  ///< [slots]; null: no scales, d is s32
  const float* absmax_b;  ///< [groups, n], or [groups] if scalar_b
  const void* bias;       ///< [groups, n]; null: no bias
  DType bias_type;
  bool scalar_b;
};
cudaError_t launch_grouped_dp4a(DType output, const GroupedDp4aArguments& arguments,
                                cudaStream_t stream);

}  // namespace switchback::products::cuda
