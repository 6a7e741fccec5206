// SPDX-License-Identifier: Apache-2.0
// Engine zone: the launcher of the blockwise product.
#pragma once

#include <cstdint>

#include "core/cuda/api.hpp"
#include "switchback/types.hpp"

namespace switchback::blockwise::SWITCHBACK_CUDA_NS {

/// d[n,k] (+)= a[n,m] · b[k,m]ᵀ in blocks of block_rows codes along m, at any stride and alignment.
struct BlockwiseArguments {
  const std::int8_t* a;
  const std::int8_t* b;
  const float* absmax_a;  ///< [blocks,n]
  const float* absmax_b;  ///< [blocks,k]
  void* d;
  std::int64_t n, k;
  std::int64_t m;  ///< codes of a row that are multiplied; the others are 0
  std::int64_t blocks, block_rows, superblock;  ///< superblock: in blocks
  std::int64_t a_stride, b_stride, d_stride;
  bool accumulate;
};
cudaError_t launch_blockwise(DType output, const BlockwiseArguments& arguments,
                             cudaStream_t stream);

}  // namespace switchback::blockwise::SWITCHBACK_CUDA_NS
