// SPDX-License-Identifier: Apache-2.0
// The parts of the blockwise kernel of mma.cu: which tile of d a job computes, where the tile's
// codes are in shared memory, and where its f32 sums go.
#pragma once

#include "core/cuda/launch.cuh"
#include "core/cuda/ptx.cuh"
#include "core/numerics.hpp"
#include "gemm/blockwise/cuda/job.cuh"
#include "gemm/blockwise/cuda/kernels.hpp"

namespace switchback::blockwise::cuda {

namespace {

using core::cuda::AsyncCopies;
using core::cuda::canonical_pairs;
using core::cuda::computed_here;
using core::cuda::launch;
using core::cuda::load_element;
using core::cuda::narrow;
using core::cuda::narrow_pair;
using core::cuda::widen;

constexpr unsigned all_lanes = 0xFFFFFFFFu;
constexpr int step_codes = 64;   // codes of each row in a stage: two mma products of 32
constexpr int piece_bytes = 16;  // bytes of one asynchronous copy
constexpr int pieces = step_codes / piece_bytes;
constexpr int strip = 8;  // rows of tiles in a strip, which is computed column by column

// A tile of d, computed by a thread block of warps_down x warps_across warps.
template <int warps_down_, int warps_across_, int down_, int across_, int stages_, int blocks_>
struct Tile {
  static constexpr int warps_down = warps_down_;
  static constexpr int warps_across = warps_across_;
  // number of mma products (16x8) of a warp, one below the other
  static constexpr int down = down_;
  static constexpr int across = across_;
  static constexpr int stages = stages_;
  static constexpr int warp_rows = 16 * down;
  static constexpr int warp_columns = 8 * across;
  static constexpr int rows = warps_down * warp_rows;
  static constexpr int columns = warps_across * warp_columns;
  static constexpr int threads = 32 * warps_down * warps_across;
  static constexpr int blocks = blocks_;  // thread blocks per multiprocessor
  static constexpr int floats = rows * columns;
  static_assert(threads == rows + columns, "each thread loads one scale");
};

__device__ __forceinline__ int place_of_piece(int row, int piece) {
  return row * pieces + (piece ^ (row / 2 % pieces));
}

// The tile of d that a job computes, and the codes that it sums.
struct Place {
  int row, column;  // the tile's first row and column in d, or in the group's d
  int first_row;    // the group's first row in d; 0 without groups
  unsigned tile;
  unsigned first;  // the first block of codes
  int steps;       // steps of 64 codes; 0: the group has no rows

  __device__ __forceinline__ Place(const TileArguments& a, unsigned job, int tile_rows,
                                   int tile_columns) {
    const BlockwiseArguments& p = a.product;
    const TileOfJob<strip> at(a, job);
    tile = at.tile;
    row = at.down * tile_rows;
    column = at.across * tile_columns;
    first_row = 0;
    if (p.block_groups != nullptr) {
      const BlockGroup group = p.block_groups[at.part];
      first_row = static_cast<int>(at.part) * static_cast<int>(p.n);
      // A group without rows may begin after the last block. Its scales are read though not used,
      // so it gets block 0.
      first = group.rows > 0 ? static_cast<unsigned>(group.first_block) : 0u;
      steps = static_cast<int>((static_cast<unsigned>(group.rows) + step_codes - 1) / step_codes);
      return;
    }
    const auto superblock = static_cast<unsigned>(p.superblock);
    first = at.part * superblock;
    const auto steps_of_block = static_cast<unsigned>(p.block_rows) / step_codes;
    const unsigned left = static_cast<unsigned>(p.m / step_codes) - first * steps_of_block;
    steps = static_cast<int>(a.parts > 1 ? min(left, superblock * steps_of_block) : left);
  }
};

// What a thread copies to shared memory for the tile of a job: 16-byte pieces with the same index,
// from rows that are rows_at_once apart, and a scale. Instead of rows outside of the operands it
// copies the last row again; results computed from it are not stored.
template <class T>
class TileOperands {
 public:
  static constexpr int rows_at_once = T::threads / pieces;
  static constexpr int copies_of_a = T::rows / rows_at_once;
  static constexpr int copies_of_b = T::columns / rows_at_once;
  static constexpr unsigned stage_bytes = (T::rows + T::columns) * step_codes;
  static_assert(T::rows % rows_at_once == 0 && T::columns % rows_at_once == 0);
  using Copies = AsyncCopies<T::stages*(copies_of_a + copies_of_b)>;

  __device__ __forceinline__ TileOperands(const BlockwiseArguments& product, const Place& place)
      : p_(product) {
    const auto thread = static_cast<int>(threadIdx.x);
    const int row = thread / pieces;
    copied_ = static_cast<unsigned>(place_of_piece(row, thread % pieces));
    scaled_ = thread < T::rows ? clamped(place.row + thread, p_.n)
                               : clamped(place.column + thread - T::rows, p_.k);
    // Offsets are counted in pieces of 16 bytes, so that 32 bits cover 64 GiB.
    const auto piece_of = [&](int of_row, std::int64_t stride) {
      return static_cast<unsigned>((of_row * stride + place.first * p_.block_rows) / piece_bytes) +
             static_cast<unsigned>(thread % pieces);
    };
#pragma unroll
    for (int i = 0; i < copies_of_a; ++i)
      a_from_[i] = piece_of(clamped(place.row + row + i * rows_at_once, p_.n), p_.a_stride);
#pragma unroll
    for (int i = 0; i < copies_of_b; ++i)
      b_from_[i] = piece_of(clamped(place.column + row + i * rows_at_once, p_.k), p_.b_stride);
  }
  [[nodiscard]] __device__ __forceinline__ float scale_of(unsigned block) const {
    return load_element(static_cast<int>(threadIdx.x) < T::rows
                            ? p_.absmax_a + (block * p_.n + scaled_)
                            : p_.absmax_b + (block * p_.k + scaled_));
  }
  // Copies the thread's pieces of the next step into a stage of `codes`.
  __device__ __forceinline__ void copy(Copies& copies, uint4* codes, unsigned to_stage) {
    uint4* const to = codes + (to_stage / piece_bytes + copied_);
#pragma unroll
    for (int i = 0; i < copies_of_a; ++i) {
      copies.add(to + i * rows_at_once * pieces, reinterpret_cast<const uint4*>(p_.a) + a_from_[i],
                 true);
      a_from_[i] += pieces;
    }
#pragma unroll
    for (int i = 0; i < copies_of_b; ++i) {
      copies.add(to + (T::rows + i * rows_at_once) * pieces,
                 reinterpret_cast<const uint4*>(p_.b) + b_from_[i], true);
      b_from_[i] += pieces;
    }
  }

 private:
  static __device__ __forceinline__ int clamped(int row, std::int64_t rows) {
    return min(row, static_cast<int>(rows) - 1);
  }
  const BlockwiseArguments& p_;
  unsigned copied_;
  int scaled_;
  unsigned a_from_[copies_of_a];
  unsigned b_from_[copies_of_b];
};

// Where a thread's sums are in the tile of its thread block: rows row + 16·i + 8·half, and columns
// column + 8·j and column + 8·j + 1.
template <class T>
struct Lane {
  int row, column;

  __device__ __forceinline__ explicit Lane(unsigned thread) {
    const int warp = static_cast<int>(thread) / 32;
    const int lane = static_cast<int>(thread) % 32;
    row = warp / T::warps_across * T::warp_rows + lane / 4;
    column = warp % T::warps_across * T::warp_columns + lane % 4 * 2;
  }
};

template <class T>
using Values = float[T::down][T::across][4];

// The address of a thread's first sums in a slot, which is an f32 tile in global memory. A slot has
// 16 bytes of each thread, then the next 16 bytes of each thread, and so on.
template <class T>
__device__ __forceinline__ float4* slot_of(const TileArguments& a, unsigned number) {
  return reinterpret_cast<float4*>(a.slots) + static_cast<std::int64_t>(number) * (T::floats / 4) +
         threadIdx.x;
}

// Adds a superblock's f32 sums p to the sums d of earlier superblocks: p = fmaf(p, c, d) with c = 1
// / 127². join_with_slot() reads d from a slot. join_with_operand() takes the output matrix if it
// accumulates, else 0.
template <class T>
__device__ __forceinline__ void join_with_slot(Values<T>& p, const float4* slot) {
#pragma unroll
  for (int i = 0; i < T::down; ++i)
#pragma unroll
    for (int j = 0; j < T::across; ++j) {
      const float4 before = slot[(i * T::across + j) * T::threads];
      p[i][j][0] = __fmaf_rn(p[i][j][0], core::inverse_127_squared, before.x);
      p[i][j][1] = __fmaf_rn(p[i][j][1], core::inverse_127_squared, before.y);
      p[i][j][2] = __fmaf_rn(p[i][j][2], core::inverse_127_squared, before.z);
      p[i][j][3] = __fmaf_rn(p[i][j][3], core::inverse_127_squared, before.w);
    }
}
template <class T>
__device__ __forceinline__ void store_slot(const Values<T>& p, float4* slot) {
#pragma unroll
  for (int i = 0; i < T::down; ++i)
#pragma unroll
    for (int j = 0; j < T::across; ++j)
      slot[(i * T::across + j) * T::threads] =
          make_float4(p[i][j][0], p[i][j][1], p[i][j][2], p[i][j][3]);
}
template <class Out>
__device__ __forceinline__ void load_two(const Out* from, bool both_at_once, bool second,
                                         float (&two)[2]) {
  if constexpr (sizeof(Out) == 2) {
    if (both_at_once) {
      const unsigned word = *reinterpret_cast<const unsigned*>(from);
      Out first_of;
      Out second_of;
      first_of.bits = static_cast<std::uint16_t>(word);
      second_of.bits = static_cast<std::uint16_t>(word >> 16);
      two[0] = widen(first_of);
      two[1] = widen(second_of);
      return;
    }
  } else {
    if (both_at_once) {
      const float2 word = *reinterpret_cast<const float2*>(from);
      two[0] = word.x;
      two[1] = word.y;
      return;
    }
  }
  two[0] = widen(from[0]);
  if (second) two[1] = widen(from[1]);
}
template <class Out, class T>
__device__ __forceinline__ void join_with_operand(const TileArguments& a, const Place& place,
                                                  Lane<T> at, Values<T>& p) {
  const BlockwiseArguments& b = a.product;
  const auto rows = static_cast<int>(b.n);
  const auto columns = static_cast<int>(b.k);
#pragma unroll
  for (int i = 0; i < T::down; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = place.row + at.row + 16 * i + 8 * half;
      const Out* from = static_cast<const Out*>(b.d) + (place.first_row + row) * b.d_stride +
                        (place.column + at.column);
#pragma unroll
      for (int j = 0; j < T::across; ++j) {
        float before[2] = {};
        const int left = columns - (place.column + at.column + 8 * j);
        if (b.accumulate && row < rows && left > 0)
          load_two(from + 8 * j, a.aligned && left >= 2, left >= 2, before);
#pragma unroll
        for (int e = 0; e < 2; ++e)
          p[i][j][2 * half + e] =
              __fmaf_rn(p[i][j][2 * half + e], core::inverse_127_squared, before[e]);
      }
    }
}

// Stores the 16 / sizeof(Out) elements in `words` to a row, but at most `left` elements.
template <class Out>
__device__ __forceinline__ void store_words(Out* to, bool wide, int left,
                                            const unsigned (&words)[4]) {
  constexpr int count = 16 / static_cast<int>(sizeof(Out));
  if (wide && left >= count) {
    __stcs(reinterpret_cast<uint4*>(to), make_uint4(words[0], words[1], words[2], words[3]));
    return;
  }
#pragma unroll
  for (int e = 0; e < count; ++e) {
    if (e >= left) continue;
    if constexpr (sizeof(Out) == 2) {
      Out element;
      element.bits = static_cast<std::uint16_t>(words[e / 2] >> (e % 2 * 16));
      to[e] = element;
    } else {
      to[e] = __uint_as_float(words[e]);
    }
  }
}

// Rounds and stores a tile. Four lanes hold eight columns of a row from each of several mma
// products. They exchange values, so that each lane stores 16 adjacent bytes and the four lanes
// store 64 adjacent bytes.
template <class Out, class T>
__device__ __forceinline__ void store_tile(const TileArguments& a, const Place& place, Lane<T> at,
                                           const Values<T>& d) {
  const BlockwiseArguments& b = a.product;
  const auto rows = static_cast<int>(b.n);
  const auto columns = static_cast<int>(b.k);
  const int lane = at.column / 2 % 4;
  const int first_column = place.column + at.column - 2 * lane;
#pragma unroll
  for (int i = 0; i < T::down; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = place.row + at.row + 16 * i + 8 * half;
      Out* const to = static_cast<Out*>(b.d) + (place.first_row + row) * b.d_stride;
      const auto store = [&](int column, const unsigned(&words)[4]) {
        if (row < rows) store_words(to + column, a.aligned, columns - column, words);
      };
      if constexpr (sizeof(Out) == 2) {
#pragma unroll
        for (int first = 0; first < T::across; first += 4) {
          unsigned words[4];
#pragma unroll
          for (int j = 0; j < 4; ++j)
            words[j] = narrow_pair<Out>(d[i][first + j][2 * half], d[i][first + j][2 * half + 1]);
          canonical_pairs<Out>(words);
          // Transposes the words of four lanes: word j of lane l becomes word l of lane j.
#pragma unroll
          for (int bit = 1; bit <= 2; bit *= 2)
#pragma unroll
            for (int j = 0; j < 4; ++j) {
              if ((j & bit) != 0) continue;
              const bool upper = (lane & bit) != 0;
              const unsigned give = upper ? words[j] : words[j | bit];
              const unsigned got = __shfl_xor_sync(all_lanes, give, bit);
              if (upper)
                words[j] = got;
              else
                words[j | bit] = got;
            }
          store(first_column + 8 * (first + lane), words);
        }
      } else {
        // Of two mma products, an even lane keeps the first and an odd lane the second. Each gets
        // the neighbouring lane's columns of the product that it keeps.
        const bool odd = lane % 2 != 0;
#pragma unroll
        for (int j = 0; j < T::across; j += 2) {
          unsigned words[4];
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const unsigned first = __float_as_uint(narrow<float>(d[i][j][2 * half + e]));
            const unsigned second = __float_as_uint(narrow<float>(d[i][j + 1][2 * half + e]));
            const unsigned got = __shfl_xor_sync(all_lanes, odd ? first : second, 1);
            words[e] = odd ? got : first;
            words[2 + e] = odd ? second : got;
          }
          store(first_column + 8 * (j + lane % 2) + 4 * (lane / 2), words);
        }
      }
    }
}

// Finishes the f32 sums of a superblock. They are added to the sums of the previous superblocks,
// which are in a slot of the thread block. The first superblock is added to the initial d. After
// the last step the sums are d, and are stored. If other thread blocks compute the other
// superblocks, the sums go to the job's slot. Returns whether the job ends.
template <class Out, class T>
__device__ __forceinline__ bool finish_superblock(const TileArguments& a, unsigned job, bool first,
                                                  bool last, Values<T>& d) {
  const unsigned this_job = computed_here(job);
  if (a.parts > 1) {
    store_slot<T>(d, slot_of<T>(a, this_job));
    return true;
  }
  const Place here(a, this_job, T::rows, T::columns);
  const Lane<T> of_tile(computed_here(threadIdx.x));
  float4* const slot = slot_of<T>(a, computed_here(blockIdx.x));
  if (first)
    join_with_operand<Out, T>(a, here, of_tile, d);
  else
    join_with_slot<T>(d, slot);
  if (last) {
    store_tile<Out, T>(a, here, of_tile, d);
    return true;
  }
  store_slot<T>(d, slot);
  return false;
}

// Computes d from the f32 sums of a tile's superblocks, which are added in order.
template <class Out, class T>
__global__ void __launch_bounds__(T::threads) blockwise_parts_kernel(TileArguments a) {
  const Lane<T> at(threadIdx.x);
  const Place place(a, blockIdx.x, T::rows, T::columns);
  float d[T::down][T::across][4];
  const auto for_each = [&](unsigned part, const auto& use) {
    const float4* const slot = slot_of<T>(a, part * a.tiles + place.tile);
#pragma unroll
    for (int i = 0; i < T::down; ++i)
#pragma unroll
      for (int j = 0; j < T::across; ++j)
        use(d[i][j], slot[(i * T::across + j) * T::threads]);
  };
  for_each(0, [](float(&to)[4], const float4& p) {
    to[0] = p.x;
    to[1] = p.y;
    to[2] = p.z;
    to[3] = p.w;
  });
  join_with_operand<Out, T>(a, place, at, d);
#pragma unroll 1
  for (unsigned part = 1; part < a.parts; ++part)
    for_each(part, [](float(&to)[4], const float4& p) {
      to[0] = __fmaf_rn(p.x, core::inverse_127_squared, to[0]);
      to[1] = __fmaf_rn(p.y, core::inverse_127_squared, to[1]);
      to[2] = __fmaf_rn(p.z, core::inverse_127_squared, to[2]);
      to[3] = __fmaf_rn(p.w, core::inverse_127_squared, to[3]);
    });
  store_tile<Out, T>(a, place, at, d);
}

// Launches the kernel that adds the sums of the superblocks, if different thread blocks computed
// them.
template <class Out, class T>
cudaError_t launch_parts(const TileArguments& a, cudaStream_t stream) {
  if (a.parts == 1) return cudaSuccess;
  return launch("blockwise_parts", blockwise_parts_kernel<Out, T>, dim3(a.tiles), dim3(T::threads),
                0, stream, a);
}

}  // namespace

}  // namespace switchback::blockwise::cuda
