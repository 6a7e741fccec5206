// SPDX-License-Identifier: Apache-2.0
// How much scratch memory of the device the library's products allocate.
#include <algorithm>

#include "cuda/cuda_support.hpp"
#include "switchback/activation.hpp"

namespace switchback::test {
namespace {

// The int32 sums of the whole product, M x N, are more than twice the limit. Panels of rows,
// computed one after another, must give the bits of the whole product. The last panel may be moved
// up to overlap the previous one.
TEST_F(Cuda, TheSumsOfALargeProductHaveALimit) {
  constexpr std::int64_t cols = 256, inner = 20;
  constexpr std::size_t limit = std::size_t{1} << 20;
  struct Case {
    std::int64_t rows;
    const char* engine;
  };
  for (const Case& c : {Case{2048 + 300, "cublaslt"}, {2048 + 5, "cublaslt"}, {2048 + 5, "dp4a"}}) {
    const std::int64_t rows = c.rows;
    SCOPED_TRACE(::testing::Message() << c.engine << ", M " << rows);
    const auto run = [&](std::size_t memory_bytes, std::size_t& workspace_bytes) {
      switchback_cuda_emu::reset({.total_memory_bytes = memory_bytes});
      Context context(emulated());
      ProductOnDevice product(context, rows, cols, inner);
      Matrix<float> d = product.scaled(c.engine);
      workspace_bytes = context.workspace_bytes();
      return d;
    };
    const auto passes = [] {
      const auto all = switchback_cuda_emu::launches();
      return std::count_if(all.begin(), all.end(),
                           [](const auto& launch) { return launch.name == "epilogue"; });
    };
    std::size_t whole = 0;
    const Matrix<float> want = run(std::size_t{1} << 30, whole);
    EXPECT_EQ(passes(), 1);
    std::size_t limited = 0;
    EXPECT_TRUE(run(64 * limit, limited) == want);
    EXPECT_EQ(passes(), 3);
    // Apart from the sums, both runs need the same memory: padded codes, and cuBLASLt's workspace.
    EXPECT_LE(limited + static_cast<std::size_t>(rows * cols) * 4 - limit, whole + 4096);
  }
}

// For large f16 matrices, activations are read from a table of all f16 values. Its scratch memory
// does not grow with further calls.
TEST_F(Cuda, LargeMatricesOfF16HaveTheirActivationsListed) {
  // 131,072 elements for each of the four multiprocessors.
  constexpr std::int64_t rows = 1024, cols = 512;
  const auto lists = [](auto element, std::int64_t from_rows) {
    using T = decltype(element);
    switchback_cuda_emu::reset();
    Context context(emulated());
    const DeviceMatrix<T> x(context, normal_matrix<T>(from_rows, cols, 3));
    const DeviceMatrix<T> y(context, from_rows, cols);
    const DeviceMatrix<T> dx(context, from_rows, cols);
    const DeviceMatrix<std::int8_t> q(context, from_rows, cols);
    const DeviceMatrix<float> absmax(context, 1, from_rows);
    std::size_t settled = 0;
    for (int turn = 0; turn < 2; ++turn) {
      activation_forward(context, x.view(), Activation::gelu_erf, y.view());
      activation_backward(context, y.view(), x.view(), Activation::gelu_erf, dx.view());
      activation_forward_quantize(context, x.view(), Activation::gelu_erf, q.view(), absmax.span());
      activation_backward_quantize(context, y.view(), x.view(), Activation::gelu_erf, dx.view(),
                                   q.view(), absmax.span());
      if (turn == 0)
        settled = context.workspace_bytes();
      else
        EXPECT_EQ(context.workspace_bytes(), settled);
    }
    const auto all = switchback_cuda_emu::launches();
    return std::count_if(all.begin(), all.end(),
                         [](const auto& launch) { return launch.name == "activation_list"; });
  };
  EXPECT_EQ(lists(half{}, rows), 2 * 4);
  EXPECT_EQ(lists(half{}, rows - 1), 0);
  EXPECT_EQ(lists(bfloat16{}, rows), 0);
}

}  // namespace
}  // namespace switchback::test
