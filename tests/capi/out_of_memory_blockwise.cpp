// SPDX-License-Identifier: Apache-2.0
// Test cases of failing allocations for out_of_memory_functions_test.cpp: codes of row blocks, and
// dW in int8.
#include "capi/out_of_memory_world.hpp"

namespace switchback::test {
namespace {

constexpr std::int64_t M = 150, N = 40, K = 70;
constexpr std::int64_t block_rows = 128, padded = 256, blocks = 2;

void operation_cases(std::vector<Case>& cases, std::int32_t threads) {
  cases.push_back({"switchback_quantize", "of blocks",
                   [](World& w) {
                     const auto x = w.input(SWITCHBACK_BF16, M, K);
                     auto args = switchback_quantize_args_of(&x);
                     args.q_t = w.output(SWITCHBACK_S8, K, padded);
                     args.absmax_t = w.floats(blocks * K);
                     args.block_rows = block_rows;
                     w.call = [=, &w] { return switchback_quantize(w.context, &args); };
                   },
                   threads});
  cases.push_back({"switchback_quantize", "of rows and blocks",
                   [](World& w) {
                     const auto x = w.input(SWITCHBACK_F32, M, K);
                     auto args = switchback_quantize_args_of(&x);
                     args.q = w.output(SWITCHBACK_S8, M, K);
                     args.q_t = w.output(SWITCHBACK_S8, K, padded);
                     args.absmax = w.floats(M);
                     args.absmax_t = w.floats(blocks * K);
                     args.block_rows = block_rows;
                     args.column_sums = w.floats(K);
                     args.accumulate = 1;
                     w.call = [=, &w] { return switchback_quantize(w.context, &args); };
                   },
                   threads});
  for (const std::int32_t dtype : {SWITCHBACK_F32, SWITCHBACK_BF16})
    cases.push_back({"switchback_gemm_blockwise", std::to_string(dtype),
                     [=](World& w) {
                       switchback_gemm_blockwise_args args = {};
                       args.struct_size = sizeof(args);
                       args.a = w.input(SWITCHBACK_S8, N, padded);
                       args.b = w.input(SWITCHBACK_S8, K, padded);
                       args.d = w.output(dtype, N, K);
                       args.absmax_a = w.scales(blocks * N);
                       args.absmax_b = w.scales(blocks * K);
                       args.block_rows = block_rows;
                       args.accumulate = 1;
                       args.m = M;
                       w.call = [=, &w] { return switchback_gemm_blockwise(w.context, &args); };
                     },
                     threads});
}

switchback_linear_grads gradients(World& w) {
  switchback_linear_grads grads = {};
  grads.struct_size = sizeof(grads);
  grads.g = w.input(SWITCHBACK_F32, M, N);
  grads.dx = w.output(SWITCHBACK_F32, M, K);
  grads.dw = w.output(SWITCHBACK_F32, N, K);
  grads.db = w.output(SWITCHBACK_F32, 1, N);
  return grads;
}

void layer_cases(std::vector<Case>& cases, std::int32_t activation) {
  const auto make_layer = [activation](World& w) {
    w.make_layer(SWITCHBACK_ROWWISE, SWITCHBACK_F32, K, N, activation, SWITCHBACK_DW_INT8_BLOCK);
  };
  const std::string what = "dw in int8, activation " + std::to_string(activation);
  cases.push_back({"switchback_linear_forward", what + ", codes of blocks", [=](World& w) {
                     make_layer(w);
                     const auto x = w.input(SWITCHBACK_F32, M, K);
                     const auto y = w.output(SWITCHBACK_F32, M, N);
                     const auto codes = w.output(SWITCHBACK_S8, K, padded);
                     const auto kept = World::kept(codes, w.floats(blocks * K), 1);
                     w.call = [=, &w] {
                       return switchback_linear_forward(w.layer, &x, &y, SWITCHBACK_SAVE_CALLER,
                                                        &kept);
                     };
                   }});
  cases.push_back(
      {"switchback_linear_forward", what, [=](World& w) {
         make_layer(w);
         const auto x = w.input(SWITCHBACK_F32, M, K);
         const auto y = w.output(SWITCHBACK_F32, M, N);
         const auto grads = gradients(w);
         w.call = [=, &w] {
           return switchback_linear_forward(w.layer, &x, &y, SWITCHBACK_SAVE_COPY, nullptr);
         };
         w.look = [=, &w] { expect_ok(switchback_linear_backward(w.layer, &grads, nullptr)); };
       }});
  for (const bool warm : {false, true})
    cases.push_back(
        {"switchback_linear_backward", what + (warm ? " again" : ""), [=](World& w) {
           make_layer(w);
           const auto x = w.input(SWITCHBACK_F32, M, K);
           const auto y = w.input(SWITCHBACK_F32, M, N);
           const auto grads = gradients(w);
           expect_ok(switchback_linear_forward(w.layer, &x, &y, SWITCHBACK_SAVE_COPY, nullptr));
           if (warm) expect_ok(switchback_linear_backward(w.layer, &grads, nullptr));
           w.call = [=, &w] { return switchback_linear_backward(w.layer, &grads, nullptr); };
         }});
  cases.push_back({"switchback_linear_backward", what + ", kept codes", [=](World& w) {
                     make_layer(w);
                     auto grads = gradients(w);
                     grads.dx_of_activation = activation == SWITCHBACK_NO_ACTIVATION ? 0 : 1;
                     const auto codes = w.input(SWITCHBACK_S8, K, padded);
                     const auto kept = World::kept(codes, w.scales(blocks * K), 1);
                     w.call = [=, &w] {
                       return switchback_linear_backward(w.layer, &grads, &kept);
                     };
                   }});
  cases.push_back({"switchback_linear_backward", what + ", kept x", [=](World& w) {
                     make_layer(w);
                     const auto grads = gradients(w);
                     const auto kept = World::kept(w.input(SWITCHBACK_F32, M, K), nullptr);
                     w.call = [=, &w] {
                       return switchback_linear_backward(w.layer, &grads, &kept);
                     };
                   }});
}

}  // namespace

void blockwise_cases(std::vector<Case>& cases) {
  for (const std::int32_t threads : {1, 2})
    operation_cases(cases, threads);
  for (const std::int32_t activation : {SWITCHBACK_NO_ACTIVATION, SWITCHBACK_GELU_TANH})
    layer_cases(cases, activation);
}

}  // namespace switchback::test
