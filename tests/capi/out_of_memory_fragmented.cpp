// SPDX-License-Identifier: Apache-2.0
// Test cases of failing allocations for out_of_memory_functions_test.cpp: the fragmented layer.
#include "capi/out_of_memory_world.hpp"

namespace switchback::test {
namespace {

constexpr std::int64_t B = 9, K = 132, N = 70, F = 3, R = 5;

switchback_fragmented_linear_options options_of(std::int32_t mode) {
  switchback_fragmented_linear_options options = {};
  options.struct_size = sizeof(options);
  options.in_features = K;
  options.out_features = N;
  options.fragments = F;
  options.rank = R;
  options.mode = mode;
  // Mode standard must not run other libraries, which allocate in their own ways.
  if (mode == SWITCHBACK_STANDARD) options.engine = "reference";
  return options;
}

switchback_fragmented_weights weights_of(World& w, std::int32_t dtype) {
  switchback_fragmented_weights weights = {};
  weights.struct_size = sizeof(weights);
  weights.weight = w.input(dtype, N, K);
  weights.selector = w.input(dtype, F, K / F);
  weights.down = w.input(dtype, R, K);
  weights.up = w.input(dtype, N, R);
  return weights;
}

switchback_fragmented_weights make_layer(World& w, std::int32_t mode) {
  const auto options = options_of(mode);
  expect_ok(switchback_fragmented_linear_create(w.context, &options, &w.fragmented_layer));
  const auto weights = weights_of(w, SWITCHBACK_F32);
  expect_ok(switchback_fragmented_linear_set_weights(w.fragmented_layer, &weights));
  return weights;
}

// In the int8 modes the gradients of weights are floating point products, which other libraries
// compute; `of_weights` asks for them.
switchback_fragmented_linear_grads gradients(World& w, bool of_weights) {
  switchback_fragmented_linear_grads grads = {};
  grads.struct_size = sizeof(grads);
  grads.g = w.input(SWITCHBACK_F32, B, N);
  grads.dx = w.output(SWITCHBACK_F32, B, K);
  grads.dselector = w.output(SWITCHBACK_F32, F, K / F);
  if (!of_weights) return grads;
  grads.dweight = w.output(SWITCHBACK_F32, N, K);
  grads.ddown = w.output(SWITCHBACK_F32, R, K);
  grads.dup = w.output(SWITCHBACK_F32, N, R);
  return grads;
}

void layer_cases(std::vector<Case>& cases, std::int32_t mode) {
  const std::string in_mode = "in mode " + std::to_string(mode);
  cases.push_back({"switchback_fragmented_linear_create", in_mode, [=](World& w) {
                     w.makes_addresses = true;
                     auto** const out = w.result<switchback_fragmented_linear*>();
                     w.call = [=, &w] {
                       const auto options = options_of(mode);
                       const switchback_status status =
                           switchback_fragmented_linear_create(w.context, &options, out);
                       w.fragmented_layer = *out;
                       return status;
                     };
                   }});
  const auto on_layer = [&](std::string name, auto call) {
    cases.push_back({name, in_mode, [=](World& w) {
                       const auto weights = make_layer(w, mode);
                       const auto x = w.input(SWITCHBACK_F32, B, K);
                       const auto y = w.output(SWITCHBACK_F32, B, N);
                       w.call = [=, &w] { return call(w, weights, x, y); };
                       w.look = [=, &w] {
                         expect_ok(
                             switchback_fragmented_linear_forward_hard(w.fragmented_layer, &x, &y));
                       };
                     }});
  };
  using Matrix = const switchback_matrix&;
  using Weights = const switchback_fragmented_weights&;
  on_layer("switchback_fragmented_linear_set_weights",
           [](World& w, Weights weights, Matrix, Matrix) {
             return switchback_fragmented_linear_set_weights(w.fragmented_layer, &weights);
           });
  on_layer("switchback_fragmented_linear_weights_updated", [](World& w, Weights, Matrix, Matrix) {
    return switchback_fragmented_linear_weights_updated(w.fragmented_layer);
  });
  on_layer("switchback_fragmented_linear_prepare_for_eval", [](World& w, Weights, Matrix, Matrix) {
    return switchback_fragmented_linear_prepare_for_eval(w.fragmented_layer);
  });
  on_layer("switchback_fragmented_linear_forward_hard", [](World& w, Weights, Matrix x, Matrix y) {
    return switchback_fragmented_linear_forward_hard(w.fragmented_layer, &x, &y);
  });
  cases.push_back({"switchback_fragmented_linear_get_info", in_mode, [=](World& w) {
                     make_layer(w, mode);
                     switchback_layer_info info = {};
                     info.struct_size = sizeof(info);
                     auto* const out = w.result(info);
                     w.call = [=, &w] {
                       return switchback_fragmented_linear_get_info(w.fragmented_layer, out);
                     };
                   }});
  const bool of_weights = mode == SWITCHBACK_STANDARD;
  cases.push_back(
      {"switchback_fragmented_linear_forward", in_mode, [=](World& w) {
         make_layer(w, mode);
         const auto x = w.input(SWITCHBACK_F32, B, K);
         const auto y = w.output(SWITCHBACK_F32, B, N);
         const auto grads = gradients(w, of_weights);
         w.call = [=, &w] {
           return switchback_fragmented_linear_forward(w.fragmented_layer, &x, &y,
                                                       SWITCHBACK_SAVE_COPY);
         };
         w.look = [=, &w] {
           expect_ok(switchback_fragmented_linear_backward(w.fragmented_layer, &grads, nullptr));
         };
       }});
  for (const bool from : {false, true})
    cases.push_back({"switchback_fragmented_linear_backward", in_mode + (from ? ", kept x" : ""),
                     [=](World& w) {
                       make_layer(w, mode);
                       const auto x = w.input(SWITCHBACK_F32, B, K);
                       const auto y = w.input(SWITCHBACK_F32, B, N);
                       const auto grads = gradients(w, of_weights);
                       if (!from)
                         expect_ok(switchback_fragmented_linear_forward(w.fragmented_layer, &x, &y,
                                                                        SWITCHBACK_SAVE_COPY));
                       w.call = [=, &w] {
                         return switchback_fragmented_linear_backward(w.fragmented_layer, &grads,
                                                                      from ? &x : nullptr);
                       };
                     }});
}

}  // namespace

void fragmented_cases(std::vector<Case>& cases) {
  for (const std::int32_t mode : {SWITCHBACK_STANDARD, SWITCHBACK_ROWWISE, SWITCHBACK_GLOBAL})
    layer_cases(cases, mode);
}

}  // namespace switchback::test
