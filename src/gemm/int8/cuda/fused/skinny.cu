// SPDX-License-Identifier: Apache-2.0
// Engine zone: the fused product for few rows, where most time goes into reading b. It does not
// need CUTLASS: one kernel for 8.0 and later, with mma.sync and cp.async.
//
// Lower bound: reading b from memory. A block has 32 columns of d, so that 4096 columns keep 128
// multiprocessors busy. The block's warps divide the inner dimension among them. Each warp copies
// its own stages, in lines of 128 bytes a row (with 64 bytes the L2 cache gives half its rate). It
// waits for other warps only at the end, when the block adds the sums and scales them.
//
// Measured on an H200 (data/records/h200): 16x4096x4096 takes 10 us between two events. An empty
// kernel takes 5 to 6 us between them, and reading b 4 us.
#include "core/cuda/launch.cuh"
#include "core/cuda/ptx.cuh"
#include "gemm/int8/cuda/dequantize.cuh"
#include "gemm/int8/cuda/fused/fused.hpp"

namespace switchback::products::cuda {

namespace {

using core::cuda::AsyncCopies;
using core::cuda::divide_up;
using core::cuda::multiply_add_16x8x32;
using core::cuda::narrow;

// The shape of the kernel's tile. The kernel computes dᵀ = b · aᵀ, so columns of d are rows of b.
// Columns is a multiple of 16 and Rows of 8, because the instruction has 16 rows of its first
// factor and 8 of its second.
template <int Rows, int Columns, int Warps, int Stages>
struct Skinny {
  static constexpr int rows = Rows;
  static constexpr int columns = Columns;
  static constexpr int warps = Warps;
  static constexpr int stages = Stages;
  static constexpr int threads = 32 * Warps;
  static constexpr int depth = 128;          // int8 elements of a stage, along k
  static constexpr int pieces = depth / 16;  // 16-byte pieces of a row in a stage
  static constexpr int across = Columns / 16;
  static constexpr int down = Rows / 8;
  static constexpr int lines = Columns + Rows;  // rows of a stage: those of b, then those of a
  static constexpr std::size_t stage_bytes = std::size_t{lines} * depth;
  static constexpr std::size_t sum_bytes = std::size_t{Warps} * across * down * 32 * sizeof(int4);
  static constexpr std::size_t shared_bytes =
      Warps * Stages * stage_bytes > sum_bytes ? Warps* Stages* stage_bytes : sum_bytes;
};

// The position of a 16-byte piece of a row in a stage. Adjacent rows are in different halves of the
// banks. So the eight lanes of an access, which read four pieces of each of two rows, use all
// banks.
template <class S>
__device__ __forceinline__ int place(int row, int piece) {
  return row * S::pieces + (piece ^ (row % 2 * 4));
}

// Copies a stage of b and a, from element k0 on. A lane copies piece lane % 8 of every fourth row.
template <class S, class Copies>
__device__ __forceinline__ void copy_stage(Copies& copies, uint4* stage, const FusedArguments& p,
                                           std::int64_t column0, int k0, int lane) {
  const int piece = lane % S::pieces;
  const int k = k0 + 16 * piece;
  const bool inside = k < p.k;
  const auto copy = [&](int line, const std::int8_t* from, std::int64_t row, std::int64_t rows,
                        std::int64_t stride) {
    const bool there = inside && row < rows;
    copies.add(stage + place<S>(line, piece),
               reinterpret_cast<const uint4*>(there ? from + row * stride + k : from), there);
  };
#pragma unroll
  for (int line = 0; line < S::columns; line += 4)
    copy(line + lane / 8, p.b, column0 + line + lane / 8, p.n, p.b_stride);
#pragma unroll
  for (int line = 0; line < S::rows; line += 4)
    copy(S::columns + line + lane / 8, p.a, line + lane / 8, p.m, p.a_stride);
}

// Adds the products of a stage. A lane's piece of a row, 16 bytes, is enough for two instructions.
// Which of the 128 elements meet in one instruction does not matter, as it is the same for both
// factors.
template <class S>
__device__ __forceinline__ void add_stage(const uint4* stage, int lane,
                                          int (&sums)[S::across][S::down][4]) {
  const int row = lane / 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int piece = 4 * half + lane % 4;
    uint4 a[S::down];
#pragma unroll
    for (int j = 0; j < S::down; ++j)
      a[j] = stage[place<S>(S::columns + 8 * j + row, piece)];
#pragma unroll
    for (int i = 0; i < S::across; ++i) {
      const uint4 low = stage[place<S>(16 * i + row, piece)];
      const uint4 high = stage[place<S>(16 * i + 8 + row, piece)];
      const int first[4] = {static_cast<int>(low.x), static_cast<int>(high.x),
                            static_cast<int>(low.y), static_cast<int>(high.y)};
      const int second[4] = {static_cast<int>(low.z), static_cast<int>(high.z),
                             static_cast<int>(low.w), static_cast<int>(high.w)};
#pragma unroll
      for (int j = 0; j < S::down; ++j) {
        const int other[2] = {static_cast<int>(a[j].x), static_cast<int>(a[j].y)};
        multiply_add_16x8x32(sums[i][j], first, other, sums[i][j]);
      }
#pragma unroll
      for (int j = 0; j < S::down; ++j) {
        const int other[2] = {static_cast<int>(a[j].z), static_cast<int>(a[j].w)};
        multiply_add_16x8x32(sums[i][j], second, other, sums[i][j]);
      }
    }
  }
}

template <class Out>
__device__ __forceinline__ void store(const FusedArguments& p, int row, std::int64_t column,
                                      int sum) {
  if (row >= p.m || column >= p.n) return;
  const float scale_b = load_float(p.absmax_b, DType::f32, p.scalar_b ? 0 : column);
  const float bias = p.bias != nullptr ? load_float(p.bias, p.bias_type, column) : no_bias;
  static_cast<Out*>(p.d)[row * p.d_stride + column] =
      narrow<Out>(dequantize(sum, p.absmax_a[row], scale_b, bias));
}

template <class Out, class S>
__global__ void __launch_bounds__(S::threads) skinny_kernel(FusedArguments p) {
  SWITCHBACK_DYNAMIC_SHARED(uint4, shared);
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  // The shuffle tells the compiler that all lanes of a warp have the same value.
  const int warp = __shfl_sync(0xFFFFFFFFu, thread / 32, 0);
  const std::int64_t column0 = static_cast<std::int64_t>(blockIdx.x) * S::columns;
  constexpr int stage_pieces = S::lines * S::pieces;
  uint4* const stages = shared + warp * S::stages * stage_pieces;
  constexpr int step = S::warps * S::depth;  // warps take stages alternately
  core::cuda::wait_for_kernel_before();
  core::cuda::let_next_kernel_begin();

  AsyncCopies<S::stages * S::lines / 4> copies;
  int next = warp * S::depth;  // the next element along k to copy
  const auto begin_copy = [&](int stage) {
    if (next < p.k) copy_stage<S>(copies, stages + stage * stage_pieces, p, column0, next, lane);
    copies.end_group();
    next += step;
  };
#pragma unroll
  for (int stage = 0; stage < S::stages; ++stage)
    begin_copy(stage);
  int sums[S::across][S::down][4] = {};
  int stage = 0;
  for (int k = warp * S::depth; k < p.k; k += step) {
    copies.wait(S::stages - 1);
    __syncwarp();  // each lane sees what the others copied
    add_stage<S>(stages + stage * stage_pieces, lane, sums);
    __syncwarp();  // no lane overwrites what another lane still reads
    begin_copy(stage);
    stage = stage + 1 == S::stages ? 0 : stage + 1;
  }
  copies.wait(0);
  __syncthreads();

  // Adds the sums of all warps, four of each lane at a time.
  constexpr int fours = S::across * S::down * 32;
  auto* const all = reinterpret_cast<int4*>(shared);
#pragma unroll
  for (int i = 0; i < S::across; ++i)
#pragma unroll
    for (int j = 0; j < S::down; ++j)
      all[warp * fours + (i * S::down + j) * 32 + lane] =
          make_int4(sums[i][j][0], sums[i][j][1], sums[i][j][2], sums[i][j][3]);
  __syncthreads();
  for (int four = thread; four < fours; four += S::threads) {
    int4 sum = all[four];
#pragma unroll
    for (int other = 1; other < S::warps; ++other) {
      const int4 more = all[other * fours + four];
      sum.x += more.x;
      sum.y += more.y;
      sum.z += more.z;
      sum.w += more.w;
    }
    const int tile = four / 32;
    const std::int64_t column = column0 + tile / S::down * 16 + lane / 4;
    const int row = tile % S::down * 8 + lane % 4 * 2;
    store<Out>(p, row, column, sum.x);
    store<Out>(p, row + 1, column, sum.y);
    store<Out>(p, row, column + 8, sum.z);
    store<Out>(p, row + 1, column + 8, sum.w);
  }
}

std::size_t no_workspace(DType, const FusedArguments&) {
  return 0;
}

template <class S>
cudaError_t launch_skinny(DType output, const FusedArguments& p, void*, cudaStream_t stream) {
  return core::cuda::for_type(output, [&]<class Out>(Out) {
    auto* const kernel = &skinny_kernel<Out, S>;
    if (const cudaError_t status = core::cuda::allow_shared(kernel, S::shared_bytes);
        status != cudaSuccess)
      return status;
    return core::cuda::launch_behind("skinny", p.overlaps, kernel,
                                     dim3(static_cast<unsigned>(divide_up(p.n, S::columns))),
                                     dim3(S::threads), S::shared_bytes, stream, p);
  });
}

template <int Rows, int Columns, int Warps, int Stages>
constexpr FusedVariant skinny() {
  using S = Skinny<Rows, Columns, Warps, Stages>;
  FusedVariant variant{};
  variant.tile_m = Rows;
  variant.tile_n = Columns;
  variant.tile_k = S::depth;
  variant.cluster = 1;
  variant.shared_bytes = S::shared_bytes;
  variant.workspace_bytes = no_workspace;
  variant.launch = launch_skinny<S>;
  variant.skinny = true;
  variant.cannot_hang = true;
  return variant;
}

}  // namespace

// The kernel uses 96 KiB of shared memory: that fits into the shared memory of 8.6, 8.9 and 12.x,
// and twice into that of 9.0. With 32 rows it was no faster than tiles of 64x64 and 64x128 on an
// H200.
const FusedVariant fused_skinny = skinny<16, 32, 8, 2>();

}  // namespace switchback::products::cuda
