// SPDX-License-Identifier: Apache-2.0
// Arguments that are possible in C but not with the C++ types: null pointers, and numbers that no
// enum or flag has. Each is refused with its name, and nothing is written. And arguments of one
// type that a mistake could swap.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "capi/good_arguments.hpp"
#include "support/device.hpp"
#include "switchback/rounding.hpp"

namespace switchback::test {
namespace {

TEST_F(Arguments, NullPointersOfContextsAndOperationsAreNamed) {
  const char* text = nullptr;
  std::size_t bytes = 7;
  std::uint64_t fingerprint[2] = {7, 7};
  auto info = sized<switchback_context_info>();
  switchback_context* none = nullptr;
  switchback_packed_weight* no_pack = nullptr;
  const switchback_engine_info* infos = nullptr;
  refuses_null("- out", switchback_context_create, nullptr, &none);
  refuses_null("context out", switchback_context_get_info, context, &info);
  refuses_null("context out", switchback_context_tune_warnings, context, &text);
  refuses_null("context", switchback_context_synchronize, context);
  refuses_null("context -", switchback_context_set_stream, context, nullptr);
  refuses_null("context - out count", switchback_engines, context, 0, &infos, &bytes);

  auto quantize = switchback_quantize_args_of(&x);
  const auto args = gemm_arguments(w, 0, false);
  const auto standard = standard_arguments(w, SWITCHBACK_F32, M, N, K);
  const auto blockwise = blockwise_arguments(w, SWITCHBACK_F32);
  const auto slots = w.input(SWITCHBACK_S32, M, 2), s32 = w.output(SWITCHBACK_S32, M, N);
  const Bytes before = written();
  refuses_null("context args", switchback_quantize, context, &quantize);
  refuses_null("context q absmax x", switchback_dequantize_rowwise, context, &weight_codes, scales,
               &x);
  // These inline functions of the header call a function that takes a struct: their null pointers
  // arrive in the struct.
  expect_refused(switchback_quantize_rowwise(nullptr, &x, &q, absmax), "context is a null", "");
  expect_refused(switchback_quantize_rowwise(context, nullptr, &q, absmax), "x has dtype -1", "");
  for (const auto function : {switchback_quantize_rowwise, switchback_quantize_global}) {
    expect_refused(function(context, &x, nullptr, absmax), "q is a null pointer", "");
    expect_refused(function(context, &x, &q, nullptr), "absmax is a null pointer", "");
  }
  for (const auto function :
       {switchback_quantize_columnwise_transpose, switchback_quantize_global_transpose}) {
    expect_refused(function(context, &x, nullptr, absmax), "q_t is a null pointer", "");
    expect_refused(function(context, &x, &q_t, nullptr), "absmax_t is a null pointer", "");
  }
  refuses_null("context x out", switchback_fingerprint, context, &x, fingerprint);

  refuses_null("out", switchback_packed_weight_create, &no_pack);
  refuses_null("packed out", switchback_packed_weight_bytes, w.packed, &bytes);
  refuses_null("context b - packed -", switchback_pack_weight, context, &args.b, 1, w.packed,
               nullptr);
  refuses_null("context args", switchback_gemm, context, &args);
  refuses_null("context args", switchback_gemm_standard, context, &standard);
  refuses_null("context args", switchback_gemm_blockwise, context, &blockwise);
  expect_refused(switchback_gemm_s8s8s32(nullptr, &args.a, &args.b, &s32), "context is a null", "");
  expect_refused(switchback_gemm_s8s8s32(context, nullptr, &args.b, &s32), "a has dtype -1", "");
  expect_refused(switchback_gemm_s8s8s32(context, &args.a, nullptr, &s32), "b has dtype -1", "");
  expect_refused(switchback_gemm_s8s8s32(context, &args.a, &args.b, nullptr), "d has dtype -1", "");
  refuses_null("context x groups q absmax", switchback_grouped_quantize_rowwise, context, &x,
               grouped.groups, &q, absmax);
  refuses_null("context y slots - out", switchback_combine, context, &y, &slots, nullptr, &y);

  EXPECT_TRUE(bytes == 7 && fingerprint[0] == 7 && fingerprint[1] == 7 && info.threads == 0);
  EXPECT_TRUE(none == nullptr && no_pack == nullptr && infos == nullptr && text == nullptr);
  EXPECT_TRUE(written() == before);
}

TEST_F(Arguments, NullPointersOfLayersAreNamed) {
  auto info = sized<switchback_layer_info>();
  std::int32_t forward_mode = 7, dx_mode = 7;
  const auto options = LayerCalls::options({}, false);
  const Bytes before = written();
  switchback_linear* none = nullptr;
  refuses_null("context options out", switchback_linear_create, context, &options, &none);
  refuses_null("linear context out", switchback_linear_share, w.layer, context, &none);
  refuses_null("linear weight -", switchback_linear_set_weight, w.layer, &layer.weight, nullptr);
  refuses_null("linear codes absmax - -", switchback_linear_set_quantized_weight, w.layer,
               &weight_codes, scales, N, nullptr);
  refuses_null("linear", switchback_linear_weight_updated, w.layer);
  refuses_null("linear", switchback_linear_weight_may_have_changed, w.layer);
  refuses_null("linear - - forward dx", switchback_linear_pass_modes, w.layer, M, 0, &forward_mode,
               &dx_mode);
  refuses_null("linear x y - -", switchback_linear_forward, w.layer, &x, &y, 0, nullptr);
  refuses_null("linear grads -", switchback_linear_backward, w.layer, &grads, nullptr);
  for (const bool in_blocks : {false, true}) {
    const LayerCalls& of = in_blocks ? blocks : layer;
    auto without_x = in_blocks ? kept_blocks : kept_codes, without_absmax = without_x;
    without_x.x.data = nullptr;
    without_absmax.absmax = nullptr;
    const auto forward = [&](const switchback_kept_input& kept) {
      return switchback_linear_forward(of.world->layer, &of.x, &of.y, SWITCHBACK_SAVE_CALLER,
                                       &kept);
    };
    const auto backward = [&](const switchback_kept_input& kept) {
      return switchback_linear_backward(of.world->layer, in_blocks ? &block_grads : &grads, &kept);
    };
    expect_refused(forward(without_x), "kept.x", "forward");
    expect_refused(forward(without_absmax), "absmax is a null pointer", "forward");
    expect_refused(backward(without_x), "kept.x", "backward");
    expect_refused(backward(without_absmax), "absmax", "backward");
  }
  refuses_null("linear out", switchback_linear_get_info, w.layer, &info);
  refuses_null("linear", switchback_linear_prepare_for_eval, w.layer);
  expect_ok(switchback_linear_prepare_for_eval(w.layer));
  refuses_null("linear codes absmax -", switchback_linear_quantized_weight, w.layer, &weight_codes,
               absmax, N);
  refuses_null("linear groups x y -", switchback_linear_forward_groups, w_groups.layer,
               grouped.groups, &grouped.x, &grouped.y, 0);
  refuses_null("linear grads groups -", switchback_linear_backward_groups, w_groups.layer,
               &grouped_grads, grouped.groups, &grouped.x);

  const auto of_fragments = FragmentedCalls::options(SWITCHBACK_ROWWISE);
  switchback_fragmented_linear* no_fragments = nullptr;
  refuses_null("context options out", switchback_fragmented_linear_create, context, &of_fragments,
               &no_fragments);
  refuses_null("linear weights", switchback_fragmented_linear_set_weights, w.fragmented_layer,
               &fragmented.weights);
  refuses_null("linear", switchback_fragmented_linear_weights_updated, w.fragmented_layer);
  refuses_null("linear", switchback_fragmented_linear_prepare_for_eval, w.fragmented_layer);
  refuses_null("linear x y -", switchback_fragmented_linear_forward, w.fragmented_layer,
               &fragmented.x, &fragmented.y, 0);
  refuses_null("linear x y", switchback_fragmented_linear_forward_hard, w.fragmented_layer,
               &fragmented.x, &fragmented.y);
  refuses_null("linear grads -", switchback_fragmented_linear_backward, w.fragmented_layer,
               &fragmented_grads, &fragmented.x);
  refuses_null("linear out", switchback_fragmented_linear_get_info, w.fragmented_layer, &info);

  EXPECT_TRUE(none == nullptr && no_fragments == nullptr);
  EXPECT_TRUE(info.cached_weight_bytes == 0 && forward_mode == 7 && dx_mode == 7);
  EXPECT_TRUE(written() == before);
  // The functions that destroy an object accept a null pointer.
  switchback_context_destroy(nullptr);
  switchback_packed_weight_destroy(nullptr);
  switchback_linear_destroy(nullptr);
  switchback_fragmented_linear_destroy(nullptr);
}

TEST_F(Arguments, NumbersOutsideOfStructsAreNamed) {
  const switchback_engine_info* infos = nullptr;
  std::size_t count = 77;
  std::int32_t mode = 7;
  auto unknown = x, unknown_bias = layer.bias;
  unknown.dtype = unknown_bias.dtype = 9;
  const auto args = gemm_arguments(w, 0, false);
  const switchback_matrix &b = args.b, &d = args.d;
  switchback_linear* const linear = w.layer;
  const Bytes before = written();
  const std::pair<const char*, std::function<switchback_status()>> calls[] = {
      {"operation = 4", [&] { return switchback_engines(context, 4, &infos, &count); }},
      {"operation = -1", [&] { return switchback_engines(context, -1, &infos, &count); }},
      {"no stream", [&] { return switchback_context_set_stream(context, &count); }},
      {"x has dtype 9", [&] { return switchback_quantize_rowwise(context, &unknown, &q, absmax); }},
      {"q has dtype f32; it must be s8",
       [&] { return switchback_quantize_rowwise(context, &x, &x, absmax); }},
      {"q has dtype f32; it must be s8",
       [&] { return switchback_dequantize_rowwise(context, &x, scales, &y); }},
      {"d has dtype bf16; without scales it must be s32",
       [&] { return switchback_gemm_s8s8s32(context, &args.a, &b, &d); }},
      {"no_such", [&] { return switchback_pack_weight(context, &b, 1, w.packed, "no_such"); }},
      {"no_such", [&] { return switchback_pack_weight(context, &b, 2, w.packed, "no_such"); }},
      {"groups = 0", [&] { return switchback_pack_weight(context, &b, 0, w.packed, nullptr); }},
      {"slots has dtype f32", [&] { return switchback_combine(context, &y, &x, nullptr, &y); }},
      {"save_for_backward = 4",
       [&] { return switchback_linear_forward(linear, &x, &y, 4, nullptr); }},
      {"save_for_backward = -1",
       [&] { return switchback_linear_forward(linear, &x, &y, -1, nullptr); }},
      {"save_for_backward = 4",
       [&] {
         return switchback_linear_forward_groups(w_groups.layer, grouped.groups, &grouped.x,
                                                 &grouped.y, 4);
       }},
      {"save_for_backward = 4",
       [&] {
         return switchback_fragmented_linear_forward(w.fragmented_layer, &fragmented.x,
                                                     &fragmented.y, 4);
       }},
      {"rows = -1", [&] { return switchback_linear_pass_modes(linear, -1, 1, &mode, &mode); }},
      {"save_for_backward = 7",
       [&] { return switchback_linear_pass_modes(linear, 2, 7, &mode, &mode); }},
      {"bias has dtype 9",
       [&] { return switchback_linear_set_weight(linear, &layer.weight, &unknown_bias); }},
      {"absmax_count = -1",
       [&] {
         return switchback_linear_set_quantized_weight(linear, &weight_codes, scales, -1, nullptr);
       }},
      {"codes has dtype f32",
       [&] {
         return switchback_linear_set_quantized_weight(linear, &layer.weight, scales, N, nullptr);
       }},
      {"absmax_count = -1",
       [&] { return switchback_linear_quantized_weight(linear, &weight_codes, absmax, -1); }},
      {"codes has dtype f32",
       [&] { return switchback_linear_quantized_weight(linear, &layer.weight, absmax, N); }}};
  for (const auto& [text, call] : calls)
    expect_refused(call(), text, text);
  EXPECT_TRUE(infos == nullptr && count == 77 && mode == 7);
  EXPECT_TRUE(written() == before);
}

// The codes have the bits of the C++ interface, so the four numbers of the rounding are not
// swapped.
TEST_F(Arguments, StochasticRoundingTakesItsSeedStreamStepAndRow) {
  constexpr std::int64_t cols = 256;
  const switchback_matrix values = w.input(SWITCHBACK_F32, 1, cols);
  std::vector<std::int8_t> codes(cols), want(cols);
  float scale = 0, want_scale = 0;
  switchback_quantize_args args = switchback_quantize_args_of(&values);
  args.q = {codes.data(), SWITCHBACK_S8, 1, cols, cols};
  args.absmax = &scale;
  args.stochastic = 1;
  args.rounding_seed = 2, args.rounding_stream = 3, args.rounding_step = 5, args.rounding_row0 = 7;
  expect_ok(switchback_quantize(context, &args));
  Context cpp(cpu_options());
  quantize_rowwise_stochastic(cpp, {values.data, DType::f32, 1, cols, cols},
                              {.seed = 2, .stream = 3, .step = 5, .row0 = 7},
                              {want.data(), 1, cols, cols}, {&want_scale, 1});
  EXPECT_EQ(codes, want);
  EXPECT_EQ(scale, want_scale);
}

}  // namespace
}  // namespace switchback::test
