// SPDX-License-Identifier: Apache-2.0
// Test support, emulated CUDA: the parts of CUDA's language that device code uses: qualifiers, the
// indices of a thread, barriers and warp collectives.
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
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __forceinline__ inline __attribute__((always_inline))
// There is no __noinline__: libstdc++ has an attribute of that name, and a macro would break its
// headers. All compilers used here understand __attribute__((noinline)).

// A __shared__ variable becomes `static`: each block runs on one OS thread, and blocks run one
// after another (those of a cooperative launch interleave). It is not on a heap, so that
// AddressSanitizer puts red zones around each array. GCC does so only for variables with internal
// linkage, so a kernel template belongs in an anonymous namespace. The tag becomes part of the
// symbol's name. The emulation finds the variables by it and fills them with 0xFF bytes before a
// block: values that an earlier block left must not hide a missing barrier. An alignment goes
// before __shared__ (alignas) or after it (__align__).
#define __shared__ static __attribute__((abi_tag("switchback_cuda_emu_shared")))

// Declares `name`, the dynamic shared memory of the block: exactly the bytes that the launch asked
// for.
#define SWITCHBACK_DYNAMIC_SHARED(type, name) \
  type* const name = static_cast<type*>(::switchback_cuda_emu::dynamic_shared())

namespace switchback_cuda_emu {

/// The dynamic shared memory of the running block. It is full of 0xFF bytes when the block starts.
void* dynamic_shared();

/// The place in the source where a thread waits.
struct Site {
  const char* operation;
  const char* file;
  int line;
};

enum class WarpVote { none, ballot, shuffle, max };

/// Waits for every thread of the block. Returns whether any thread's predicate is not zero.
bool block_barrier(int predicate, Site site);
/// Waits for every lane of `mask`. Returns this lane's result of the vote or shuffle. `source` (for
/// shuffles): the lane whose value this lane reads.
std::uint64_t warp_collective(WarpVote vote, unsigned mask, std::uint64_t value, int source,
                              Site site);
/// The index of this thread in its warp.
int lane_id();
/// Lets other threads of the block run.
void yield_thread();
/// Waits for every thread of all blocks of a cooperative launch.
void grid_barrier(Site site = {"grid_barrier", __builtin_FILE(), __builtin_LINE()});
/// Waits until the kernel launched before this one has run. A kernel that was launched to overlap
/// with the earlier one cannot rely on its results before this call.
void wait_for_kernel_before();
/// Ends the launch with a fault, described by `what`.
[[noreturn]] void trap(const char* what);

// Asynchronous barriers (mbarriers): words in shared memory that go through phases. A phase ends
// when all its arrivals, and all bytes that they announced, have come.
void mbarrier_init(std::uint64_t* barrier, unsigned arrivals);
void mbarrier_arrive(std::uint64_t* barrier, unsigned announced_bytes);
/// Waits for the end of the mbarrier's phase with this parity. The parity of the first phase is 0.
void mbarrier_wait(std::uint64_t* barrier, unsigned parity,
                   Site site = {"mbarrier_wait", __builtin_FILE(), __builtin_LINE()});

/// A box of a matrix of bytes, as a TMA copy reads it. Elements outside the matrix are 0.
struct Box {
  const unsigned char* matrix;
  std::int64_t rows, columns, stride;  ///< size and stride of the matrix
  std::int64_t row, column;            ///< where the box begins in the matrix
  int box_rows;                        ///< the box's rows, each of 128 bytes
};
/// Copies a box asynchronously into dynamic shared memory, in the 128-byte swizzle, which counts
/// from the beginning of that memory. The mbarrier counts the bytes: at once, or when a thread
/// waits for it.
void copy_box(void* to, const Box& box, std::uint64_t* barrier);

/// A named barrier for `threads` threads of a block. Threads with waits = false only arrive
/// (bar.arrive); the others also wait (bar.sync).
void named_barrier(int number, int threads, bool waits,
                   Site site = {"named_barrier", __builtin_FILE(), __builtin_LINE()});
/// Waits for the other threads of the calling thread's warpgroup.
void meet_warpgroup(Site site = {"meet_warpgroup", __builtin_FILE(), __builtin_LINE()});

namespace names {

// The indices of the running thread, written when a thread starts or resumes. constinit avoids a
// call of a wrapper at each access.
extern constinit thread_local uint3 threadIdx;
extern constinit thread_local uint3 blockIdx;
extern constinit thread_local dim3 blockDim;
extern constinit thread_local dim3 gridDim;
inline constexpr int warpSize = 32;

// Default arguments that record where a barrier is called: if threads meet at different barriers,
// that is a fault.
#define SWITCHBACK_CUDA_EMU_SITE const char *file = __builtin_FILE(), int line = __builtin_LINE()

inline void __syncthreads(SWITCHBACK_CUDA_EMU_SITE) {
  block_barrier(0, {"__syncthreads", file, line});
}
inline int __syncthreads_or(int predicate, SWITCHBACK_CUDA_EMU_SITE) {
  return block_barrier(predicate, {"__syncthreads_or", file, line}) ? 1 : 0;
}
// CUTLASS's headers name this function.
inline int __syncthreads_and(int predicate, SWITCHBACK_CUDA_EMU_SITE) {
  return block_barrier(predicate == 0 ? 1 : 0, {"__syncthreads_and", file, line}) ? 0 : 1;
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
inline unsigned __reduce_max_sync(unsigned mask, unsigned value, SWITCHBACK_CUDA_EMU_SITE) {
  return static_cast<unsigned>(
      warp_collective(WarpVote::max, mask, value, 0, {"__reduce_max_sync", file, line}));
}

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
  // A segment has `width` lanes. A lane can read its own segment and earlier ones, but not later
  // ones.
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
#undef SWITCHBACK_CUDA_EMU_SITE

inline void __nanosleep(unsigned) {
  yield_thread();
}
[[noreturn]] inline void __trap() {
  trap("__trap");
}

}  // namespace names
}  // namespace switchback_cuda_emu
