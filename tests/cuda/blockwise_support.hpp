// SPDX-License-Identifier: Apache-2.0
// Test support: blockwise products (int8 dW) of zeros on the emulated device, and what they launch.
#pragma once

#include <string>
#include <vector>

#include "cuda/cuda_support.hpp"
#include "gemm/blockwise/problem.hpp"

namespace switchback::test {

/// A problem whose operands are dense and aligned.
inline blockwise::BlockwiseProblem blockwise_problem(std::int64_t m, std::int64_t n, std::int64_t k,
                                                     std::int64_t block_rows) {
  blockwise::BlockwiseProblem p;
  p.m = m;
  p.n = n;
  p.k = p.stride_d = k;
  p.block_rows = block_rows;
  p.padded_m = p.stride_a = p.stride_b = whole_block_rows(m, block_rows);
  p.alignment = 16;
  return p;
}

/// Runs a product of zeros, and returns its launches. Its operand a begins `offset` bytes after a
/// multiple of 256.
inline std::vector<switchback_cuda_emu::LaunchRecord> blockwise_launches(
    Context& context, const blockwise::BlockwiseProblem& p, std::int64_t offset = 0,
    std::string_view engine = {}) {
  const std::int64_t blocks = p.padded_m / p.block_rows;
  const DeviceMatrix<std::int8_t> a(context, Matrix<std::int8_t>(p.n + 1, p.padded_m));
  const DeviceMatrix<std::int8_t> b(context, Matrix<std::int8_t>(p.k, p.padded_m));
  const DeviceMatrix<float> of_a(context, Matrix<float>(blocks, p.n));
  const DeviceMatrix<float> of_b(context, Matrix<float>(blocks, p.k));
  const DeviceMatrix<float> d(context, Matrix<float>(p.n, p.k));
  BlockwiseGemmArgs args;
  args.a = {a.data() + offset, p.n, p.padded_m, p.padded_m};
  args.b = b.view();
  args.d = d.view();
  args.absmax_a = of_a.span();
  args.absmax_b = of_b.span();
  args.block_rows = p.block_rows;
  args.m = p.m;
  args.engine = engine;
  const auto launches = launches_of([&] { gemm_blockwise(context, args); });
  context.synchronize();
  return launches;
}

/// The kernels of such a product.
inline std::vector<std::string> blockwise_kernels(Context& context,
                                                  const blockwise::BlockwiseProblem& p,
                                                  std::int64_t offset = 0,
                                                  std::string_view engine = {}) {
  return names_of(blockwise_launches(context, p, offset, engine));
}

}  // namespace switchback::test
