// SPDX-License-Identifier: Apache-2.0
// Kernels with planted mistakes: the emulated device must find each, by the sanitizer that is
// responsible for it, or by wrong results without a sanitizer.
#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "cuda_emu/harness.hpp"
#include "cuda_emu/kernels.hpp"

namespace switchback::test {
namespace {

class CudaEmuNet : public CudaEmu {
 protected:
  void SetUp() override {
    CudaEmu::SetUp();
    // Death tests start a new process: ThreadSanitizer has its own thread, so a fork alone is not
    // enough.
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }
};

// Not inlined: if the compiler sees the array's bounds, UndefinedBehaviorSanitizer reports before
// AddressSanitizer does.
template <class T>
__attribute__((noinline)) void store(T* values, unsigned at, T value) {
  values[at] = value;
}

// out[t] = in[(t + 1) % 128], through shared memory. Without the barrier, a thread reads what its
// neighbour may not have written yet.
template <bool with_barrier>
struct Neighbour {
  const int* in;
  int* out;
  void operator()() const {
    __shared__ int values[128];
    store(values, threadIdx.x, in[threadIdx.x]);
    if (with_barrier) __syncthreads();
    out[threadIdx.x] = values[(threadIdx.x + 1) % 128];
  }
};

// Each thread reads an element, and then overwrites another one. Without the barrier, a neighbour
// may not have read it yet.
template <bool with_barrier>
struct Rotate {
  int* values;
  void operator()() const {
    const int mine = values[(threadIdx.x + 1) % 64];
    if (with_barrier) __syncthreads();
    values[threadIdx.x] = mine;
  }
};

std::vector<int> counted(int n) {
  std::vector<int> values(static_cast<std::size_t>(n));
  for (int i = 0; i < n; ++i)
    values[static_cast<std::size_t>(i)] = i;
  return values;
}

std::vector<int> rotated(int n) {
  std::vector<int> values(static_cast<std::size_t>(n));
  for (int i = 0; i < n; ++i)
    values[static_cast<std::size_t>(i)] = (i + 1) % n;
  return values;
}

template <class Kernel>
std::vector<int> run_neighbour() {
  const DeviceArray<int> in(counted(128));
  const DeviceArray<int> out(std::vector<int>(128, -2));
  EXPECT_EQ(run(1, 128, Kernel{in.data(), out.data()}), cudaSuccess);
  return out.read();
}

template <class Kernel>
std::vector<int> run_rotate() {
  const DeviceArray<int> values(counted(64));
  EXPECT_EQ(run(1, 64, Kernel{values.data()}), cudaSuccess);
  return values.read();
}

TEST_F(CudaEmuNet, WithTheBarrierAllIsWell) {
  EXPECT_EQ(run_neighbour<Neighbour<true>>(), rotated(128));
  EXPECT_EQ(run_rotate<Rotate<true>>(), rotated(64));
}

#ifdef SWITCHBACK_TEST_TSAN

// The exit code of a process in which ThreadSanitizer has reported a race.
constexpr int reported = 66;

TEST_F(CudaEmuNet, AMissingBarrierIsARace) {
  EXPECT_EXIT((run_neighbour<Neighbour<false>>(), std::exit(0)),
              ::testing::ExitedWithCode(reported), "data race");
  EXPECT_EXIT((run_rotate<Rotate<false>>(), std::exit(0)), ::testing::ExitedWithCode(reported),
              "data race");
}

TEST_F(CudaEmuNet, AMissingWarpBarrierIsARace) {
  EXPECT_EXIT(
      {
        const DeviceArray<int> values(counted(32));
        run(1, 32, [values = values.data()] {
          values[threadIdx.x] = 1;
          __syncwarp(threadIdx.x < 16 ? 0x0000ffffu : 0xffff0000u);
          if (values[31 - threadIdx.x] != 1) __trap();
        });
        std::exit(0);
      },
      ::testing::ExitedWithCode(reported), "data race");
}

// In this loop, a barrier before the next round's write is missing.
TEST_F(CudaEmuNet, ABarrierThatIsMissingInALoopIsARace) {
  EXPECT_EXIT(
      {
        const DeviceArray<int> out(64);
        run(1, 64, [out = out.data()] {
          __shared__ int value;
          for (int i = 0; i < 3; ++i) {
            if (threadIdx.x == 0) value = i;
            __syncthreads();
            out[threadIdx.x] = value;
          }
        });
        std::exit(0);
      },
      ::testing::ExitedWithCode(reported), "data race");
}

TEST_F(CudaEmuNet, TwoThreadsThatWriteOneElementAreARace) {
  EXPECT_EXIT(
      {
        const DeviceArray<int> values(counted(32));
        run(1, 64, [values = values.data()] { values[threadIdx.x / 2] = 1; });
        std::exit(0);
      },
      ::testing::ExitedWithCode(reported), "data race");
}

#else

TEST_F(CudaEmuNet, AMissingBarrierGivesWrongResults) {
  int neighbours = 0;
  int rotations = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    emu::reset({.schedule_seed = seed});
    neighbours += run_neighbour<Neighbour<false>>() != rotated(128) ? 1 : 0;
    rotations += run_rotate<Rotate<false>>() != rotated(64) ? 1 : 0;
  }
  EXPECT_EQ(neighbours, 20) << "what an earlier launch left in shared memory is gone";
  EXPECT_GE(rotations, 19) << "an ascending order may happen to be right";
}

#endif

#ifndef SWITCHBACK_TEST_TSAN

TEST_F(CudaEmuNet, AMisalignedVectorIsCaught) {
  const DeviceArray<float> in(std::vector<float>(132, 1.5f));
  const DeviceArray<float> out(std::vector<float>(132, 0.0f));
  const auto copy = [&](int from, int to) {
    if (const cudaError_t error = launch_copy_fours(in.data() + from, out.data() + to, 32, nullptr))
      return error;
    return cudaDeviceSynchronize();
  };
  EXPECT_EQ(copy(4, 0), cudaSuccess);
  EXPECT_DEATH(copy(1, 0), "misaligned address");
  EXPECT_DEATH(copy(0, 2), "misaligned address");
}

#endif

#ifdef SWITCHBACK_TEST_ASAN

TEST_F(CudaEmuNet, AWriteBehindASharedArrayIsCaught) {
  EXPECT_DEATH(run(1, 64,
                   [] {
                     __shared__ float values[63];
                     store(values, threadIdx.x, 1.0f);
                   }),
               "global-buffer-overflow");
}

TEST_F(CudaEmuNet, AWriteBehindDynamicSharedMemoryIsCaught) {
  EXPECT_DEATH(run(
                   1, 64,
                   [] {
                     SWITCHBACK_DYNAMIC_SHARED(float, values);
                     values[threadIdx.x] = 1.0f;
                   },
                   63 * sizeof(float)),
               "heap-buffer-overflow");
}

TEST_F(CudaEmuNet, AccessesOutsideOfAnAllocationAreCaught) {
  const DeviceArray<int> values(63);
  EXPECT_DEATH(run(1, 64, [values = values.data()] { values[threadIdx.x] = 1; }),
               "heap-buffer-overflow");
  EXPECT_DEATH(run(1, 1, [values = values.data()] { values[0] = *(values - 1); }),
               "heap-buffer-overflow");
}

TEST_F(CudaEmuNet, UseAfterAnAsynchronousFreeIsCaught) {
  int* values = nullptr;
  ASSERT_EQ(cudaMallocAsync(&values, 64, nullptr), cudaSuccess);
  ASSERT_EQ(cudaFreeAsync(values, nullptr), cudaSuccess);
  EXPECT_DEATH(run(1, 1, [values] { *values = 1; }), "heap-use-after-free");
}

TEST_F(CudaEmuNet, UseBeforeAnAsynchronousAllocationIsCaught) {
  cudaStream_t allocating = nullptr;
  cudaStream_t using_it = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&allocating, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaStreamCreateWithFlags(&using_it, cudaStreamNonBlocking), cudaSuccess);
  emu::options().schedule_seed = 0;  // seed 0: only operations that a call waits for run
  int* values = nullptr;
  ASSERT_EQ(cudaMallocAsync(&values, 64, allocating), cudaSuccess);
  EXPECT_DEATH((launch(
                    1, 1, [values] { *values = 1; }, using_it),
                cudaStreamSynchronize(using_it)),
               "use-after-poison");
}

TEST_F(CudaEmuNet, HostCodeThatTouchesDeviceMemoryIsCaught) {
  const DeviceArray<int> values(std::vector<int>(16, 3));
  EXPECT_DEATH(static_cast<void>(*const_cast<volatile int*>(values.data())), "use-after-poison");
  EXPECT_EQ(values.read()[15], 3);
}

TEST_F(CudaEmuNet, AKernelThatTouchesAnotherDevicesMemoryIsCaught) {
  emu::options().device_count = 2;
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  int* values = nullptr;
  ASSERT_EQ(cudaMalloc(&values, 64), cudaSuccess);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_DEATH(run(1, 1, [values] { *values = 1; }), "use-after-poison");
}

// GCC puts red zones around this shared array only because the kernel has internal linkage.
TEST_F(CudaEmuNet, ASharedArrayOfATemplateIsGuardedInAnUnnamedNamespace) {
  const DeviceArray<int> in(std::vector<int>(256, 0));
  const DeviceArray<int> out(256);
  EXPECT_DEATH(run(1, 129, Neighbour<true>{in.data(), out.data()}), "global-buffer-overflow");
}

#endif

// The mbarrier of a kernel with eight bytes of dynamic shared memory.
std::uint64_t* mbarrier() {
  return static_cast<std::uint64_t*>(emu::dynamic_shared());
}

TEST_F(CudaEmuNet, WrongUsesOfBarriersAreNamed) {
  const auto expect_fault = [](const char* what, auto kernel) {
    emu::reset();
    EXPECT_EQ(run(1, 32, kernel, 8), cudaErrorLaunchFailure);
    EXPECT_NE(emu::last_fault().find(what), std::string::npos) << emu::last_fault();
  };
  expect_fault("not initialised", [] { emu::mbarrier_wait(mbarrier(), 0); });
  expect_fault("more arrivals", [] {
    if (threadIdx.x != 0) return;
    emu::mbarrier_init(mbarrier(), 2);
    emu::mbarrier_arrive(mbarrier(), 16);
    emu::mbarrier_arrive(mbarrier(), 0);
    emu::mbarrier_arrive(mbarrier(), 0);
  });
  expect_fault("mbarrier_wait", [] {  // the barrier announces bytes that never arrive
    if (threadIdx.x == 0) {
      emu::mbarrier_init(mbarrier(), 1);
      emu::mbarrier_arrive(mbarrier(), 16);
      emu::mbarrier_wait(mbarrier(), 0);
    }
  });
  expect_fault("different numbers of threads",
               [] { emu::named_barrier(3, threadIdx.x == 0 ? 16 : 32, true); });
}

}  // namespace
}  // namespace switchback::test
