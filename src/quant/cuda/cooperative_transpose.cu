// SPDX-License-Identifier: Apache-2.0
// Device code: absmax and transposed codes of a matrix in one launch. The matrix, such as a layer's
// weight, must fit into the shared memory of all multiprocessors together.
#include <algorithm>

#include "core/cuda/launch.cuh"
#include "quant/cuda/transpose_tile.cuh"

#if !defined(SWITCHBACK_CUDA_EMULATED)
#include <cooperative_groups.h>
#endif

namespace switchback::quant::cuda {

namespace {

using core::cuda::AsyncCopies;

// Waits until every thread of the grid has called this. What those threads wrote before is then
// visible, but not through __ldg.
__device__ __forceinline__ void wait_for_grid() {
#if defined(SWITCHBACK_CUDA_EMULATED)
  ::switchback_cuda_emu::grid_barrier();
#else
  cooperative_groups::this_grid().sync();
#endif
}

constexpr int most_turns = 3;  // turns (groups of 128 threads) of a block
constexpr int packs_each = 8;  // packs of a thread in a tile
constexpr int turn_threads = 128;
constexpr std::size_t slot_bytes = sizeof(uint4) * packs_each * turn_threads;
// The largest number of slots, which hold tiles in shared memory, of a turn. 227 KiB hold four
// slots in addition to each of three turns.
constexpr int most_slots = 13;

// Turn y of block x processes tiles x + (round · turns + y) · blocks, one in each round. It keeps
// the first of these tiles in registers and the next ones in `slots` of shared memory, and reads
// the others twice.
struct CooperativeArguments {
  TransposeArguments matrix;
  unsigned* bits;  // bits of the absmax of columns, then of rows; or of the matrix
  unsigned* row_bits;
  std::int64_t words;               // number of words at `bits`
  unsigned down, across;            // numbers of tiles
  unsigned step_down, step_across;  // distance from a turn's tile to its next one
  int rounds, slots;
};

// The current tile of a turn. step() goes to the turn's next tile without a division. The last loop
// computes the tile from the round instead, which saves registers.
struct Walk {
  unsigned down, across;

  __device__ __forceinline__ explicit Walk(const CooperativeArguments& a, int round = 0) {
    const unsigned tile =
        (static_cast<unsigned>(round) * blockDim.y + threadIdx.y) * gridDim.x + blockIdx.x;
    down = tile / a.across;
    across = tile - down * a.across;
  }
  __device__ __forceinline__ void step(const CooperativeArguments& a) {
    down += a.step_down;
    across += a.step_across;
    if (across >= a.across) {
      across -= a.across;
      ++down;
    }
  }
  // Returns the place of the current tile; after the last tile a place that has no packs.
  __device__ __forceinline__ TilePlace place(const CooperativeArguments& a) const {
    if (down >= a.down) return {0, a.across};
    return {down, across};
  }
};

// Updates the largest magnitudes of the matrix's columns, and of its rows, with those of a thread's
// packs of a tile.
template <class T, int V, TransposeKind kind>
__device__ __forceinline__ void add_maxima(const CooperativeArguments& a, TilePlace at,
                                           const Pack<T, V> (&x)[2][4]) {
  using Tile = TransposeTile<T, V>;
  const auto thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int pack = thread % Tile::packs;
  const std::int64_t first_pack = std::int64_t{at.across} * Tile::packs;
  // Lanes whose numbers differ in bits 8 and 16 have different rows of the same columns. After the
  // exchange, each of these four lanes sends a quarter of the columns.
  Magnitudes<T, V> columns;
#pragma unroll
  for (int i = 0; i < packs_each; i += 2)
    columns.add(x[i / 4][i % 4], x[i / 4][i % 4 + 1]);
  columns.add_lane(8);
  columns.add_lane(16);
  const int part = lane / 8;
  Magnitudes<T, V> mine;
  mine.most[0] = part == 0   ? columns.most[0]
                 : part == 1 ? columns.most[1]
                 : part == 2 ? columns.most[2]
                             : columns.most[3];
  if (first_pack + pack < a.matrix.packs) {
    constexpr int each = V / 4;
    unsigned* const to = a.bits + (first_pack + pack) * V + part * each;
#pragma unroll
    for (int i = 0; i < each; ++i)
      atomicMax(to + i, mine.column(i));
  }
  if constexpr (kind == TransposeKind::columnwise_and_rowwise) {
    // Eight lanes have packs of the same eight rows. Each lane passes half of its rows to another
    // lane, then half of the rest, and so on, and ends with one row.
    unsigned rows[packs_each];
#pragma unroll
    for (int r = 0; r < packs_each; ++r) {
      Largest<T, V> largest;
      largest.add(x[r / 4][r % 4]);
      rows[r] = largest.all();
    }
#pragma unroll
    for (int half = packs_each / 2; half > 0; half /= 2) {
      const bool upper = (lane & half) != 0;
#pragma unroll
      for (int i = 0; i < half; ++i) {
        const unsigned keep = upper ? rows[i + half] : rows[i];
        const unsigned give = upper ? rows[i] : rows[i + half];
        rows[i] = max(keep, __shfl_xor_sync(all_lanes, give, half));
      }
    }
    const std::int64_t row = std::int64_t{at.down} * tile_rows + Tile::quad_of(thread) * 4 + pack;
    if (row < a.matrix.rows && first_pack < a.matrix.packs) atomicMax(a.row_bits + row, rows[0]);
  }
}

// Finds absmax and computes the transposed codes in one launch. Lower bound: each element is read
// once and each of its codes written once, plus two barriers of the grid, of which the first
// overlaps with the reads. Two kernels would read twice, and need a memset and another launch.
//
// Example: an H200, W of 4096 x 1024 in bf16, with both codes. One launch: 16.8 MB, 4.1 us at 4.1
// TB/s, about 2.5 us for the launch and 1.5 for the second barrier, 8 in total. Two kernels: 25 MB,
// 6.1 us, and about 6.5 for memset, launches and the start of each, 12 to 13 in total. (Predicted.
// An H200 gave right results. 1920 x 4096 with both codes, 12 us by the same sum, took 17:
// data/records/h200.) With two launches, one block reads while another codes. Here all turns do the
// same at the same time, so matrices far larger than shared memory are left to two launches.
//
// Instructions an element, full tiles in shared memory: bf16 by columns 10.0, with rows too 17.2,
// by one absmax with q 10.4; f32 by columns 16.2. Of the time that an H200 needs for the bytes
// these are 45, 59, 35 and 44 %. sm_90: at most 161 registers, 168 on 10.0 and 12.0; 9 to 10 KiB of
// shared memory a turn and 16 KiB a slot.
template <class T, int V, TransposeKind kind>
__global__ void __launch_bounds__(most_turns* turn_threads, 1)
    cooperative_kernel(CooperativeArguments a) {
  using Tile = TransposeTile<T, V>;
  static_assert(Tile::threads == turn_threads && Tile::packs == packs_each);
  SWITCHBACK_DYNAMIC_SHARED(Tile, shared);
  if (is_unchanged(a.matrix.changed)) return;  // all blocks
  const auto turn = static_cast<int>(threadIdx.y);
  const auto turns = static_cast<int>(blockDim.y);
  const auto thread = static_cast<int>(threadIdx.x);
  // Where this thread's packs of slots 1, 2, … are, which no other thread accesses.
  const int first_slot = turn * a.slots * packs_each * turn_threads + thread;
  const auto slot = [shared, first_slot, turns](int number, int pack) {
    return reinterpret_cast<uint4*>(shared + turns) + first_slot +
           ((number - 1) * packs_each + pack) * turn_threads;
  };
  // The bits are cleared here, because a separate launch would take longer: the barrier passes
  // while the copies are in flight.
  for (std::int64_t i = (std::int64_t{blockIdx.x} * turns + turn) * turn_threads + thread;
       i < a.words; i += std::int64_t{gridDim.x} * turns * turn_threads)
    a.bits[i] = 0;
  AsyncCopies<most_slots * packs_each> copies;
  const Walk first(a);
  Walk walk = first;
  for (int round = 1; round <= a.slots; ++round) {
    walk.step(a);
    const TilePlace at = walk.place(a);
    const std::int64_t pack = std::int64_t{at.across} * Tile::packs + thread % Tile::packs;
    const std::int64_t row = std::int64_t{at.down} * tile_rows + Tile::quad_of(thread) * 4;
    const T* from = static_cast<const T*>(a.matrix.x) + row * a.matrix.x_stride + pack * V;
#pragma unroll
    for (int r = 0; r < packs_each; ++r, from += a.matrix.x_stride)
      copies.add(slot(round, r), reinterpret_cast<const uint4*>(from),
                 row + r < a.matrix.rows && pack < a.matrix.packs);
    copies.end_group();
  }
  Pack<T, V> x[2][4];
  load_turn<T, V>(a.matrix, first.place(a), thread, x);
  wait_for_grid();

  [[maybe_unused]] Largest<T, V> largest;
  const auto add = [&](TilePlace at, const Pack<T, V>(&packs)[2][4]) {
    if constexpr (kind == TransposeKind::global) {
#pragma unroll
      for (int i = 0; i < packs_each; ++i)
        largest.add(packs[i / 4][i % 4]);
    } else {
      add_maxima<T, V, kind>(a, at, packs);
    }
  };
  const auto load = [&](int round, TilePlace at, Pack<T, V>(&packs)[2][4]) {
    if (round > a.slots) return load_turn<T, V>(a.matrix, at, thread, packs);
#pragma unroll
    for (int r = 0; r < packs_each; ++r)
      packs[r / 4][r % 4].words = *slot(round, r);
  };
  walk = first;
#pragma unroll 1
  for (int round = 1; round < a.rounds; ++round) {
    walk.step(a);
    Pack<T, V> other[2][4];
    if (round <= a.slots) copies.wait(a.slots - round);
    load(round, walk.place(a), other);
    add(walk.place(a), other);
  }
  add(first.place(a), x);
  if constexpr (kind == TransposeKind::global) {
    unsigned* const maxima = shared[0].words;
    const int warp = (turn * turn_threads + thread) / 32;
    const unsigned of_warp = warp_max(largest.all());
    if (thread % 32 == 0) maxima[warp] = of_warp;
    __syncthreads();
    if (warp == 0) {
      const unsigned most = warp_max(thread < turns * turn_threads / 32 ? maxima[thread] : 0u);
      if (thread == 0) atomicMax(a.bits, most);
    }
  }
  wait_for_grid();

#pragma unroll 1
  for (int round = 0; round < a.rounds; ++round) {
    const TilePlace at = Walk(a, round).place(a);
    if (round > 0) {
      load(round, at, x);
      __syncthreads();
    }
    code_turn<T, V, kind>(a.matrix, shared[turn], at, thread, x, StoredBits{});
  }
}

struct Plan {
  std::int64_t across, tiles;
  int blocks, turns, rounds, slots;  // numbers; zero turns: the matrix is too large
};

template <class T>
Plan plan_of(const Launch& launch, ConstAnyMatrix x, Codes q_t) {
  constexpr int V = vector_elements<T>;
  using Tile = TransposeTile<T, V>;
  Plan plan{};
  plan.across = divide_up<std::int64_t>(x.cols / V, Tile::packs);
  plan.tiles = plan.across * divide_up<std::int64_t>(q_t.cols, tile_rows);
  const std::int64_t most_blocks = launch.multiprocessors;
  // Tiles that are read twice come from the second-level cache, one for each turn. More of them
  // would be read and quantized one after another, while blocks of two kernels would do both at the
  // same time.
  constexpr int in_registers = 1, read_twice = 1;
  const std::size_t shared_of_turn = launch.shared_bytes / most_turns;
  if (shared_of_turn < sizeof(Tile)) return plan;
  const int slots = static_cast<int>((shared_of_turn - sizeof(Tile)) / slot_bytes);
  // H200: matrices of up to 19.5 million elements of 16 bits are accepted, of which 16.2 million
  // are kept.
  const std::int64_t most =
      most_blocks * most_turns * (std::min(slots, most_slots) + in_registers + read_twice);
  if (plan.tiles > most) return plan;
  plan.blocks = static_cast<int>(std::min(plan.tiles, most_blocks));
  plan.turns = static_cast<int>(
      std::min<std::int64_t>(most_turns, divide_up<std::int64_t>(plan.tiles, plan.blocks)));
  plan.rounds =
      static_cast<int>(divide_up<std::int64_t>(plan.tiles, std::int64_t{plan.blocks} * plan.turns));
  plan.slots = std::min({slots, most_slots, plan.rounds - in_registers});
  return plan;
}

template <TransposeKind kind>
cudaError_t start(const Launch& launch, ConstAnyMatrix x, Codes q, Codes q_t,
                  CooperativeArguments a) {
  return for_type(x.dtype, [&](auto element) {
    using T = decltype(element);
    constexpr int V = vector_elements<T>;
    const Plan plan = plan_of<T>(launch, x, q_t);
    describe<T, V>(a.matrix, {}, x, q, q_t);
    a.matrix.changed = launch.changed;
    a.matrix.bits = a.bits;
    a.matrix.row_bits = a.row_bits;
    a.down = static_cast<unsigned>(plan.tiles / plan.across);
    a.across = static_cast<unsigned>(plan.across);
    const unsigned step = static_cast<unsigned>(plan.turns * plan.blocks);
    a.step_down = step / a.across;
    a.step_across = step % a.across;
    a.rounds = plan.rounds;
    a.slots = plan.slots;
    const std::size_t shared_bytes =
        static_cast<std::size_t>(plan.turns) *
        (sizeof(TransposeTile<T, V>) + static_cast<std::size_t>(plan.slots) * slot_bytes);
    const auto kernel = cooperative_kernel<T, V, kind>;
    constexpr std::size_t unasked_bytes = std::size_t{48} << 10;
    if (shared_bytes > unasked_bytes) {
      const cudaError_t status = core::cuda::allow_shared(kernel, shared_bytes);
      if (status != cudaSuccess) return status;
    }
    return core::cuda::launch_together(
        "quantize_at_once", kernel, dim3(static_cast<unsigned>(plan.blocks)),
        dim3(turn_threads, static_cast<unsigned>(plan.turns)), shared_bytes, launch.stream, a);
  });
}

}  // namespace

bool transposes_cooperatively(const Launch& launch, ConstAnyMatrix x, Codes q, Codes q_t) noexcept {
  if (!launch.cooperates || launch.block_threads != 0 || launch.matrices.count != 1) return false;
  bool fits = false;
  (void)for_type(x.dtype, [&](auto element) {
    using T = decltype(element);
    fits = is_packed<T>(x) && (q.data == nullptr || are_packed<T>(q)) &&
           plan_of<T>(launch, x, q_t).turns > 0;
    return cudaSuccess;
  });
  return fits;
}

cudaError_t launch_global_transpose_cooperative(const Launch& launch, ConstAnyMatrix x, Codes q,
                                                Codes q_t, unsigned* bits, float* absmax) {
  CooperativeArguments a{};
  a.bits = bits;
  a.words = 1;
  a.matrix.absmax = absmax;
  return start<TransposeKind::global>(launch, x, q, q_t, a);
}

cudaError_t launch_columnwise_transpose_cooperative(const Launch& launch, ConstAnyMatrix x, Codes q,
                                                    float* absmax, unsigned* row_bits, Codes q_t,
                                                    float* absmax_cols, unsigned* column_bits) {
  CooperativeArguments a{};
  a.bits = column_bits;
  a.row_bits = row_bits;
  a.words = x.cols + (row_bits != nullptr ? x.rows : 0);
  a.matrix.absmax = absmax_cols;
  a.matrix.row_absmax = absmax;
  a.matrix.block_shift = block_shift_of(0);
  if (row_bits == nullptr) return start<TransposeKind::columnwise>(launch, x, q, q_t, a);
  return start<TransposeKind::columnwise_and_rowwise>(launch, x, q, q_t, a);
}

}  // namespace switchback::quant::cuda
