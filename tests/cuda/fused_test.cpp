// SPDX-License-Identifier: Apache-2.0
// What the engine `fused` queues on the device apart from its kernel.
#include <cuda_runtime.h>

#include "cuda/cuda_support.hpp"
#include "support/device_memory.hpp"

namespace switchback::test {
namespace {

class CudaFused : public Cuda {
 protected:
  void SetUp() override {
    Cuda::SetUp();
    show_fused_products(true);
    context_.emplace(emulated());
    a_.emplace(*context_, codes(m));
    b_.emplace(*context_, codes(n));
    absmax_.emplace(*context_, normal_matrix<float>(1, m, 3));
    bias_.emplace(*context_, 1, n);
    d_.emplace(*context_, m, n);
  }
  void TearDown() override {
    d_.reset();
    bias_.reset();
    absmax_.reset();
    b_.reset();
    a_.reset();
    context_.reset();
    show_fused_products(false);
    Cuda::TearDown();
  }
  void run(bool with_bias) {
    GemmArgs args;
    args.a = a_->view();
    args.b = b_->view();
    args.d = d_->view();
    args.absmax_a = absmax_->span();
    args.absmax_b = absmax_->span().first(1);
    if (with_bias) args.bias = bias_->view();
    args.engine = "fused";
    gemm(*context_, args);
    context_->synchronize();
  }

 private:
  static constexpr std::int64_t m = 33, n = 48, k = 64;
  static Matrix<std::int8_t> codes(std::int64_t rows) {
    Matrix<std::int8_t> q(rows, k);
    Random random(7);
    fill_codes(q, random);
    return q;
  }

  std::optional<Context> context_;
  std::optional<DeviceMatrix<std::int8_t>> a_, b_;
  std::optional<DeviceMatrix<float>> absmax_;
  std::optional<DeviceMatrix<bfloat16>> bias_, d_;
};

TEST_F(CudaFused, ABiasOfTheOutputsTypeTakesNoKernelOfItsOwn) {
  const auto launches_of = [&](bool with_bias) {
    const std::size_t before = switchback_cuda_emu::launches().size();
    run(with_bias);
    return switchback_cuda_emu::launches().size() - before;
  };
  const std::size_t without = launches_of(false);
  EXPECT_EQ(launches_of(true), without);
}

TEST_F(CudaFused, AnErrorThatSomebodyLeftIsNotItsOwn) {
  ASSERT_EQ(cudaStreamSynchronize(reinterpret_cast<cudaStream_t>(this)),
            cudaErrorInvalidResourceHandle);
  EXPECT_NO_THROW(run(false));
}

}  // namespace
}  // namespace switchback::test
