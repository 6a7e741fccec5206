// SPDX-License-Identifier: Apache-2.0
// Cooperative launches: all blocks are there at once, and wait for each other at barriers of the
// grid.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "cuda_emu/harness.hpp"

namespace switchback::test {
namespace {

constexpr unsigned grid_blocks = 5;
constexpr unsigned grid_threads = 70;
constexpr std::size_t grid_count = std::size_t{grid_blocks} * grid_threads;
constexpr std::uint64_t grid_seeds[] = {0, 1, 2, 77};

class CudaEmuGrid : public CudaEmu {
 protected:
  // What the synchronization reports.
  template <class F>
  static cudaError_t run_together(F f, std::size_t shared_bytes = 0, dim3 grid = grid_blocks,
                                  dim3 block = grid_threads) {
    if (const cudaError_t error = emu::launch_cooperative(call_kernel<F>, grid, block, shared_bytes,
                                                          nullptr, "together", f))
      return error;
    return cudaDeviceSynchronize();
  }
  static void set_seed(std::uint64_t seed) {
    emu::Options options;
    options.schedule_seed = seed;
    emu::reset(options);
  }
  static unsigned index() { return blockIdx.x * blockDim.x + threadIdx.x; }
};

TEST_F(CudaEmuGrid, BarriersSeparatePhasesOfAllBlocks) {
  for (const std::uint64_t seed : grid_seeds) {
    set_seed(seed);
    const DeviceArray<int> between(std::vector<int>(2 * grid_count, -1));
    const DeviceArray<int> out(std::vector<int>(grid_count, -1));
    ASSERT_EQ(run_together([between = between.data(), to = out.data()] {
                const unsigned i = index();
                between[i] = static_cast<int>(i);
                emu::grid_barrier();
                between[grid_count + i] = between[grid_count - 1 - i] + 1;
                __syncthreads();
                emu::grid_barrier();
                to[i] = between[grid_count + (i + grid_threads) % grid_count];
              }),
              cudaSuccess)
        << emu::last_fault();
    std::vector<int> want(grid_count);
    for (std::size_t i = 0; i < grid_count; ++i)
      want[i] = static_cast<int>(grid_count - (i + grid_threads) % grid_count);
    EXPECT_EQ(out.read(), want);
  }
}

TEST_F(CudaEmuGrid, ABlockKeepsItsSharedMemoryWhileOthersRun) {
  for (const std::uint64_t seed : grid_seeds) {
    set_seed(seed);
    const DeviceArray<unsigned> out(std::vector<unsigned>(grid_count, 0));
    ASSERT_EQ(run_together(
                  [to = out.data()] {
                    SWITCHBACK_DYNAMIC_SHARED(unsigned, kept);
                    kept[threadIdx.x] = index();
                    emu::grid_barrier();
                    to[index()] = kept[grid_threads - 1 - threadIdx.x];
                  },
                  grid_threads * sizeof(unsigned)),
              cudaSuccess)
        << emu::last_fault();
    std::vector<unsigned> want(grid_count);
    for (unsigned i = 0; i < grid_count; ++i)
      want[i] = i / grid_threads * grid_threads + grid_threads - 1 - i % grid_threads;
    EXPECT_EQ(out.read(), want);
  }
}

TEST_F(CudaEmuGrid, BlocksComeInManyOrders) {
  std::set<std::vector<unsigned>> orders;
  bool early = false;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    set_seed(seed);
    const DeviceArray<unsigned> turns(std::vector<unsigned>(1, 0));
    const DeviceArray<unsigned> order(std::vector<unsigned>(grid_blocks, 0));
    ASSERT_EQ(run_together([turn = turns.data(), to = order.data()] {
                if (threadIdx.x == 0) to[blockIdx.x] = atomicAdd(turn, 1u);
                emu::grid_barrier();
              }),
              cudaSuccess);
    orders.insert(order.read());
    early = early || order.read()[grid_blocks - 1] == 0;
  }
  EXPECT_GT(orders.size(), 10u);
  EXPECT_TRUE(early);
}

// What another block has not written yet is missing, where it is not waited for.
TEST_F(CudaEmuGrid, WithoutABarrierSomeBlocksAreBehind) {
  const DeviceArray<int> between(std::vector<int>(grid_blocks, 0));
  const DeviceArray<int> out(std::vector<int>(grid_blocks, 1));
  ASSERT_EQ(run_together([between = between.data(), to = out.data()] {
              if (threadIdx.x == 0) between[blockIdx.x] = 1;
              __syncthreads();
              if (threadIdx.x == 0) to[blockIdx.x] = between[grid_blocks - 1 - blockIdx.x];
            }),
            cudaSuccess);
  EXPECT_NE(out.read(), std::vector<int>(grid_blocks, 1));
}

TEST_F(CudaEmuGrid, ThreadsMeetAtOneBarrier) {
  // Outside of the macro, where all lines would be one.
  const auto divided = [] {
    if (threadIdx.x == 0)
      emu::grid_barrier();
    else
      emu::grid_barrier();
  };
  EXPECT_EQ(run_together(divided), cudaErrorLaunchFailure);
  EXPECT_NE(emu::last_fault().find("divergent barrier of the grid"), std::string::npos)
      << emu::last_fault();
}

// A barrier made of a counter: whoever waits lets the other blocks run.
TEST_F(CudaEmuGrid, BlocksCanWaitForACounter) {
  for (const std::uint64_t seed : grid_seeds) {
    set_seed(seed);
    const DeviceArray<unsigned> arrived(std::vector<unsigned>(1, 0));
    const DeviceArray<unsigned> seen(std::vector<unsigned>(grid_blocks, 0));
    ASSERT_EQ(run_together([arrived = arrived.data(), to = seen.data()] {
                __syncthreads();
                if (threadIdx.x == 0) {
                  atomicAdd(arrived, 1u);
                  while (atomicAdd(arrived, 0u) < gridDim.x)
                    __nanosleep(20);
                  to[blockIdx.x] = atomicAdd(arrived, 0u);
                }
                __syncthreads();
              }),
              cudaSuccess)
        << emu::last_fault();
    EXPECT_EQ(seen.read(), std::vector<unsigned>(grid_blocks, grid_blocks));
  }
}

TEST_F(CudaEmuGrid, AThreadThatReturnedIsMissed) {
  for (const std::uint64_t seed : grid_seeds) {
    set_seed(seed);
    EXPECT_EQ(run_together([] {
                if (blockIdx.x != 3) emu::grid_barrier();
              }),
              cudaErrorLaunchFailure);
    EXPECT_NE(emu::last_fault().find("for 70 that have returned"), std::string::npos)
        << emu::last_fault();
  }
}

TEST_F(CudaEmuGrid, OnlyACooperativeLaunchHasSuchBarriers) {
  EXPECT_EQ(run(grid_blocks, grid_threads, [] { emu::grid_barrier(); }), cudaErrorLaunchFailure);
  EXPECT_NE(emu::last_fault().find("in a launch that is not cooperative"), std::string::npos)
      << emu::last_fault();
}

TEST_F(CudaEmuGrid, StaticSharedMemoryIsRefused) {
  const auto keeps = [] {
    __shared__ unsigned kept[2];
    if (threadIdx.x == 0) kept[0] = 1;
    __syncthreads();
    if (kept[0] != 1) __trap();
  };
  // One block alone: others would set it too, without being ordered.
  EXPECT_EQ(run_together(keeps, 0, 1), cudaErrorLaunchFailure);
  EXPECT_NE(emu::last_fault().find("static shared memory in a cooperative launch"),
            std::string::npos)
      << emu::last_fault();
}

TEST_F(CudaEmuGrid, MoreBlocksThanTheDeviceHasRoomForAreRefused) {
  emu::Options options;
  options.multiprocessor_count = 2;
  emu::reset(options);
  const auto nothing = [] {};
  EXPECT_EQ(run_together(nothing, 0, 4, 1024), cudaSuccess);
  EXPECT_EQ(run_together(nothing, 0, 5, 1024), cudaErrorCooperativeLaunchTooLarge);
  options.cooperative_launches = false;
  emu::reset(options);
  EXPECT_EQ(run_together(nothing), cudaErrorNotSupported);
}

}  // namespace
}  // namespace switchback::test
