// SPDX-License-Identifier: Apache-2.0
// Threads of a block: indices, barriers, warp collectives, shared memory.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <type_traits>
#include <vector>

#include "cuda_emu/harness.hpp"
#include "cuda_emu/kernels.hpp"

namespace switchback::test {
namespace {

using CudaEmuBlock = CudaEmu;

// Orders of threads: the obvious one, and two others.
void set_seed(std::uint64_t seed) {
  emu::Options options;
  options.schedule_seed = seed;
  emu::reset(options);
}
constexpr std::uint64_t seeds[] = {0, 1, 77};

TEST_F(CudaEmuBlock, EveryThreadOfEveryBlockRunsOnce) {
  for (const std::uint64_t seed : seeds) {
    set_seed(seed);
    for (const dim3 grid : {dim3(1), dim3(7), dim3(3, 2, 2)})
      for (const dim3 block : {dim3(1), dim3(31), dim3(33), dim3(8, 4, 3), dim3(1024)}) {
        const std::size_t count =
            std::size_t{grid.x} * grid.y * grid.z * block.x * block.y * block.z;
        const DeviceArray<int> hits(std::vector<int>(count, 0));
        ASSERT_EQ(run(grid, block,
                      [hits = hits.data()] {
                        const unsigned b =
                            (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
                        const unsigned t =
                            (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
                        ++hits[b * (blockDim.x * blockDim.y * blockDim.z) + t];
                      }),
                  cudaSuccess);
        EXPECT_EQ(hits.read(), std::vector<int>(count, 1));
      }
  }
}

TEST_F(CudaEmuBlock, ParametersAreEachThreadsOwn) {
  const DeviceArray<int> out(64);
  ASSERT_EQ(run(1, 64,
                [out = out.data(), counter = 0]() mutable {
                  __syncthreads();
                  out[threadIdx.x] = ++counter;
                }),
            cudaSuccess);
  EXPECT_EQ(out.read(), std::vector<int>(64, 1));
}

TEST_F(CudaEmuBlock, KernelsFromACudaFile) {
  std::vector<float> in(256 * 5);
  for (std::size_t i = 0; i < in.size(); ++i)
    in[i] = static_cast<float>(i % 17);
  const DeviceArray<float> device_in(in);
  const DeviceArray<float> out(5);
  ASSERT_EQ(launch_scale(device_in.data(), device_in.data(), 256 * 5, 2.0f, nullptr), cudaSuccess);
  ASSERT_EQ(launch_sum(device_in.data(), out.data(), 5, nullptr), cudaSuccess);
  const std::vector<float> sums = out.read();
  for (std::size_t b = 0; b < 5; ++b)
    EXPECT_EQ(sums[b],
              2 * std::accumulate(in.begin() + static_cast<std::ptrdiff_t>(b * 256),
                                  in.begin() + static_cast<std::ptrdiff_t>(b * 256 + 256), 0.0f));
}

TEST_F(CudaEmuBlock, BarriersSeparatePhases) {
  for (const std::uint64_t seed : seeds) {
    set_seed(seed);
    constexpr int threads = 96;
    const DeviceArray<int> out(threads);
    ASSERT_EQ(run(4, threads,
                  [out = out.data()] {
                    __shared__ int values[2][threads];
                    const unsigned t = threadIdx.x;
                    values[0][t] = static_cast<int>(t);
                    for (int step = 0; step < 10; ++step) {
                      __syncthreads();
                      values[(step + 1) % 2][t] = values[step % 2][(t + 1) % threads] + 1;
                    }
                    out[t] = values[0][t];
                  }),
              cudaSuccess);
    std::vector<int> expected(threads);
    for (int t = 0; t < threads; ++t)
      expected[static_cast<std::size_t>(t)] = (t + 10) % threads + 10;
    EXPECT_EQ(out.read(), expected);
  }
}

TEST_F(CudaEmuBlock, BarriersThatVote) {
  for (const std::uint64_t seed : seeds) {
    set_seed(seed);
    const DeviceArray<int> out(100 * 6);
    ASSERT_EQ(run(1, 100,
                  [out = out.data()] {
                    const unsigned t = threadIdx.x;
                    out[t * 6 + 0] = __syncthreads_or(t == 70);
                    out[t * 6 + 1] = __syncthreads_or(0);
                    out[t * 6 + 2] = __syncthreads_and(t != 70);
                    out[t * 6 + 3] = __syncthreads_and(1);
                    out[t * 6 + 4] = __syncthreads_count(t % 3 == 0);
                    out[t * 6 + 5] = __syncthreads_count(0);
                  }),
              cudaSuccess);
    const std::vector<int> values = out.read();
    for (std::size_t t = 0; t < 100; ++t)
      EXPECT_EQ(std::vector<int>(values.begin() + static_cast<std::ptrdiff_t>(t * 6),
                                 values.begin() + static_cast<std::ptrdiff_t>(t * 6 + 6)),
                (std::vector<int>{1, 0, 0, 1, 34, 0}));
  }
}

TEST_F(CudaEmuBlock, Shuffles) {
  for (const std::uint64_t seed : seeds) {
    set_seed(seed);
    constexpr int kinds = 8;
    const DeviceArray<int> out(64 * kinds);
    ASSERT_EQ(run(1, 64,
                  [out = out.data()] {
                    const int t = static_cast<int>(threadIdx.x);
                    const unsigned all = 0xffffffffu;
                    int* mine = out + t * kinds;
                    mine[0] = __shfl_sync(all, t, 5);
                    mine[1] = __shfl_sync(all, t, 5, 8);
                    mine[2] = __shfl_xor_sync(all, t, 3);
                    mine[3] = __shfl_xor_sync(all, t, 8, 8);
                    mine[4] = __shfl_down_sync(all, t, 3);
                    mine[5] = __shfl_down_sync(all, t, 3, 4);
                    mine[6] = __shfl_up_sync(all, t, 3);
                    mine[7] = __shfl_up_sync(all, t, 3, 16);
                  }),
              cudaSuccess);
    const std::vector<int> values = out.read();
    for (int t = 0; t < 64; ++t) {
      const int lane = t % 32;
      const int warp = t - lane;
      const int* mine = values.data() + t * kinds;
      EXPECT_EQ(mine[0], warp + 5);
      EXPECT_EQ(mine[1], warp + lane / 8 * 8 + 5);
      EXPECT_EQ(mine[2], warp + (lane ^ 3));
      EXPECT_EQ(mine[3], warp + (lane % 16 >= 8 ? lane - 8 : lane)) << "later segments stay closed";
      EXPECT_EQ(mine[4], warp + (lane + 3 < 32 ? lane + 3 : lane));
      EXPECT_EQ(mine[5], warp + (lane % 4 + 3 < 4 ? lane + 3 : lane));
      EXPECT_EQ(mine[6], warp + (lane >= 3 ? lane - 3 : lane));
      EXPECT_EQ(mine[7], warp + (lane % 16 >= 3 ? lane - 3 : lane));
    }
  }
}

TEST_F(CudaEmuBlock, ShufflesOfOtherTypesAndOfGroups) {
  const DeviceArray<double> doubles(32);
  const DeviceArray<float> floats(32);
  ASSERT_EQ(run(1, 32,
                [doubles = doubles.data(), floats = floats.data()] {
                  const unsigned t = threadIdx.x;
                  doubles[t] = __shfl_xor_sync(0xffffffffu, t + 0.25, 1);
                  // Groups of four go their own ways, a different number of times.
                  const unsigned mask = 0xfu << (t & ~3u);
                  float value = static_cast<float>(t);
                  for (unsigned i = 0; i <= t / 4; ++i)
                    value = __shfl_xor_sync(mask, value, 1) + 1.0f;
                  floats[t] = value;
                }),
            cudaSuccess);
  const std::vector<double> d = doubles.read();
  const std::vector<float> f = floats.read();
  for (unsigned t = 0; t < 32; ++t) {
    EXPECT_EQ(d[t], (t ^ 1) + 0.25);
    const unsigned steps = t / 4 + 1;
    EXPECT_EQ(f[t], static_cast<float>((steps % 2 == 1 ? t ^ 1 : t) + steps));
  }
}

TEST_F(CudaEmuBlock, VotesAndReductionsOfAWarp) {
  for (const std::uint64_t seed : seeds) {
    set_seed(seed);
    constexpr int kinds = 9;
    const DeviceArray<unsigned> out(32 * kinds);
    ASSERT_EQ(run(1, 32,
                  [out = out.data()] {
                    const unsigned t = threadIdx.x;
                    const unsigned all = 0xffffffffu;
                    unsigned* mine = out + t * kinds;
                    mine[0] = __ballot_sync(all, t % 3 == 0);
                    mine[1] = static_cast<unsigned>(__any_sync(all, t == 31));
                    mine[2] = static_cast<unsigned>(__any_sync(all, 0));
                    mine[3] = static_cast<unsigned>(__all_sync(all, t < 32));
                    mine[4] = static_cast<unsigned>(__all_sync(all, t != 7));
                    mine[5] = __reduce_max_sync(all, 0x80000000u + t);
                    mine[6] =
                        static_cast<unsigned>(__reduce_min_sync(all, static_cast<int>(t) - 9));
                    mine[7] = __reduce_add_sync(all, t);
                    mine[8] = __activemask();
                    __syncwarp();
                  }),
              cudaSuccess);
    const std::vector<unsigned> values = out.read();
    for (std::size_t t = 0; t < 32; ++t) {
      const unsigned* mine = values.data() + t * kinds;
      EXPECT_EQ(mine[0], 0x49249249u);
      EXPECT_EQ(mine[1], 1u);
      EXPECT_EQ(mine[2], 0u);
      EXPECT_EQ(mine[3], 1u);
      EXPECT_EQ(mine[4], 0u);
      EXPECT_EQ(mine[5], 0x8000001fu);
      EXPECT_EQ(static_cast<int>(mine[6]), -9);
      EXPECT_EQ(mine[7], 496u);
      EXPECT_EQ(mine[8], 0xffffffffu);
    }
  }
}

TEST_F(CudaEmuBlock, Atomics) {
  const DeviceArray<int> ints(std::vector<int>(8, 0));
  const DeviceArray<float> floats(std::vector<float>(2, 0.0f));
  const DeviceArray<unsigned> tickets(std::vector<unsigned>(129, 0));
  ASSERT_EQ(run(2, 64,
                [ints = ints.data(), floats = floats.data(), tickets = tickets.data()] {
                  const int t = static_cast<int>(blockIdx.x * 64 + threadIdx.x);
                  atomicAdd(ints + 0, t);
                  atomicMax(ints + 1, t);
                  atomicMin(ints + 2, -t);
                  atomicOr(ints + 3, 1 << (t % 8));
                  atomicSub(ints + 4, 1);
                  atomicCAS(ints + 5, 0, 42);
                  atomicExch(ints + 6, 7);
                  atomicAdd(floats, 0.5f);
                  tickets[1 + atomicInc(tickets, 127)] += 1;
                }),
            cudaSuccess);
  EXPECT_EQ(ints.read(), (std::vector<int>{127 * 64, 127, -127, 255, -128, 42, 7, 0}));
  EXPECT_EQ(floats.read()[0], 64.0f);
  std::vector<unsigned> expected(129, 1);
  expected[0] = 0;  // has wrapped
  EXPECT_EQ(tickets.read(), expected);
}

TEST_F(CudaEmuBlock, TheLastBlockSeesWhatAllWrote) {
  constexpr unsigned blocks = 9;
  const DeviceArray<int> partial(blocks);
  const DeviceArray<unsigned> arrived(std::vector<unsigned>(1, 0));
  const DeviceArray<int> total(std::vector<int>(1, 0));
  ASSERT_EQ(run(blocks, 32,
                [partial = partial.data(), arrived = arrived.data(), total = total.data()] {
                  __shared__ bool last;
                  if (threadIdx.x == 0) {
                    partial[blockIdx.x] = static_cast<int>(blockIdx.x);
                    __threadfence();
                    last = atomicAdd(arrived, 1u) == blocks - 1;
                  }
                  __syncthreads();
                  if (last && threadIdx.x == 0)
                    for (unsigned b = 0; b < blocks; ++b)
                      *total += __ldcg(partial + b);
                }),
            cudaSuccess);
  EXPECT_EQ(total.read()[0], 36);
}

TEST_F(CudaEmuBlock, DynamicSharedMemoryStartsWithGarbage) {
  const DeviceArray<int> wrong(std::vector<int>(1, 0));
  ASSERT_EQ(run(
                3, 64,
                [wrong = wrong.data()] {
                  SWITCHBACK_DYNAMIC_SHARED(float, values);
                  if (!std::isnan(values[threadIdx.x])) atomicAdd(wrong, 1);
                  __syncthreads();
                  values[threadIdx.x] = 1.0f;
                },
                64 * sizeof(float)),
            cudaSuccess);
  EXPECT_EQ(wrong.read()[0], 0);
}

TEST_F(CudaEmuBlock, LimitsOfALaunch) {
  const auto nothing = [] {};
  EXPECT_EQ(launch(0, 32, nothing), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(1, 0, nothing), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(1, 1025, nothing), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(1, dim3(32, 33), nothing), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(1, dim3(1, 1, 65), nothing), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(dim3(1, 65536), 1, nothing), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(dim3(1, 1, 65536), 1, nothing), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(0x80000000u, 1, nothing), cudaErrorInvalidConfiguration);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidConfiguration);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(launch(1, dim3(1, 1, 64), nothing), cudaSuccess);

  EXPECT_EQ(launch(1, 1, nothing, nullptr, 48 << 10), cudaSuccess);
  EXPECT_EQ(launch(1, 1, nothing, nullptr, (48 << 10) + 1), cudaErrorInvalidValue);
  const auto raise = [&](int bytes) {
    return cudaFuncSetAttribute(call_kernel<std::remove_const_t<decltype(nothing)>>,
                                cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  };
  EXPECT_EQ(raise((227 << 10) + 1), cudaErrorInvalidValue);
  EXPECT_EQ(raise(227 << 10), cudaSuccess);
  EXPECT_EQ(launch(1, 1, nothing, nullptr, 227 << 10), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(emu::launches().size(), 3u);
}

// Every build reports these, and none of them hangs.
struct Divergence {
  const char* name;
  void (*body)();
  const char* says;
};

const Divergence divergences[] = {
    {"return before a barrier",
     [] {
       if (threadIdx.x < 5) return;
       __syncthreads();
     },
     "a thread has returned"},
    {"two barriers",
     [] {
       if (threadIdx.x < 32)
         __syncthreads();
       else
         __syncthreads();
     },
     "divergent barrier"},
    {"barrier against shuffle",
     [] {
       if (threadIdx.x % 2 == 0)
         __syncthreads();
       else
         __shfl_sync(0xffffffffu, 1, 0);
     },
     "divergent barrier"},
    {"lane that returned",
     [] {
       if (threadIdx.x == 7) return;
       __syncwarp();
     },
     "a thread has returned"},
    {"two collectives",
     [] {
       if (threadIdx.x % 2 == 0)
         __ballot_sync(0xffffffffu, 1);
       else
         __any_sync(0xffffffffu, 1);
     },
     "divergent warp collective"},
    {"two masks", [] { __syncwarp(threadIdx.x % 32 < 16 ? 0xffffffffu : 0xffff0000u); },
     "divergent barrier"},
    {"mask without the caller", [] { __syncwarp(1u); }, "does not name the thread"},
    {"shuffle from outside of the mask",
     [] {
       if (threadIdx.x % 32 < 16) __shfl_sync(0x0000ffffu, 1, 20);
     },
     "not in the mask"},
    {"trap", [] { __trap(); }, "__trap"},
    {"waiting for nobody",
     [] {
       if (threadIdx.x == 0)
         for (;;)
           __nanosleep(100);
     },
     "no thread of the block does"},
};

TEST_F(CudaEmuBlock, DivergenceIsAFault) {
  for (const std::uint64_t seed : seeds)
    for (const Divergence& divergence : divergences) {
      SCOPED_TRACE(divergence.name);
      set_seed(seed);
      EXPECT_EQ(launch(2, 64, divergence.body), cudaSuccess) << "it is the run that fails";
      EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
      EXPECT_NE(emu::last_fault().find(divergence.says), std::string::npos) << emu::last_fault();
      EXPECT_EQ(emu::last_fault().rfind("lambda, block (", 0), 0u) << emu::last_fault();
      // Everything afterwards fails too, until the device is reset.
      void* memory = nullptr;
      EXPECT_EQ(cudaMalloc(&memory, 16), cudaErrorLaunchFailure);
      EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
      EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
      EXPECT_EQ(cudaDeviceReset(), cudaSuccess);
      EXPECT_EQ(run(1, 64, [] { __syncthreads(); }), cudaSuccess) << emu::last_fault();
    }
}

TEST_F(CudaEmuBlock, AFaultNamesThePlaces) {
  EXPECT_EQ(run(1, 64,
                [] {
                  if (threadIdx.x == 9) return;
                  __syncthreads();
                }),
            cudaErrorLaunchFailure);
  EXPECT_NE(emu::last_fault().find("block_test.cpp:"), std::string::npos) << emu::last_fault();
  EXPECT_NE(emu::last_fault().find("(9,0,0)"), std::string::npos) << emu::last_fault();
}

TEST_F(CudaEmuBlock, SleepersLetOthersRun) {
  const DeviceArray<int> flag(std::vector<int>(1, 0));
  ASSERT_EQ(run(1, 64,
                [flag = flag.data()] {
                  if (threadIdx.x == 63) atomicExch(flag, 1);
                  while (atomicAdd(flag, 0) == 0)
                    __nanosleep(10);
                }),
            cudaSuccess)
      << emu::last_fault();
}

}  // namespace
}  // namespace switchback::test
