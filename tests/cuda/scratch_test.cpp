// SPDX-License-Identifier: Apache-2.0
// How much of the device's memory products take for themselves.
#include <algorithm>

#include "cuda/cuda_support.hpp"

namespace switchback::test {
namespace {

struct Codes {
  Codes(std::int64_t rows, std::int64_t cols, std::int64_t inner)
      : a(rows, inner), b(cols, inner), absmax_a(1, rows), absmax_b(1, cols) {
    Random random(11);
    fill_codes(a, random);
    fill_codes(b, random);
    for (Matrix<float>* scales : {&absmax_a, &absmax_b})
      for (std::int64_t i = 0; i < scales->cols(); ++i)
        scales->set(0, i, static_cast<float>(random.uniform()));
  }
  Matrix<std::int8_t> a, b;
  Matrix<float> absmax_a, absmax_b;
};

// M x N sums would be more than twice what there may be at a time. One panel after another has the
// bits of all at once, also where the last one is moved up.
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
    const Codes codes(rows, cols, inner);
    const auto run = [&](std::size_t memory_bytes, std::size_t& workspace_bytes) {
      switchback_cuda_emu::Options machine;
      machine.total_memory_bytes = memory_bytes;
      switchback_cuda_emu::reset(machine);
      Context context(emulated());
      const DeviceMatrix<std::int8_t> a(context, codes.a);
      const DeviceMatrix<std::int8_t> b(context, codes.b);
      const DeviceMatrix<float> absmax_a(context, codes.absmax_a);
      const DeviceMatrix<float> absmax_b(context, codes.absmax_b);
      const DeviceMatrix<float> d(context, rows, cols);
      GemmArgs args;
      args.a = a.view();
      args.b = b.view();
      args.d = d.view();
      args.absmax_a = absmax_a.span();
      args.absmax_b = absmax_b.span();
      args.engine = c.engine;
      gemm(context, args);
      workspace_bytes = context.workspace_bytes();
      return d.download();
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
    // The rest is the same for both: codes with padding, and what the library wants.
    EXPECT_LE(limited + static_cast<std::size_t>(rows * cols) * 4 - limit, whole + 4096);
  }
}

}  // namespace
}  // namespace switchback::test
