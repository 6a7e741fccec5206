// SPDX-License-Identifier: Apache-2.0
// CUDA core: copies of boxes of a matrix to shared memory by the copy engine (TMA), barriers in
// shared memory that count their bytes, and barriers and registers of warpgroups: instructions of
// 9.0, with C++ code for the emulated device.
#pragma once

#include <cstdint>

#include "core/cuda/api.hpp"
#include "core/cuda/ptx.cuh"
#include "core/cuda/tensor_map.hpp"

namespace switchback::core::cuda {

/// An asynchronous barrier in shared memory, in phases: a phase ends when all its arrivals have
/// come, and all bytes that these announced. Who waits names the parity of a phase, 0 for the
/// first.
class Mbarrier {
 public:
  /// By one thread, before publish_mbarriers() and a barrier of the block.
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
  /// Announces bytes of copies that count here.
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
    // A wait has an end: a fault is better than a GPU that hangs. (Without it, ptxas of CUDA 13.0
    // also waits for each product of a warpgroup: "wgmma.mma_async instructions are serialized".)
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

/// What init() wrote can be seen by the copy engine.
__device__ __forceinline__ void publish_mbarriers() {
#if !defined(SWITCHBACK_CUDA_EMULATED) && __CUDA_ARCH__ >= 900
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

/// Copies the box of a matrix that begins at a row and a column, in the swizzle of 128 bytes, to a
/// multiple of 1024 in shared memory (of the emulated device: from the beginning of dynamic shared
/// memory on), and counts its bytes, also those beyond the matrix, at `counts`. By one thread.
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

/// The barrier of a number from 1 to 15, of `threads` threads of the block.
template <int threads>
__device__ __forceinline__ void wait_at_barrier(int number) {
#if defined(SWITCHBACK_CUDA_EMULATED)
  ::switchback_cuda_emu::named_barrier(number, threads, true);
#else
  asm volatile("bar.sync %0, %1;" ::"r"(number), "n"(threads) : "memory");
#endif
}
/// Counts as the threads that wait there, and goes on.
template <int threads>
__device__ __forceinline__ void arrive_at_barrier(int number) {
#if defined(SWITCHBACK_CUDA_EMULATED)
  ::switchback_cuda_emu::named_barrier(number, threads, false);
#else
  asm volatile("bar.arrive %0, %1;" ::"r"(number), "n"(threads) : "memory");
#endif
}

/// The registers that each thread of a warpgroup has from here on: fewer, or more where others have
/// given some back. (Those of a launch and their sum are for the kernel to check.)
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
