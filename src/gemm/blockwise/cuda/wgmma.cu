// SPDX-License-Identifier: Apache-2.0
// The blockwise int8 product on the tensor cores of 9.0: wgmma m64n128k32 of signed bytes, with
// operands that the copy engine (TMA) loads. (Code for 9.0a, which runs on no other version.)
#include <type_traits>

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define SWITCHBACK_CUDA_WGMMA 1
#endif
#define SWITCHBACK_SHARED_ALIGNMENT 1024
#include "core/cuda/launch.cuh"
#include "core/cuda/ptx.cuh"
#include "core/cuda/tensor_copy.cuh"
#include "core/cuda/wgmma.cuh"
#include "core/numerics.hpp"
#include "gemm/blockwise/cuda/job.cuh"
#include "gemm/blockwise/cuda/kernels.hpp"

namespace switchback::blockwise::cuda {

namespace {

using core::cuda::canonical_pairs;
using core::cuda::computed_here;
using core::cuda::copy_box;
using core::cuda::further;
using core::cuda::matrix_descriptor_128;
using core::cuda::Mbarrier;
using core::cuda::narrow;
using core::cuda::narrow_pair;
using core::cuda::shared_place;
using core::cuda::TensorMap;
using core::cuda::WarpgroupProducts;
using core::cuda::widen;
using Sums = WarpgroupProducts::Sums;

constexpr unsigned all_lanes = 0xFFFFFFFFu;
constexpr int strip = 16;  // rows of tiles in a strip, which is computed column by column
constexpr int scale_slots = 4;

// The kernel computes dᵀ = b · aᵀ: the rows of a tile are rows of b, its columns are rows of a. So
// a thread has two scales of b and 32 or 64 scales of a.
constexpr int tile_rows = wgmma_tile_rows;
constexpr int warpgroup_threads = 128;
constexpr int warpgroup_rows = 64;
constexpr int multipliers = 2;  // warpgroups that multiply; one more warpgroup loads the operands
constexpr int multiplying_threads = multipliers * warpgroup_threads;
constexpr int threads = warpgroup_threads + multiplying_threads;
static_assert(tile_rows == multipliers * warpgroup_rows);

// A multiprocessor has 65536 registers, given to threads in units of eight. The loading warpgroup
// releases registers, and the multiplying warpgroups take them.
constexpr int launched_registers = 65536 / threads / 8 * 8;
constexpr int loader_registers = 40;
constexpr int multiplier_registers = 232;
static_assert(warpgroup_threads * loader_registers + multiplying_threads * multiplier_registers <=
              threads * launched_registers);

// Codes of each row in a stage: four wgmma products of 32. Also the bytes of a row of the shared
// memory swizzle.
constexpr int step_codes = core::cuda::tensor_box_columns;

// A thread's sums in groups of four: two rows of b that are 8 apart, times two adjacent rows of a.
// Group q has the rows 8q and 8q + 1 of a, counted from the thread's first row of a.
template <int count>
using Fours = float[count][4];
constexpr int fours_of_half = 16;

// A tile has 128 columns, or 256 in two halves whose int32 sums use the same registers.
template <int halves_, int stages_>
struct Tile {
  static constexpr int halves = halves_;
  static constexpr int stages = stages_;
  static constexpr int columns = 128 * halves;
  static constexpr int fours = fours_of_half * halves;
  static constexpr int stage_bytes = (tile_rows + columns) * step_codes;
};
using Wide = Tile<2, 4>;
using Square = Tile<1, 6>;

template <class T>
struct Shared {
  struct Scales {
    float b[tile_rows];
    float a[T::columns];
  };
  // The codes of the rows of b, then those of a. (The address is a multiple of 1024, like that of
  // each stage.)
  unsigned char codes[T::stages][T::stage_bytes];
  Scales scales[scale_slots + 1];  // the last set of scales consists of zeros
  Mbarrier filled[T::stages], freed[T::stages];
  Mbarrier scaled[scale_slots], scales_freed[scale_slots];
};
static_assert(sizeof(Shared<Wide>) == wgmma_wide.shared_bytes);
static_assert(sizeof(Shared<Square>) == wgmma_square.shared_bytes);

// A position in a ring of stages or slots, and the parity of the number of passes (the phase of its
// mbarriers).
template <int places>
struct Ring {
  int at = 0;
  unsigned phase = 0;
  __device__ __forceinline__ void advance() {
    if (++at < places) return;
    at = 0;
    phase ^= 1;
  }
};

// The tile of d that a job computes, and the blocks of codes that it sums.
template <class T>
struct Job {
  int row, column;    // the tile's first row of b, and of a
  int first, blocks;  // first block of codes, number of blocks

  __device__ __forceinline__ Job(const TileArguments& a, unsigned job) {
    const TileOfJob<strip> at(a, job);
    row = at.down * tile_rows;
    column = at.across * T::columns;
    const auto superblock = static_cast<int>(a.product.superblock);
    first = static_cast<int>(at.part) * superblock;
    const int left = static_cast<int>(a.product.blocks) - first;
    blocks = a.parts > 1 ? min(left, superblock) : left;
  }
  // The number of blocks that are multiplied. Square tiles multiply two blocks at a time: an odd
  // number of blocks is followed by a block of zeros.
  [[nodiscard]] __device__ __forceinline__ int multiplied_blocks() const {
    return T::halves == 1 ? (blocks + 1) / 2 * 2 : blocks;
  }
};

// Loads the codes of all jobs of a thread block into the ring of stages. Called by one thread.
template <class T>
__device__ __forceinline__ void load_codes(Shared<T>& shared, const TensorMap& codes_of_b,
                                           const TensorMap& codes_of_a, const TileArguments& a) {
  const int steps_of_block = static_cast<int>(a.product.block_rows) / step_codes;
  Ring<T::stages> stage;
  for (unsigned number = blockIdx.x; number < a.jobs; number += gridDim.x) {
    const Job<T> job(a, number);
    int code = job.first * static_cast<int>(a.product.block_rows);
    for (int steps = job.multiplied_blocks() * steps_of_block; steps > 0; --steps) {
      shared.freed[stage.at].wait(stage.phase ^ 1);
      Mbarrier& filled = shared.filled[stage.at];
      filled.arrive_and_announce(T::stage_bytes);
      unsigned char* const to = shared.codes[stage.at];
      copy_box(to, codes_of_b, job.row, code, filled);
      copy_box(to + tile_rows * step_codes, codes_of_a, job.column, code, filled);
      code += step_codes;
      stage.advance();
    }
  }
}

// Loads the scales of all jobs of a thread block into the ring of slots. Called by one warp. For a
// block of zeros the scales of b are -0: it adds -0, which leaves every sum unchanged.
template <class T>
__device__ __forceinline__ void load_scales(Shared<T>& shared, const TileArguments& a) {
  constexpr int lanes = 32;
  const BlockwiseArguments& p = a.product;
  const auto lane = static_cast<int>(threadIdx.x) % lanes;
  Ring<scale_slots> slot;
  for (unsigned number = blockIdx.x; number < a.jobs; number += gridDim.x) {
    const Job<T> job(a, number);
    const int blocks = job.multiplied_blocks();
#pragma unroll 1
    for (int block = 0; block < blocks; ++block) {
      const float* const of_b = p.absmax_b + (job.first + block) * p.k + job.row + lane;
      const float* const of_a = p.absmax_a + (job.first + block) * p.n + job.column + lane;
      const bool real = block < job.blocks;
      const auto rows = static_cast<int>(p.k) - job.row - lane;
      const auto columns = static_cast<int>(p.n) - job.column - lane;
      float b[tile_rows / lanes];
      float c[T::columns / lanes];
#pragma unroll
      for (int i = 0; i < tile_rows / lanes; ++i)
        b[i] = real && lanes * i < rows ? of_b[lanes * i] : -0.0f;
#pragma unroll
      for (int i = 0; i < T::columns / lanes; ++i)
        c[i] = real && lanes * i < columns ? of_a[lanes * i] : 0.0f;
      shared.scales_freed[slot.at].wait(slot.phase ^ 1);
      typename Shared<T>::Scales& to = shared.scales[slot.at];
#pragma unroll
      for (int i = 0; i < tile_rows / lanes; ++i)
        to.b[lane + lanes * i] = b[i];
#pragma unroll
      for (int i = 0; i < T::columns / lanes; ++i)
        to.a[lane + lanes * i] = c[i];
      __syncwarp();
      if (lane == 0) shared.scaled[slot.at].arrive();
      slot.advance();
    }
  }
}

// Where the sums of a multiplying thread are in its tile, before and after exchange_rows().
struct Lane {
  int row, column;
  bool odd;  // whether it is the odd one of two lanes that exchange values

  __device__ __forceinline__ explicit Lane(unsigned multiplier) {
    const auto thread = static_cast<int>(multiplier);
    const int lane = thread % 32;
    row = thread / 32 * 16 + lane / 4;
    column = lane % 4 * 2;
    odd = lane / 4 % 2 != 0;
  }
  [[nodiscard]] __device__ __forceinline__ int exchanged_row() const { return row - (odd ? 1 : 0); }
  [[nodiscard]] __device__ __forceinline__ int exchanged_column() const {
    return column + (odd ? 1 : 0);
  }
};

// Exchanges sums between two lanes. Before: four sums of rows r and r + 8 and columns c and c + 1.
// After: rows r and r + 1, and r + 8 and r + 9, of one column. The elements of such a pair are
// adjacent in d.
template <int count>
__device__ __forceinline__ void exchange_rows(Fours<count>& p, bool odd) {
#pragma unroll
  for (int q = 0; q < count; ++q)
#pragma unroll
    for (int e = 0; e < 4; e += 2) {
      const float got = __shfl_xor_sync(all_lanes, odd ? p[q][e] : p[q][e + 1], 4);
      if (odd)
        p[q][e] = got;
      else
        p[q][e + 1] = got;
    }
}

// The address of a multiplying thread's first group of four sums in a slot, which is an f32 tile in
// global memory.
template <class T>
__device__ __forceinline__ float4* slot_of(const TileArguments& a, unsigned number,
                                           unsigned multiplier) {
  return reinterpret_cast<float4*>(a.slots) +
         (static_cast<std::int64_t>(number) * (T::fours * multiplying_threads) + multiplier);
}
template <int count>
__device__ __forceinline__ void store_slot(const Fours<count>& p, float4* slot) {
#pragma unroll
  for (int q = 0; q < count; ++q)
    slot[q * multiplying_threads] = make_float4(p[q][0], p[q][1], p[q][2], p[q][3]);
}

// Adds a superblock's f32 sums p to the sums d of earlier superblocks: p = fmaf(p, c, d) with c = 1
// / 127². join_with_slot() reads d from a slot. join_with_operand() takes the output matrix if it
// accumulates, else 0.
template <int count>
__device__ __forceinline__ void join_with_slot(Fours<count>& p, const float4* slot) {
#pragma unroll
  for (int q = 0; q < count; ++q) {
    const float4 before = slot[q * multiplying_threads];
    p[q][0] = __fmaf_rn(p[q][0], core::inverse_127_squared, before.x);
    p[q][1] = __fmaf_rn(p[q][1], core::inverse_127_squared, before.y);
    p[q][2] = __fmaf_rn(p[q][2], core::inverse_127_squared, before.z);
    p[q][3] = __fmaf_rn(p[q][3], core::inverse_127_squared, before.w);
  }
}

// The integer type in which two adjacent elements of d are stored at once.
template <class Out>
using Pair = std::conditional_t<sizeof(Out) == 2, unsigned, uint2>;

// The elements of d that a thread's groups of four sums belong to after exchange_rows(), from group
// `first` on.
template <class Out>
struct Operand {
  Out* d;
  std::int64_t stride;
  int rows, columns;  // rows of b and of a from the thread's first element on
  bool whole;         // whether the whole tile is in d and can be stored in pairs

  template <class T>
  __device__ __forceinline__ Operand(const TileArguments& a, const Job<T>& job, Lane lane,
                                     int first) {
    const BlockwiseArguments& p = a.product;
    const int row = job.row + lane.exchanged_row();
    const int column = job.column + lane.exchanged_column() + 8 * first;
    stride = p.d_stride;
    d = static_cast<Out*>(p.d) + column * stride + row;
    rows = static_cast<int>(p.k) - row;
    columns = static_cast<int>(p.n) - column;
    whole = a.aligned && job.row + tile_rows <= p.k && job.column + T::columns <= p.n;
  }
  // How many elements of d there are from element e of group q on. A pair is whole if there are at
  // least two.
  [[nodiscard]] __device__ __forceinline__ int inside(int q, int e) const {
    return 8 * q < columns ? rows - 4 * e : 0;
  }
  [[nodiscard]] __device__ __forceinline__ Out* at(int q, int e) const {
    return d + 8 * q * stride + 4 * e;
  }
};
template <class Out, int count>
__device__ __forceinline__ void join_with_operand(Fours<count>& p, const Operand<Out>& operand,
                                                  bool accumulate) {
#pragma unroll
  for (int q = 0; q < count; ++q)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const bool there = accumulate && operand.inside(q, e / 2 * 2) > e % 2;
      const float before = there ? widen(operand.at(q, e / 2 * 2)[e % 2]) : 0.0f;
      p[q][e] = __fmaf_rn(p[q][e], core::inverse_127_squared, before);
    }
}
template <class Out, int count>
__device__ __forceinline__ void store_tile(const Fours<count>& d, const Operand<Out>& operand) {
  const auto store = [&](int q, int e, Pair<Out> pair) {
    Out* const to = operand.at(q, e);
    if (operand.whole) {
      *reinterpret_cast<Pair<Out>*>(to) = pair;
      return;
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (operand.inside(q, e) <= i) continue;
      if constexpr (sizeof(Out) == 2)
        to[i].bits = static_cast<std::uint16_t>(pair >> (16 * i));
      else
        to[i] = __uint_as_float(i == 0 ? pair.x : pair.y);
    }
  };
#pragma unroll
  for (int q = 0; q < count; q += 2) {
    if constexpr (sizeof(Out) == 2) {
      unsigned words[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        words[i] = narrow_pair<Out>(d[q + i / 2][i % 2 * 2], d[q + i / 2][i % 2 * 2 + 1]);
      canonical_pairs<Out>(words);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        store(q + i / 2, i % 2 * 2, words[i]);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float(&four)[4] = d[q + i / 2];
        store(q + i / 2, i % 2 * 2,
              make_uint2(__float_as_uint(narrow<float>(four[i % 2 * 2])),
                         __float_as_uint(narrow<float>(four[i % 2 * 2 + 1]))));
      }
    }
  }
}

// Finishes the f32 sums of a superblock. They are added to the sums of the previous superblocks,
// which are in a slot of the thread block. The first superblock is added to the initial d. After
// the last superblock the sums are d, and are stored. If other thread blocks compute the other
// superblocks, the sums go to the job's slot. (A slot has 16 bytes of each thread, repeatedly. A
// superblock then costs two accesses to the L2 cache that overlap; with the sums in d they would be
// sequential.)
template <class Out, class T>
__device__ __forceinline__ void finish_superblock(const TileArguments& a, unsigned job, bool first,
                                                  bool last, Fours<T::fours>& p) {
  const unsigned multiplier = computed_here(threadIdx.x) - warpgroup_threads;
  const Lane lane(multiplier);
  exchange_rows(p, lane.odd);
  float4* const slot = slot_of<T>(a, computed_here(a.parts > 1 ? job : blockIdx.x), multiplier);
  if (a.parts > 1) return store_slot(p, slot);
  const Operand<Out> operand(a, Job<T>(a, computed_here(job)), lane, 0);
  if (first)
    join_with_operand(p, operand, a.product.accumulate);
  else
    join_with_slot(p, slot);
  if (last)
    store_tile(p, operand);
  else
    store_slot(p, slot);
}

// Scales a block's int32 sums of 128 columns by the scales of their rows and columns, and adds them
// to the f32 sums p.
template <class Scales>
__device__ __forceinline__ void promote(float (*p)[4], const Sums& sums, const Scales& scales,
                                        int half, Lane lane) {
  const float of_rows[2] = {scales.b[lane.row], scales.b[lane.row + 8]};
#pragma unroll
  for (int q = 0; q < fours_of_half; ++q) {
    const float2 of_columns =
        *reinterpret_cast<const float2*>(scales.a + 128 * half + lane.column + 8 * q);
#pragma unroll
    for (int e = 0; e < 4; ++e)
      p[q][e] = __fmaf_rn(__fmul_rn(__int2float_rn(sums[q][e]), of_rows[e / 2]),
                          e % 2 == 0 ? of_columns.x : of_columns.y, p[q][e]);
  }
}

template <int count>
__device__ __forceinline__ void clear(Fours<count>& p) {
#pragma unroll
  for (int q = 0; q < count; ++q)
#pragma unroll
    for (int e = 0; e < 4; ++e)
      p[q][e] = 0.0f;
}

// The state of a multiplying warpgroup: its positions in the rings of stages and of scales. Both
// multiply_wide() and multiply_square() use it.
template <class T>
struct Multiplier {
  Shared<T>& shared;
  const int warpgroup;
  const Lane lane;
  Ring<T::stages> stage;
  Ring<scale_slots> slot;
  WarpgroupProducts products;

  __device__ __forceinline__ Multiplier(Shared<T>& of_block, int number)
      : shared(of_block), warpgroup(number), lane(threadIdx.x - warpgroup_threads) {}

  // Multiplies the codes of b in a stage with those of half of the tile's columns, as one group of
  // wgmma instructions.
  template <bool adds>
  __device__ __forceinline__ void multiply(Sums& sums, int half) {
    const unsigned codes = shared_place(&shared) + static_cast<unsigned>(stage.at) * T::stage_bytes;
    const std::uint64_t b = matrix_descriptor_128(codes + static_cast<unsigned>(warpgroup) *
                                                              (warpgroup_rows * step_codes));
    const std::uint64_t a =
        matrix_descriptor_128(codes + static_cast<unsigned>(tile_rows + 128 * half) * step_codes);
    products.template begin_group<!adds>(sums);
#pragma unroll
    for (unsigned i = 0; i < step_codes / 32; ++i)
      products.multiply(sums, &shared, further(b, i), further(a, i), adds || i > 0);
    products.end_group();
  }
  __device__ __forceinline__ void wait_for_codes() {
    shared.filled[stage.at].wait(stage.phase);
  }
  __device__ __forceinline__ void wait_for_scales() {
    shared.scaled[slot.at].wait(slot.phase);
  }
  // Tells the loading thread that a stage may be overwritten, because its products are done.
  __device__ __forceinline__ void free_stage(int number) {
    if (threadIdx.x % warpgroup_threads == 0) shared.freed[number].arrive();
  }
  __device__ __forceinline__ void free_scales() {
    __syncwarp();
    if (threadIdx.x % 32 == 0) shared.scales_freed[slot.at].arrive();
    slot.advance();
  }
};

// Computes tiles of 128x256, for blocks of one or two stages. A warpgroup multiplies half of the
// columns, hands the tensor cores to the other warpgroup, and scales its sums. Then it does the
// same for the other half.
template <class Out, int steps_of_block>
__device__ __forceinline__ void multiply_wide(Multiplier<Wide>& m, const TileArguments& a) {
  static_assert(steps_of_block < Wide::stages);
  const int mine = 1 + m.warpgroup;  // numbers of named barriers
  const int other = 2 - m.warpgroup;
  if (m.warpgroup == 1) core::cuda::arrive_at_barrier<multiplying_threads>(other);
  const auto superblock = static_cast<int>(a.product.superblock);
  Fours<Wide::fours> p;
#pragma unroll 1
  for (unsigned number = blockIdx.x; number < a.jobs; number += gridDim.x) {
    const int blocks = Job<Wide>(a, number).blocks;
#pragma unroll 1
    for (int from = 0; from < blocks; from += superblock) {
      clear(p);
#pragma unroll 1
      for (int left = min(superblock, blocks - from); left > 0; --left) {
        const Ring<Wide::stages> first = m.stage;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          m.stage = first;
          Sums sums;
          int before = 0;
          core::cuda::wait_at_barrier<multiplying_threads>(mine);
#pragma unroll
          for (int step = 0; step < steps_of_block; ++step) {
            if (half == 0) m.wait_for_codes();
            if (step == 0)
              m.template multiply<false>(sums, half);
            else
              m.template multiply<true>(sums, half);
            if (step > 0) {
              m.products.template wait<1>();
              if (half == 1) m.free_stage(before);
            }
            before = m.stage.at;
            m.stage.advance();
          }
          core::cuda::arrive_at_barrier<multiplying_threads>(other);
          if (half == 0) m.wait_for_scales();
          m.products.template wait<0>(sums);
          if (half == 1) m.free_stage(before);
          promote(p + fours_of_half * half, sums, m.shared.scales[m.slot.at], half, m.lane);
        }
        m.free_scales();
      }
      finish_superblock<Out, Wide>(a, number, from == 0, from + superblock >= blocks, p);
    }
  }
}

// Computes tiles of 128x128, for blocks of two, four or eight stages. There are two sets of int32
// sums: while one set is scaled, the first products of the next block are added to the other.
template <class Out, int steps_of_block>
__device__ __forceinline__ void multiply_square(Multiplier<Square>& m, const TileArguments& a) {
  const auto superblock = static_cast<int>(a.product.superblock);
  Fours<Square::fours> p;
  // The sets of sums are declared outside of the loops, so that each stays in its own registers.
  Sums even = {};
  Sums odd = {};
#pragma unroll 1
  for (unsigned number = blockIdx.x; number < a.jobs; number += gridDim.x) {
    const int blocks = Job<Square>(a, number).multiplied_blocks();
#pragma unroll 1
    for (int from = 0; from < blocks; from += superblock) {
      clear(p);
      int before = 0;  // the stage that products of the previous block may still read
      const auto multiply_block = [&](Sums& sums, Sums& sums_before, bool is_first) {
        const int own = m.stage.at;
        m.wait_for_codes();
        m.template multiply<false>(sums, 0);
        m.stage.advance();
        const int second = m.stage.at;
        m.wait_for_codes();
        m.template multiply<true>(sums, 0);
        m.stage.advance();
        if (!is_first) m.wait_for_scales();
        m.products.template wait<2>(sums_before);
        if (!is_first) m.free_stage(before);
        // In the first block there are no earlier sums: old contents of registers are scaled by
        // zeros.
        promote(p, sums_before, m.shared.scales[is_first ? scale_slots : m.slot.at], 0, m.lane);
        if (!is_first) m.free_scales();
        m.products.template wait<1>();
        m.free_stage(own);
        before = second;
#pragma unroll
        for (int step = 2; step < steps_of_block; ++step) {
          m.wait_for_codes();
          m.template multiply<true>(sums, 0);
          m.products.template wait<1>();
          m.free_stage(before);
          before = m.stage.at;
          m.stage.advance();
        }
      };
#pragma unroll 1
      for (int left = min(superblock, blocks - from), block = 0; block < left; block += 2) {
        multiply_block(even, odd, block == 0);
        multiply_block(odd, even, false);
      }
      m.wait_for_scales();
      m.products.template wait<0>(odd);
      m.free_stage(before);
      promote(p, odd, m.shared.scales[m.slot.at], 0, m.lane);
      m.free_scales();
      finish_superblock<Out, Square>(a, number, from == 0, from + superblock >= blocks, p);
    }
  }
}

// Lower bound: the tensor cores, with n · k · m / 4096 cycles of a multiprocessor. One thread loads
// codes and a warp loads scales. Two warpgroups multiply and scale (three instructions for each
// sum: a conversion, a product, a sum).
//
// On an H200, in blocks of 256 rows: 1143 TOPS at 8192x4096x4096, 1184 at 65536x2048x8192 and 853
// at 16384x1024x1024, of which a launch is about 5 us (data/records/h200, micro dw). An earlier
// form had 1205 TOPS in wide tiles and 1107 in square ones at the first shape without the launch;
// 1242 without loads and 1593 without scaling: the tensor cores wait for scaled sums.
template <class Out, class T, int steps_of_block>
__global__ void __launch_bounds__(threads, 1)
    blockwise_wgmma_kernel(const __grid_constant__ TensorMap codes_of_b,
                           const __grid_constant__ TensorMap codes_of_a, const TileArguments a) {
  SWITCHBACK_DYNAMIC_SHARED(Shared<T>, shared);
  if (threadIdx.x == 0) {
    for (int i = 0; i < T::stages; ++i) {
      shared->filled[i].init(1);
      shared->freed[i].init(multipliers);
    }
    for (int i = 0; i < scale_slots; ++i) {
      shared->scaled[i].init(1);
      shared->scales_freed[i].init(multiplying_threads / 32);
    }
    core::cuda::publish_mbarriers();
  }
  for (unsigned i = threadIdx.x; i < tile_rows + T::columns; i += threads)
    (i < tile_rows ? shared->scales[scale_slots].b[i]
                   : shared->scales[scale_slots].a[i - tile_rows]) = 0.0f;
  core::cuda::wait_for_kernel_before();
  __syncthreads();

  // The shuffle tells the compiler that all lanes of a warp have the same value.
  const int warp = __shfl_sync(all_lanes, static_cast<int>(threadIdx.x) / 32, 0);
  if (warp < warpgroup_threads / 32) {
    core::cuda::give_back_registers<loader_registers>();
    if (threadIdx.x == 0)
      load_codes(*shared, codes_of_b, codes_of_a, a);
    else if (warp == 1)
      load_scales(*shared, a);
  } else {
    core::cuda::take_registers<multiplier_registers>();
    Multiplier<T> multiplier(*shared, warp * 32 / warpgroup_threads - 1);
    if constexpr (T::halves == 2)
      multiply_wide<Out, steps_of_block>(multiplier, a);
    else
      multiply_square<Out, steps_of_block>(multiplier, a);
  }
}

// Computes d from the f32 sums of a tile's superblocks, which are added in order. A thread has a
// few of the groups of four sums that a multiplying thread had. Lower bound: memory, with slots in
// the L2 cache.
constexpr int fours_of_joiner = 4;
template <class Out, class T>
__global__ void __launch_bounds__(multiplying_threads)
    blockwise_wgmma_parts_kernel(const TileArguments a) {
  const unsigned tile = blockIdx.x;
  const int first = static_cast<int>(blockIdx.y) * fours_of_joiner;
  const auto slot = [&](unsigned part) {
    return slot_of<T>(a, part * a.tiles + tile, threadIdx.x) + first * multiplying_threads;
  };
  core::cuda::wait_for_kernel_before();
  Fours<fours_of_joiner> d;
#pragma unroll
  for (int q = 0; q < fours_of_joiner; ++q) {
    const float4 p = slot(0)[q * multiplying_threads];
    d[q][0] = p.x;
    d[q][1] = p.y;
    d[q][2] = p.z;
    d[q][3] = p.w;
  }
  const Operand<Out> operand(a, Job<T>(a, tile), Lane(threadIdx.x), first);
  join_with_operand(d, operand, a.product.accumulate);
#pragma unroll 1
  for (unsigned part = 1; part < a.parts; ++part)
#pragma unroll
    for (int q = 0; q < fours_of_joiner; ++q) {
      const float4 p = slot(part)[q * multiplying_threads];
      d[q][0] = __fmaf_rn(p.x, core::inverse_127_squared, d[q][0]);
      d[q][1] = __fmaf_rn(p.y, core::inverse_127_squared, d[q][1]);
      d[q][2] = __fmaf_rn(p.z, core::inverse_127_squared, d[q][2]);
      d[q][3] = __fmaf_rn(p.w, core::inverse_127_squared, d[q][3]);
    }
  store_tile(d, operand);
}

template <class Out, class T, int steps_of_block>
cudaError_t start(const WgmmaOperands& codes, const TileArguments& a, const WgmmaLaunch& how) {
  const auto kernel = blockwise_wgmma_kernel<Out, T, steps_of_block>;
  cudaError_t status = core::cuda::allow_shared(kernel, sizeof(Shared<T>));
  if (status == cudaSuccess)
    status = core::cuda::launch_behind("blockwise_wgmma", how.overlaps, kernel, dim3(how.blocks),
                                       dim3(threads), sizeof(Shared<T>), how.stream, codes.b,
                                       codes.a, a);
  if (status != cudaSuccess || a.parts == 1) return status;
  return core::cuda::launch_behind(
      "blockwise_wgmma_parts", how.overlaps, blockwise_wgmma_parts_kernel<Out, T>,
      dim3(a.tiles, T::fours / fours_of_joiner), dim3(multiplying_threads), 0, how.stream, a);
}

}  // namespace

cudaError_t launch_blockwise_wgmma(DType output, const WgmmaTile& tile, const WgmmaOperands& codes,
                                   const TileArguments& a, const WgmmaLaunch& how) {
  return core::cuda::for_type(output, [&]<class Out>(Out) {
    const bool wide = tile.columns == wgmma_wide.columns;
    switch (a.product.block_rows / step_codes) {
      case 1:
        return start<Out, Wide, 1>(codes, a, how);
      case 2:
        return wide ? start<Out, Wide, 2>(codes, a, how) : start<Out, Square, 2>(codes, a, how);
      case 4:
        return start<Out, Square, 4>(codes, a, how);
      default:
        return start<Out, Square, 8>(codes, a, how);
    }
  });
}

}  // namespace switchback::blockwise::cuda
