// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <vector>

#include "cuda_emu/kernels.hpp"

namespace switchback::test {
namespace {

namespace emu = switchback_cuda_emu;

TEST(CudaEmuBlock, Sum) {
  emu::reset();
  constexpr int blocks = 5;
  std::vector<float> in(256 * blocks);
  for (std::size_t i = 0; i < in.size(); ++i)
    in[i] = static_cast<float>(i % 17);
  float* device_in = nullptr;
  float* device_out = nullptr;
  ASSERT_EQ(cudaMalloc(&device_in, in.size() * 4), cudaSuccess);
  ASSERT_EQ(cudaMalloc(&device_out, blocks * 4), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(device_in, in.data(), in.size() * 4, cudaMemcpyHostToDevice), cudaSuccess);
  ASSERT_EQ(launch_sum(device_in, device_out, blocks, nullptr), cudaSuccess);
  std::vector<float> out(blocks);
  ASSERT_EQ(cudaMemcpy(out.data(), device_out, blocks * 4, cudaMemcpyDeviceToHost), cudaSuccess);
  for (int b = 0; b < blocks; ++b) {
    float expected = 0.0f;
    for (int i = 0; i < 256; ++i)
      expected += in[static_cast<std::size_t>(b * 256 + i)];
    EXPECT_EQ(out[static_cast<std::size_t>(b)], expected);
  }
  EXPECT_EQ(cudaFree(device_in), cudaSuccess);
  EXPECT_EQ(cudaFree(device_out), cudaSuccess);
}

}  // namespace
}  // namespace switchback::test
