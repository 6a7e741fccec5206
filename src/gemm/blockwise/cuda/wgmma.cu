// SPDX-License-Identifier: Apache-2.0
// The blockwise product on the tensor cores of 9.0 (wgmma m64n128k32 of signed bytes; code
// for 9.0a, which runs on nothing else).
#include <type_traits>

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define SWITCHBACK_CUDA_WGMMA 1
#endif
#include "core/cuda/launch.cuh"
#include "core/cuda/ptx.cuh"
#include "core/cuda/wgmma.cuh"
#include "gemm/blockwise/cuda/kernels.hpp"
#include "gemm/blockwise/cuda/tile.cuh"

namespace switchback::blockwise::SWITCHBACK_CUDA_NS {

namespace {

using core::SWITCHBACK_CUDA_NS::matrix_descriptor_64;
using core::SWITCHBACK_CUDA_NS::shared_place;
using core::SWITCHBACK_CUDA_NS::WarpgroupProducts;

// A warpgroup has 64 rows of a and all of b's: a warp 16 rows.
using T = Tile<8, 1, 1, 16, 6, wgmma_tile.blocks>;
static_assert(T::rows == wgmma_tile.side && T::columns == wgmma_tile.side);

constexpr unsigned row_bytes = step_codes;
constexpr unsigned group_bytes = 8 * row_bytes;  // also what operands begin at multiples of
constexpr unsigned warpgroup_rows = 64;

struct Shared {
  // Of rows of a, then of b, in the swizzle of 64 bytes.
  uint4 codes[T::stages][T::rows + T::columns][pieces];
  float scales[4][T::rows + T::columns];  // of blocks in turn; zeros
};
static_assert(sizeof(Shared) + group_bytes == wgmma_tile.shared_bytes);

using Sums = WarpgroupProducts::Sums;

// Adds a block's sums with the scales of its rows and columns.
__device__ __forceinline__ void promote(Values<T>& of_superblock, const Sums& of_block,
                                        const float* scales, Lane<T> at) {
  const float of_rows[2] = {scales[at.row], scales[at.row + 8]};
#pragma unroll
  for (int j = 0; j < T::across; ++j) {
    const float2 of_columns =
        *reinterpret_cast<const float2*>(scales + T::rows + at.column + 8 * j);
#pragma unroll
    for (int e = 0; e < 4; ++e)
      of_superblock[0][j][e] = __fmaf_rn(
          __fmul_rn(__int2float_rn(of_block[0][j][e]), e % 2 == 0 ? of_columns.x : of_columns.y),
          of_rows[e / 2], of_superblock[0][j][e]);
  }
}

// Floor: tensor cores. Two sets of int32 sums: while one is scaled, the products of the next
// block's first step are added to the other. A step's stage is written again behind the barrier of
// the next step but one, before which its products were waited for.
template <class Out>
__global__ void __launch_bounds__(T::threads, T::blocks) blockwise_wgmma_kernel(MmaArguments a) {
  SWITCHBACK_DYNAMIC_SHARED(unsigned char, unaligned);
  const unsigned behind_multiple = shared_place(unaligned) % group_bytes;
  unsigned char* const aligned =
      unaligned + (behind_multiple == 0 ? 0 : group_bytes - behind_multiple);
  auto* const shared = reinterpret_cast<Shared*>(aligned);
  const BlockwiseArguments& p = a.product;
  const auto thread = static_cast<int>(threadIdx.x);
  const Lane<T> at(threadIdx.x);

  constexpr unsigned stage_bytes = TileOperands<T>::stage_bytes;
  const unsigned codes = shared_place(shared);
  const unsigned first_row = threadIdx.x / 128 * warpgroup_rows;

  constexpr int stages = T::stages;
  constexpr int ahead = stages - 2;  // steps whose copies are under way or done
  const auto steps_of_block = static_cast<int>(p.block_rows / step_codes);
  const int steps_of_superblock = static_cast<int>(p.superblock) * steps_of_block;
  TileOperands<T>::Copies copies;
  WarpgroupProducts products;
  shared->scales[3][thread] = 0.0f;
#pragma unroll 1
  for (unsigned job = blockIdx.x; job < a.jobs; job += gridDim.x) {
    const Place place(a, job, T::rows, T::columns);
    TileOperands<T> operands(p, place);
    const auto copy = [&](unsigned to_stage) {
      operands.copy(copies, &shared->codes[0][0][0], to_stage);
    };
    // The last job's stages and scales have been read.
    __syncthreads();
    unsigned block = place.first;
    float scale = operands.scale_of(block);
    const int steps = place.steps;
#pragma unroll
    for (int s = 0; s < ahead; ++s) {
      if (s < steps) copy(static_cast<unsigned>(s) * stage_bytes);
      copies.end_group();
    }

    Values<T> of_superblock;
    Sums even;
    Sums odd;
    const auto clear = [&] {
#pragma unroll
      for (int j = 0; j < T::across; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          of_superblock[0][j][e] = 0.0f;
          odd[0][j][e] = 0;
        }
    };
    clear();
    unsigned stage = 0;
    int s = 0;
    // Adds a step's products to `sums`; when those before it are there, and if it is a block's
    // first step, scales the block before's.
    const auto step = [&](auto first, Sums& sums, Sums& before, unsigned scales) {
      constexpr bool is_first = decltype(first)::value;
      copies.wait(ahead - 1);
      WarpgroupProducts::publish_shared();
      __syncthreads();
      products.begin_group(sums);
#pragma unroll
      for (unsigned half = 0; half < 2; ++half) {
        const unsigned from = codes + stage + half * 32;
        products.multiply(
            sums, shared, matrix_descriptor_64(from + first_row * row_bytes, group_bytes),
            matrix_descriptor_64(from + T::rows * row_bytes, group_bytes), !is_first || half > 0);
      }
      products.end_group();
      if (s + ahead < steps)
        copy(stage >= 2 * stage_bytes ? stage - 2 * stage_bytes : stage + ahead * stage_bytes);
      copies.end_group();
      stage = stage == (stages - 1) * stage_bytes ? 0 : stage + stage_bytes;
      if constexpr (is_first) {
        products.wait<1>(before);
        promote(of_superblock, before, shared->scales[scales], at);
      } else {
        products.wait<1>();
      }
      ++s;
    };
#pragma unroll 1
    for (unsigned superblock = 0;; ++superblock) {
      const int end = min(steps, s + steps_of_superblock);
      unsigned before = 3;
      const auto multiply_block = [&](Sums& sums, Sums& sums_before) {
        // There is a barrier before anyone reads it, and was one behind the last who did: the first
        // step of the block before this one scaled the one before that, which has another third.
        const unsigned scales = block % 3;
        shared->scales[scales][thread] = scale;
        ++block;
        const int block_end = min(end, s + steps_of_block);
        if (block_end < steps) scale = operands.scale_of(block);
        step(std::true_type{}, sums, sums_before, before);
        before = scales;
#pragma unroll 1
        while (s < block_end)
          step(std::false_type{}, sums, sums_before, 0);
      };
      const auto finish = [&](Sums& sums) {
        products.wait<0>(sums);
        promote(of_superblock, sums, shared->scales[before], at);
      };
#pragma unroll 1
      while (true) {
        multiply_block(even, odd);
        if (s == end) {
          finish(even);
          break;
        }
        multiply_block(odd, even);
        if (s == end) {
          finish(odd);
          break;
        }
      }

      if (finish_superblock<Out, T>(a, job, superblock == 0, s == steps, of_superblock)) break;
      clear();
    }
  }
}

template <class Out>
cudaError_t start(const MmaArguments& a, unsigned blocks, cudaStream_t stream) {
  const auto kernel = blockwise_wgmma_kernel<Out>;
  cudaError_t status = core::SWITCHBACK_CUDA_NS::allow_shared(kernel, wgmma_tile.shared_bytes);
  if (status == cudaSuccess)
    status = launch("blockwise_wgmma", kernel, dim3(blocks), dim3(T::threads),
                    wgmma_tile.shared_bytes, stream, a);
  return status != cudaSuccess ? status : launch_parts<Out, T>(a, stream);
}

}  // namespace

cudaError_t launch_blockwise_wgmma(DType output, const MmaArguments& a, unsigned blocks,
                                   cudaStream_t stream) {
  return core::SWITCHBACK_CUDA_NS::for_type(
      output, [&]<class Out>(Out) { return start<Out>(a, blocks, stream); });
}

}  // namespace switchback::blockwise::SWITCHBACK_CUDA_NS
