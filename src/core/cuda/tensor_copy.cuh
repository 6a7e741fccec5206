// SPDX-License-Identifier: Apache-2.0
//  CUDA core: instructions of compute capability 9.0, with C++ code for the emulated device:
//   - copies of boxes of a matrix to shared memory by the copy engine (TMA)
//   - barriers in shared memory that count the bytes of these copies
//   - barriers and registers of warpgroups
#pragma once

#include <cstdint>

#include "core/cuda/api.hpp"
#include "core/cuda/ptx.cuh"
#include "core/cuda/tensor_map.hpp"

namespace switchback::core::cuda {

/// An asynchronous barrier in shared memory, in phases. A phase ends when all its arrivals and all
/// the bytes that they announced have come. A waiting thread names the parity of a phase; the first
/// phase has parity 0.
class Mbarrier {
 public:
  /// Initialises the barrier. Called by one thread, before publish_mbarriers() and a block barrier.
  __device__ __forceinline__ void init(unsigned arrivals) {
#if defined(SWITCHBACK_CUDA_EMULATED)
    ::switchback_cuda_emu::mbarrier_init(&word_, arrivals);
#else
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(place()), "r"(arrivals)
                 : "memory");
#endif
  }
  __device__ __forceinline__ void arrive() {
#if defined(SWITCHBACK_CUDA_EMULATED)
    ::switchback_cuda_emu::mbarrier_arrive(&word_, 0);
#else
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(place()) : "memory");
#endif
  }
  /// Arrives at the barrier, and announces the bytes of copies that the barrier counts.
  __device__ __forceinline__ void arrive_and_announce(unsigned bytes) {
#if defined(SWITCHBACK_CUDA_EMULATED)
    ::switchback_cuda_emu::mbarrier_arrive(&word_, bytes);
#else
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(place()), "r"(bytes)
                 : "memory");
#endif
  }
  __device__ __forceinline__ void wait(unsigned parity) {
#if defined(SWITCHBACK_CUDA_EMULATED)
    ::switchback_cuda_emu::mbarrier_wait(&word_, parity);
#else
    // The number of tries is limited: a fault is better than a GPU that hangs. (Without the limit,
    // ptxas of CUDA 13.0 also waits for each product of a warpgroup: "wgmma.mma_async instructions
    // are serialized".)
    constexpr int most_tries = 1 << 30;
    int tries = 0;
    while (true) {
      unsigned over = 0;
      asm volatile(
          "{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; "
          "selp.u32 %0, 1, 0, p;}"
          : "=r"(over)
          : "r"(place()), "r"(parity)
          : "memory");
      if (over != 0) break;
      if (++tries == most_tries) __trap();
    }
#endif
  }

 private:
  friend __device__ void copy_box(void*, const TensorMap&, int, int, Mbarrier&);
  [[nodiscard]] __device__ __forceinline__ unsigned place() const {
    return shared_place(&word_);
  }

  std::uint64_t word_;
};

/// Makes initialised Mbarriers visible to the copy engine (TMA).
__device__ __forceinline__ void publish_mbarriers() {
#if !defined(SWITCHBACK_CUDA_EMULATED) && __CUDA_ARCH__ >= 900
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

/// Copies the box of a matrix that begins at a row and a column to shared memory, in the 128-byte
/// swizzle. The target is at a multiple of 1024 bytes in shared memory (on the emulated device
/// counted from the beginning of dynamic shared memory). The barrier `counts` counts all bytes of
/// the box, also those outside of the matrix. Called by one thread.
__device__ __forceinline__ void copy_box(void* to, const TensorMap& map, int row, int column,
                                         Mbarrier& counts) {
#if defined(SWITCHBACK_CUDA_EMULATED)
  ::switchback_cuda_emu::copy_box(to,
                                  {reinterpret_cast<const unsigned char*>(map.data), map.rows,
                                   map.columns, map.stride, row, column, map.box_rows},
                                  &counts.word_);
#elif __CUDA_ARCH__ >= 900
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3}], [%4];" ::"r"(shared_place(to)),
      "l"(&map), "r"(column), "r"(row), "r"(counts.place())
      : "memory");
#endif
}

/// Waits at the block's named barrier `number` (1 to 15) until `threads` threads have arrived.
template <int threads>
__device__ __forceinline__ void wait_at_barrier(int number) {
#if defined(SWITCHBACK_CUDA_EMULATED)
  ::switchback_cuda_emu::named_barrier(number, threads, true);
#else
  asm volatile("bar.sync %0, %1;" ::"r"(number), "n"(threads) : "memory");
#endif
}
/// Arrives at the block's named barrier `number` (1 to 15) without waiting.
template <int threads>
__device__ __forceinline__ void arrive_at_barrier(int number) {
#if defined(SWITCHBACK_CUDA_EMULATED)
  ::switchback_cuda_emu::named_barrier(number, threads, false);
#else
  asm volatile("bar.arrive %0, %1;" ::"r"(number), "n"(threads) : "memory");
#endif
}

/// Sets the number of registers of each thread of a warpgroup from here on: give_back_registers to
/// fewer, take_registers to more, if other warpgroups have given some back. (The kernel must check
/// the number at the launch and the sum.)
template <int registers>
__device__ __forceinline__ void give_back_registers() {
#if !defined(SWITCHBACK_CUDA_EMULATED) && __CUDA_ARCH__ >= 900
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
#endif
}
template <int registers>
__device__ __forceinline__ void take_registers() {
#if !defined(SWITCHBACK_CUDA_EMULATED) && __CUDA_ARCH__ >= 900
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
#endif
}

}  // namespace switchback::core::cuda
