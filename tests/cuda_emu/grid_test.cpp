// SPDX-License-Identifier: Apache-2.0
// Cooperative launches on the emulated device: all blocks exist at the same time, and wait for each
// other at barriers of the grid.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cuda_emu/harness.hpp"

namespace switchback::test {
namespace {

constexpr unsigned grid_blocks = 5;
constexpr unsigned grid_threads = 70;
constexpr std::uint64_t grid_seeds[] = {0, 1, 2, 77};

class CudaEmuGrid : public CudaEmu {
 protected:
  // Launches f cooperatively and returns the result of the synchronization.
  template <class F>
  static cudaError_t run_together(F f, std::size_t shared_bytes = 0, dim3 grid = grid_blocks,
                                  dim3 block = grid_threads) {
    if (const cudaError_t error = emu::launch_cooperative(call_kernel<F>, grid, block, shared_bytes,
                                                          nullptr, "together", f))
      return error;
    return cudaDeviceSynchronize();
  }
};

// Without a barrier of the grid, a block misses a value that another block has not written yet.
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

TEST_F(CudaEmuGrid, AThreadThatReturnedIsMissed) {
  for (const std::uint64_t seed : grid_seeds) {
    emu::reset({.schedule_seed = seed});
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
  // The grid has one block, because several blocks would write the variable without being ordered.
  EXPECT_EQ(run_together(keeps, 0, 1), cudaErrorLaunchFailure);
  EXPECT_NE(emu::last_fault().find("static shared memory in a cooperative launch"),
            std::string::npos)
      << emu::last_fault();
}

TEST_F(CudaEmuGrid, MoreBlocksThanTheDeviceHasRoomForAreRefused) {
  emu::reset({.multiprocessor_count = 2});
  const auto nothing = [] {};
  EXPECT_EQ(run_together(nothing, 0, 4, 1024), cudaSuccess);
  EXPECT_EQ(run_together(nothing, 0, 5, 1024), cudaErrorCooperativeLaunchTooLarge);
  emu::reset({.cooperative_launches = false});
  EXPECT_EQ(run_together(nothing), cudaErrorNotSupported);
}

}  // namespace
}  // namespace switchback::test
