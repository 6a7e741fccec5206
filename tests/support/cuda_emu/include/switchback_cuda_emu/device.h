// SPDX-License-Identifier: Apache-2.0
// Test support, emulated CUDA: what device code is written in: qualifiers, the indices of a thread,
// barriers and warp collectives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "switchback_cuda_emu/vector_types.h"

#define SWITCHBACK_CUDA_EMULATED 1

#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __forceinline__ inline __attribute__((always_inline))
// No __noinline__: libstdc++ spells an attribute that way, and a macro would break its headers.
// __attribute__((noinline)) is understood by every compiler concerned.

// Blocks run one after another, or by turns where a launch is cooperative, each on one OS thread.
// `static` rather than on a heap, so that AddressSanitizer puts red zones around each array. GCC
// does so only for what has internal linkage: a kernel template belongs into an anonymous
// namespace. The tag gets into the symbol's name, by which the emulation finds the variables and
// fills them with 0xFF bytes before a block: what an earlier one has left there must not make up
// for a missing barrier. An alignment goes before it (alignas) or after it (__align__).
#define __shared__ static __attribute__((abi_tag("switchback_cuda_emu_shared")))

// The dynamic shared memory of the block: exactly the bytes that the launch asked for.
#define SWITCHBACK_DYNAMIC_SHARED(type, name) \
  type* const name = static_cast<type*>(::switchback_cuda_emu::dynamic_shared())

namespace switchback_cuda_emu {

/// The dynamic shared memory of the block that runs, full of 0xFF bytes when the block starts.
void* dynamic_shared();

/// Where in the source a thread waits.
struct Site {
  const char* operation;
  const char* file;
  int line;
};

enum class BlockVote { none, any, all, count };
enum class WarpVote { none, ballot, shuffle, max, min, add, all_or, all_and };

/// Waits for every thread of the block; what the vote says of the predicates.
int block_barrier(BlockVote vote, int predicate, Site site);
/// Waits for every lane of `mask`; the result of the vote for this lane. `source` is for shuffles:
/// the lane whose value this one wants.
std::uint64_t warp_collective(WarpVote vote, unsigned mask, std::uint64_t value, int source,
                              Site site);
/// The lane of this thread in its warp, and the lanes of its warp that exist.
int lane_id();
unsigned warp_lanes();
/// Lets other threads of the block run.
void yield_thread();
/// Waits for every thread of all blocks of a cooperative launch.
void grid_barrier(Site site = {"grid_barrier", __builtin_FILE(), __builtin_LINE()});
/// The kernel before this one has run; where one was launched to overlap with it, not earlier.
void wait_for_kernel_before();
/// Ends the launch with a fault.
[[noreturn]] void trap(const char* what);

// Asynchronous barriers (mbarriers): words in shared memory, in phases. A phase ends when all its
// arrivals have come, and all bytes that these announced.
void mbarrier_init(std::uint64_t* barrier, unsigned arrivals);
void mbarrier_arrive(std::uint64_t* barrier, unsigned announced_bytes);
/// Waits for the end of the phase of this parity; that of the first phase is 0.
void mbarrier_wait(std::uint64_t* barrier, unsigned parity,
                   Site site = {"mbarrier_wait", __builtin_FILE(), __builtin_LINE()});

/// A box of a matrix of bytes. What lies outside of the matrix is 0.
struct Box {
  const unsigned char* matrix;
  std::int64_t rows, columns, stride;  ///< of the matrix
  std::int64_t row, column;            ///< where the box begins
  int box_rows;                        ///< each of 128 bytes
};
/// Copies a box into dynamic shared memory in the swizzle of 128 bytes (which counts from its
/// beginning), and counts its bytes at a barrier: at once or when a thread waits for that.
void copy_box(void* to, const Box& box, std::uint64_t* barrier);

/// A barrier with a number, for as many threads of a block; some of them need not wait (bar.sync
/// and bar.arrive).
void named_barrier(int number, int threads, bool waits,
                   Site site = {"named_barrier", __builtin_FILE(), __builtin_LINE()});
/// Waits for the other threads of its warpgroup.
void meet_warpgroup(Site site = {"meet_warpgroup", __builtin_FILE(), __builtin_LINE()});

namespace names {

// Written when a thread starts or resumes. constinit: no wrapper is called at an access.
extern constinit thread_local uint3 threadIdx;
extern constinit thread_local uint3 blockIdx;
extern constinit thread_local dim3 blockDim;
extern constinit thread_local dim3 gridDim;
inline constexpr int warpSize = 32;

// The defaults name the place of the call: threads that meet at different barriers are a fault.
#define SWITCHBACK_CUDA_EMU_SITE const char *file = __builtin_FILE(), int line = __builtin_LINE()

inline void __syncthreads(SWITCHBACK_CUDA_EMU_SITE) {
  block_barrier(BlockVote::none, 0, {"__syncthreads", file, line});
}
inline int __syncthreads_or(int predicate, SWITCHBACK_CUDA_EMU_SITE) {
  return block_barrier(BlockVote::any, predicate, {"__syncthreads_or", file, line});
}
inline int __syncthreads_and(int predicate, SWITCHBACK_CUDA_EMU_SITE) {
  return block_barrier(BlockVote::all, predicate, {"__syncthreads_and", file, line});
}
inline int __syncthreads_count(int predicate, SWITCHBACK_CUDA_EMU_SITE) {
  return block_barrier(BlockVote::count, predicate, {"__syncthreads_count", file, line});
}

inline void __syncwarp(unsigned mask = 0xffffffffu, SWITCHBACK_CUDA_EMU_SITE) {
  warp_collective(WarpVote::none, mask, 0, 0, {"__syncwarp", file, line});
}
inline unsigned __ballot_sync(unsigned mask, int predicate, SWITCHBACK_CUDA_EMU_SITE) {
  return static_cast<unsigned>(warp_collective(WarpVote::ballot, mask, predicate != 0 ? 1 : 0, 0,
                                               {"__ballot_sync", file, line}));
}
inline int __any_sync(unsigned mask, int predicate, SWITCHBACK_CUDA_EMU_SITE) {
  return warp_collective(WarpVote::ballot, mask, predicate != 0 ? 1 : 0, 0,
                         {"__any_sync", file, line}) != 0
             ? 1
             : 0;
}
inline int __all_sync(unsigned mask, int predicate, SWITCHBACK_CUDA_EMU_SITE) {
  return warp_collective(WarpVote::ballot, mask, predicate != 0 ? 1 : 0, 0,
                         {"__all_sync", file, line}) == mask
             ? 1
             : 0;
}
/// Without independent scheduling in the emulation: every lane of the warp that exists.
inline unsigned __activemask() {
  return warp_lanes();
}

#define SWITCHBACK_CUDA_EMU_REDUCE(name, vote, type)                                             \
  inline type name(unsigned mask, type value, SWITCHBACK_CUDA_EMU_SITE) {                        \
    return static_cast<type>(                                                                    \
        warp_collective(vote, mask, static_cast<std::uint64_t>(value), 0, {#name, file, line})); \
  }
SWITCHBACK_CUDA_EMU_REDUCE(__reduce_max_sync, WarpVote::max, unsigned)
SWITCHBACK_CUDA_EMU_REDUCE(__reduce_min_sync, WarpVote::min, unsigned)
SWITCHBACK_CUDA_EMU_REDUCE(__reduce_add_sync, WarpVote::add, unsigned)
SWITCHBACK_CUDA_EMU_REDUCE(__reduce_or_sync, WarpVote::all_or, unsigned)
SWITCHBACK_CUDA_EMU_REDUCE(__reduce_and_sync, WarpVote::all_and, unsigned)
SWITCHBACK_CUDA_EMU_REDUCE(__reduce_max_sync, WarpVote::max, int)
SWITCHBACK_CUDA_EMU_REDUCE(__reduce_min_sync, WarpVote::min, int)
SWITCHBACK_CUDA_EMU_REDUCE(__reduce_add_sync, WarpVote::add, int)
#undef SWITCHBACK_CUDA_EMU_REDUCE

}  // namespace names

template <class T>
T shuffle(unsigned mask, T value, int source, Site site) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = warp_collective(WarpVote::shuffle, mask, bits, source, site);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

namespace names {

template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, SWITCHBACK_CUDA_EMU_SITE) {
  const int first = lane_id() & ~(width - 1);
  return shuffle(mask, value, first + (source & (width - 1)), {"__shfl_sync", file, line});
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32, SWITCHBACK_CUDA_EMU_SITE) {
  const int lane = lane_id();
  const int source = lane ^ lanes;
  // Earlier segments can be read, later ones not.
  const bool reachable = source < (lane & ~(width - 1)) + width;
  return shuffle(mask, value, reachable ? source : lane, {"__shfl_xor_sync", file, line});
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                   SWITCHBACK_CUDA_EMU_SITE) {
  const int lane = lane_id();
  const bool reachable = (lane & (width - 1)) + static_cast<int>(delta) < width;
  return shuffle(mask, value, reachable ? lane + static_cast<int>(delta) : lane,
                 {"__shfl_down_sync", file, line});
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, SWITCHBACK_CUDA_EMU_SITE) {
  const int lane = lane_id();
  const bool reachable = (lane & (width - 1)) >= static_cast<int>(delta);
  return shuffle(mask, value, reachable ? lane - static_cast<int>(delta) : lane,
                 {"__shfl_up_sync", file, line});
}
#undef SWITCHBACK_CUDA_EMU_SITE

inline void __nanosleep(unsigned) {
  yield_thread();
}
[[noreturn]] inline void __trap() {
  trap("__trap");
}
inline void __brkpt() {}

}  // namespace names
}  // namespace switchback_cuda_emu
