// SPDX-License-Identifier: Apache-2.0
// Asynchronous barriers, copies of boxes that they count, and barriers with numbers.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cuda_emu/harness.hpp"

namespace switchback::test {
namespace {

class CudaEmuAsync : public CudaEmu {
 protected:
  static void set_seed(std::uint64_t seed) {
    emu::Options options;
    options.schedule_seed = seed;
    emu::reset(options);
  }
  static constexpr std::uint64_t seeds[] = {0, 1, 2, 3, 77};
};

using Bytes = std::vector<unsigned char>;

// Shared memory: codes of a box, then a barrier.
struct Stage {
  unsigned char* codes;
  std::uint64_t* filled;
  explicit Stage(int rows) {
    codes = static_cast<unsigned char*>(emu::dynamic_shared());
    filled = reinterpret_cast<std::uint64_t*>(codes + 128 * rows);
  }
  static std::size_t bytes(int rows) { return static_cast<std::size_t>(128 * rows) + 8; }
};

// A box that is partly outside of its matrix, as the copy engine stores it: row r's piece p of 16
// bytes is in the place of piece p ^ (r % 8).
TEST_F(CudaEmuAsync, ABoxIsSwizzledAndZeroOutside) {
  constexpr int rows = 11;
  constexpr int columns = 150;
  constexpr int stride = 160;
  constexpr int box_rows = 16;
  Bytes in(rows * stride);
  for (std::size_t i = 0; i < in.size(); ++i)
    in[i] = static_cast<unsigned char>(1 + i % 251);
  for (const std::uint64_t seed : seeds) {
    set_seed(seed);
    const DeviceArray<unsigned char> matrix(in);
    const DeviceArray<unsigned char> out(128 * box_rows);
    ASSERT_EQ(run(
                  1, 64,
                  [matrix = matrix.data(), out = out.data()] {
                    const Stage stage(box_rows);
                    if (threadIdx.x == 0) emu::mbarrier_init(stage.filled, 1);
                    __syncthreads();
                    if (threadIdx.x == 0) {
                      emu::mbarrier_arrive(stage.filled, 128 * box_rows);
                      emu::copy_box(stage.codes, {matrix, rows, columns, stride, 3, 32, box_rows},
                                    stage.filled);
                    }
                    emu::mbarrier_wait(stage.filled, 0);
                    for (unsigned i = threadIdx.x; i < 128 * box_rows; i += 64)
                      out[i] = stage.codes[i];
                  },
                  Stage::bytes(box_rows)),
              cudaSuccess);
    const Bytes got = out.read();
    for (int r = 0; r < box_rows; ++r)
      for (int c = 0; c < 128; ++c) {
        const int place = r * 128 + (c / 16 ^ r % 8) * 16 + c % 16;
        const bool inside = 3 + r < rows && 32 + c < columns;
        const int want = inside ? in[static_cast<std::size_t>((3 + r) * stride + 32 + c)] : 0;
        ASSERT_EQ(got[static_cast<std::size_t>(place)], want) << r << "," << c;
      }
  }
}

// Who waits gets neither a phase too early nor the bytes of the next one.
TEST_F(CudaEmuAsync, PhasesFollowEachOther) {
  constexpr int rows = 8;
  constexpr int steps = 9;
  Bytes in(std::size_t{steps} * rows * 128);
  for (std::size_t i = 0; i < in.size(); ++i)
    in[i] = static_cast<unsigned char>(i / (rows * 128) + 1);
  for (const std::uint64_t seed : seeds) {
    set_seed(seed);
    const DeviceArray<unsigned char> matrix(in);
    const DeviceArray<int> out(std::vector<int>(steps, 0));
    ASSERT_EQ(run(
                  1, 33,
                  [matrix = matrix.data(), out = out.data()] {
                    const Stage stage(rows);
                    std::uint64_t* const freed = stage.filled + 1;
                    if (threadIdx.x == 32) {
                      emu::mbarrier_init(stage.filled, 1);
                      emu::mbarrier_init(freed, 32);
                    }
                    __syncthreads();
                    for (int s = 0; s < steps; ++s) {
                      const unsigned parity = static_cast<unsigned>(s) % 2;
                      if (threadIdx.x == 32) {
                        emu::mbarrier_wait(freed, parity ^ 1u);
                        emu::mbarrier_arrive(stage.filled, 128 * rows);
                        emu::copy_box(stage.codes,
                                      {matrix, steps * rows, 128, 128, s * rows, 0, rows},
                                      stage.filled);
                      } else {
                        emu::mbarrier_wait(stage.filled, parity);
                        if (threadIdx.x == 5) out[s] = stage.codes[100];
                        emu::mbarrier_arrive(freed, 0);
                      }
                    }
                  },
                  Stage::bytes(rows) + 8),
              cudaSuccess);
    for (int s = 0; s < steps; ++s)
      EXPECT_EQ(out.read()[static_cast<std::size_t>(s)], s + 1);
  }
}

// Two groups of a warp take turns at two barriers of both.
TEST_F(CudaEmuAsync, BarriersWithNumbersOrderTurns) {
  for (const std::uint64_t seed : seeds) {
    set_seed(seed);
    const DeviceArray<int> out(std::vector<int>(20, -1));
    ASSERT_EQ(run(1, 64,
                  [out = out.data()] {
                    __shared__ int next;
                    const int group = threadIdx.x < 32 ? 0 : 1;
                    if (threadIdx.x == 0) next = 0;
                    __syncthreads();
                    if (group == 1) emu::named_barrier(1, 64, false);
                    for (int turn = 0; turn < 10; ++turn) {
                      emu::named_barrier(1 + group, 64, true);
                      if (threadIdx.x % 32 == 0) out[next++] = group;
                      __syncwarp();
                      emu::named_barrier(2 - group, 64, false);
                    }
                  }),
              cudaSuccess);
    const std::vector<int> order = out.read();
    for (std::size_t i = 0; i < order.size(); ++i)
      EXPECT_EQ(order[i], static_cast<int>(i % 2));
  }
}

TEST_F(CudaEmuAsync, FaultsAreNamed) {
  const auto expect_fault = [](const char* what, auto kernel) {
    emu::reset();
    EXPECT_EQ(run(1, 32, kernel, Stage::bytes(8)), cudaErrorLaunchFailure);
    EXPECT_NE(emu::last_fault().find(what), std::string::npos) << emu::last_fault();
  };
  expect_fault("not initialised", [] { emu::mbarrier_wait(Stage(8).filled, 0); });
  expect_fault("more arrivals", [] {
    if (threadIdx.x != 0) return;
    emu::mbarrier_init(Stage(8).filled, 2);
    emu::mbarrier_arrive(Stage(8).filled, 16);
    emu::mbarrier_arrive(Stage(8).filled, 0);
    emu::mbarrier_arrive(Stage(8).filled, 0);
  });
  expect_fault("mbarrier_wait", [] {  // bytes that never come
    if (threadIdx.x == 0) {
      emu::mbarrier_init(Stage(8).filled, 1);
      emu::mbarrier_arrive(Stage(8).filled, 16);
      emu::mbarrier_wait(Stage(8).filled, 0);
    }
  });
  expect_fault("different numbers of threads",
               [] { emu::named_barrier(3, threadIdx.x == 0 ? 16 : 32, true); });
}

}  // namespace
}  // namespace switchback::test
