// SPDX-License-Identifier: Apache-2.0
// The blockwise product on tensor cores (mma.sync m16n8k32 of signed bytes).
#include <type_traits>

#include "core/cuda/launch.cuh"
#include "core/cuda/ptx.cuh"
#include "gemm/blockwise/cuda/kernels.hpp"
#include "gemm/blockwise/cuda/tile.cuh"

namespace switchback::blockwise::cuda {

namespace {

using core::cuda::load_matrices;
using core::cuda::multiply_add_16x8x32;
using core::cuda::shared_place;

using LargeTile = Tile<2, 4, 4, 4, 4, mma_large.blocks>;
using SmallTile = Tile<2, 2, 2, 4, 3, mma_small.blocks>;
static_assert(LargeTile::rows == mma_large.side && LargeTile::columns == mma_large.side);
static_assert(SmallTile::rows == mma_small.side && SmallTile::columns == mma_small.side);

template <class T>
struct Shared {
  // The codes of the rows of a, then those of b. The 16-byte pieces of a row are permuted, so that
  // pieces with the same index in eight rows are in different banks.
  uint4 codes[T::stages][T::rows + T::columns][pieces];
  // two sets of scales, which blocks use alternately; then a set of zeros
  float scales[3][T::rows + T::columns];
};
static_assert(sizeof(Shared<LargeTile>) == mma_large.shared_bytes);
static_assert(sizeof(Shared<SmallTile>) == mma_small.shared_bytes);

template <class T>
struct Fragments {
  int a[T::down][4];
  int b[T::across][2];
};

// A thread's int32 sums of a block and f32 sums of a superblock. The int32 sums of blocks of up to
// 260 rows are below 2^22. With `by_bits` they start as the bits of the float 1.5 · 2^23. Adding a
// sum to these bits gives the bits of the float 1.5 · 2^23 + sum, so that a subtraction converts it
// to f32.
template <class T, bool by_bits>
struct Sums {
  static constexpr int start = by_bits ? 0x4B400000 : 0;
  int of_block[T::down][T::across][4];
  float of_superblock[T::down][T::across][4];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < T::down; ++i)
#pragma unroll
      for (int j = 0; j < T::across; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          of_block[i][j][e] = start;
          of_superblock[i][j][e] = 0.0f;
        }
  }

  // If `promotes`, scales the int32 sums of a block and adds them to the f32 sums. Then, if
  // `multiplies`, begins the int32 sums of the next block. It does so product by product: CUDA
  // cores scale a product while the tensor cores compute the earlier ones.
  template <bool promotes, bool multiplies>
  __device__ __forceinline__ void step(const Fragments<T>& f, const float* scales, Lane<T> at) {
    constexpr int starts[4] = {start, start, start, start};
    float2 of_columns[T::across];
    if constexpr (promotes) {
#pragma unroll
      for (int j = 0; j < T::across; ++j)
        of_columns[j] = *reinterpret_cast<const float2*>(scales + T::rows + at.column + 8 * j);
    }
#pragma unroll
    for (int i = 0; i < T::down; ++i) {
      float of_rows[2] = {};
      if constexpr (promotes) {
        of_rows[0] = scales[at.row + 16 * i];
        of_rows[1] = scales[at.row + 16 * i + 8];
      }
#pragma unroll
      for (int j = 0; j < T::across; ++j) {
        if constexpr (promotes) {
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const int sum = of_block[i][j][e];
            const float value =
                by_bits ? __fsub_rn(__int_as_float(sum), 12582912.0f) : __int2float_rn(sum);
            of_superblock[i][j][e] =
                __fmaf_rn(__fmul_rn(value, e % 2 == 0 ? of_columns[j].x : of_columns[j].y),
                          of_rows[e / 2], of_superblock[i][j][e]);
          }
        }
        if constexpr (multiplies && promotes)
          multiply_add_16x8x32(of_block[i][j], f.a[i], f.b[j], starts);
        else if constexpr (multiplies)
          multiply_add_16x8x32(of_block[i][j], f.a[i], f.b[j], of_block[i][j]);
      }
    }
  }
};

// Lower bound: the tensor cores, with n · k · m / 4096 IMMA. A warp reads the first half of the
// next step from shared memory while the second half of this step is multiplied. So the tensor
// cores have work at each barrier.
//
// Instructions of a warp for a step, on 8.0 (on 9.0 in parentheses):
//    large tile: 81 (83), of these 32 IMMA, 12 LDSM, 4 LDGSTS
//    small tile: 61 (62), of these 16 IMMA, 8 LDSM, 4 LDGSTS
//
// The large tile's first step of a block has 329 (335), 192 of them to scale the sums of the
// previous block. With 4 steps per block (256 rows), 22 % of the instructions are IMMA.
//
// Shared memory, for each IMMA: the large tile reads 192 bytes and writes 64, the small tile reads
// 256 and writes 128. 8.0 starts an IMMA every two clocks. There the large tile needs at most the
// whole bandwidth of shared memory, the small tile 1.5 times as much. 8.6 and 8.9 have half the
// tensor rate.
//
// The large tile needs at most 255 registers, the small one 168; neither spills. Another register
// array, for d, would not fit: between superblocks d is kept in a slot in global memory. (These
// numbers are counted. On an H200 the kernel was right and had 529 TOPS at 8192x4096x4096,
// data/records/h200.)
template <class Out, class T, bool by_bits>
__global__ void __launch_bounds__(T::threads, T::blocks) blockwise_mma_kernel(TileArguments a) {
  SWITCHBACK_DYNAMIC_SHARED(Shared<T>, shared);
  const BlockwiseArguments& p = a.product;
  const auto thread = static_cast<int>(threadIdx.x);
  const Lane<T> at(threadIdx.x);

  // The addresses of a lane for the loads of fragments (ldmatrix). For 16 rows and 32 codes of a,
  // it addresses row lane % 16 of piece lane / 16. For two times 8 rows and 32 codes of b, it
  // addresses row lane % 8: pieces 0 and 1 of the first 8 rows, then those of the second. Any 8 or
  // 16 rows permute their pieces in the same way.
  const int lane = thread % 32;
  const int warp = thread / 32;
  constexpr int row_bytes = step_codes;
  constexpr unsigned stage_bytes = TileOperands<T>::stage_bytes;
  const auto place_of = [](int row, int piece) {
    return piece_bytes * static_cast<unsigned>(place_of_piece(row, piece));
  };
  const int a_row = warp / T::warps_across * T::warp_rows + lane % 16;
  const int b_row = T::rows + warp % T::warps_across * T::warp_columns + lane % 8 + lane / 16 * 8;
  const unsigned codes = shared_place(shared);
  const unsigned a_place = place_of(a_row, lane / 16);
  const unsigned b_place = place_of(b_row, lane / 8 % 2);
  constexpr unsigned next_half = 2 * piece_bytes;
  const auto load = [&](Fragments<T>& f, unsigned stage, unsigned half) {
#pragma unroll
    for (int i = 0; i < T::down; ++i)
      load_matrices(f.a[i], shared, codes + (a_place ^ half) + stage + i * 16 * row_bytes);
#pragma unroll
    for (int j = 0; j < T::across; j += 2) {
      int both[4];
      load_matrices(both, shared, codes + (b_place ^ half) + stage + j * 8 * row_bytes);
      f.b[j][0] = both[0];
      f.b[j][1] = both[1];
      f.b[j + 1][0] = both[2];
      f.b[j + 1][1] = both[3];
    }
  };

  constexpr int stages = T::stages;
  const auto steps_of_block = static_cast<int>(p.block_rows / step_codes);
  const int steps_of_superblock = static_cast<int>(p.superblock) * steps_of_block;
  typename TileOperands<T>::Copies copies;
  Sums<T, by_bits> sums;
  shared->scales[2][thread] = 0.0f;
#pragma unroll 1
  for (unsigned job = blockIdx.x; job < a.jobs; job += gridDim.x) {
    const Place place(a, job, T::rows, T::columns);
    // A group without rows leaves d unchanged if d accumulates. Otherwise its d is computed from
    // sums of zero.
    if (place.steps == 0 && p.accumulate) continue;
    TileOperands<T> operands(p, place);
    const auto copy = [&](unsigned to_stage) {
      operands.copy(copies, &shared->codes[0][0][0], to_stage);
    };
    // After this barrier all threads have read the last job's stages and scales, and they may be
    // overwritten.
    __syncthreads();
    unsigned block = place.first;
    float scale = operands.scale_of(block);
    const int steps = place.steps;
#pragma unroll
    for (int s = 0; s < stages - 1; ++s) {
      if (s < steps) copy(static_cast<unsigned>(s) * stage_bytes);
      copies.end_group();
    }
    sums.clear();
    Fragments<T> first;
    Fragments<T> second;
    copies.wait(stages - 2);
    __syncthreads();
    load(first, 0, 0);

    unsigned stage = 0;
    int s = 0;
    const auto step = [&](auto promoting, unsigned scales) {
      constexpr bool promotes = decltype(promoting)::value;
      if constexpr (promotes) sums.template step<true, true>(first, shared->scales[scales], at);
      load(second, stage, next_half);
      // Copies codes into the stage of the previous step, which all threads have read.
      if (s + stages - 1 < steps)
        copy(stage == 0 ? (stages - 1) * stage_bytes : stage - stage_bytes);
      copies.end_group();
      if constexpr (!promotes) sums.template step<false, true>(first, nullptr, at);
      copies.wait(stages - 2);
      __syncthreads();
      stage = stage == (stages - 1) * stage_bytes ? 0 : stage + stage_bytes;
      // After the last step this loads values that are not used.
      load(first, stage, 0);
      sums.template step<false, true>(second, nullptr, at);
      ++s;
    };
#pragma unroll 1
    for (unsigned superblock = 0;; ++superblock) {
      const int end = min(steps, s + steps_of_superblock);
      unsigned before = 2;
#pragma unroll 1
      while (s < end) {
        // The scales may be stored here: a barrier follows before they are read, and a barrier came
        // after the scales that they overwrite were last read.
        const unsigned scales = block % 2;
        shared->scales[scales][thread] = scale;
        ++block;
        const int block_end = min(end, s + steps_of_block);
        if (block_end < steps) scale = operands.scale_of(block);
        step(std::true_type{}, before);
        before = scales;
#pragma unroll 1
        while (s < block_end)
          step(std::false_type{}, 0);
      }
      sums.template step<true, false>(first, shared->scales[before], at);

      if (finish_superblock<Out, T>(a, job, superblock == 0, s == steps, sums.of_superblock)) break;
      sums.clear();
    }
  }
}

template <class Out, class T, bool by_bits>
cudaError_t start(const TileArguments& a, unsigned blocks, cudaStream_t stream) {
  const auto kernel = blockwise_mma_kernel<Out, T, by_bits>;
  constexpr std::size_t unasked_bytes = std::size_t{48} << 10;
  if constexpr (sizeof(Shared<T>) > unasked_bytes) {
    const cudaError_t status = core::cuda::allow_shared(kernel, sizeof(Shared<T>));
    if (status != cudaSuccess) return status;
  }
  const cudaError_t status =
      launch("blockwise_mma", kernel, dim3(blocks), dim3(T::threads), sizeof(Shared<T>), stream, a);
  return status != cudaSuccess ? status : launch_parts<Out, T>(a, stream);
}

template <class Out, class T>
cudaError_t start(const TileArguments& a, unsigned blocks, cudaStream_t stream) {
  // The conversion by bits needs sums below 2^22, and 127 · 127 · 260 < 2^22.
  return a.product.block_rows <= 260 ? start<Out, T, true>(a, blocks, stream)
                                     : start<Out, T, false>(a, blocks, stream);
}

template <class Out>
cudaError_t start(const MmaTile& tile, const TileArguments& a, unsigned blocks,
                  cudaStream_t stream) {
  return tile.side == mma_large.side ? start<Out, LargeTile>(a, blocks, stream)
                                     : start<Out, SmallTile>(a, blocks, stream);
}

}  // namespace

cudaError_t launch_blockwise_mma(DType output, const MmaTile& tile, const TileArguments& a,
                                 unsigned blocks, cudaStream_t stream) {
  return core::cuda::for_type(output,
                              [&]<class Out>(Out) { return start<Out>(tile, a, blocks, stream); });
}

}  // namespace switchback::blockwise::cuda
