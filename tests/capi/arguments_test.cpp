// SPDX-License-Identifier: Apache-2.0
// Arguments that are possible in C but not with the C++ types: null pointers, and numbers that no
// enum or flag has. Each is refused with its name, and nothing is written.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "capi/good_arguments.hpp"

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

  float* const s = absmax.floats();
  const auto quantize = quantize_args();
  refuses_null("context args", switchback_quantize, context, &quantize);
  refuses_null("context q absmax x", switchback_dequantize_rowwise, context, a, scales.floats(),
               dx);
  // These inline functions of the header call a function that takes a struct: their null pointers
  // arrive in the struct.
  expect_refused(switchback_quantize_rowwise(nullptr, x, q, s), "context is a null pointer", "");
  expect_refused(switchback_quantize_rowwise(context, nullptr, q, s), "x has dtype -1", "");
  expect_refused(switchback_quantize_rowwise(context, x, nullptr, s), "q is a null pointer", "");
  expect_refused(switchback_quantize_rowwise(context, x, q, nullptr), "absmax is a null", "");
  expect_refused(switchback_quantize_global(context, x, nullptr, s), "q is a null pointer", "");
  expect_refused(switchback_quantize_global(context, x, q, nullptr), "absmax is a null", "");
  expect_refused(switchback_quantize_columnwise_transpose(context, x, nullptr, s),
                 "q_t is a null pointer", "");
  expect_refused(switchback_quantize_columnwise_transpose(context, x, q_t, nullptr),
                 "absmax_t is a null", "");
  expect_refused(switchback_quantize_global_transpose(context, x, nullptr, s),
                 "q_t is a null pointer", "");
  expect_refused(switchback_quantize_global_transpose(context, x, q_t, nullptr),
                 "absmax_t is a null", "");
  refuses_null("context x out", switchback_fingerprint, context, x, fingerprint);

  refuses_null("out", switchback_packed_weight_create, &no_pack);
  refuses_null("packed out", switchback_packed_weight_bytes, packed, &bytes);
  refuses_null("context b - packed -", switchback_pack_weight, context, b, 1, packed, nullptr);
  const auto args = gemm();
  const auto standard = gemm_standard();
  const auto blockwise = gemm_blockwise();
  refuses_null("context args", switchback_gemm, context, &args);
  refuses_null("context args", switchback_gemm_standard, context, &standard);
  refuses_null("context args", switchback_gemm_blockwise, context, &blockwise);
  expect_refused(switchback_gemm_s8s8s32(nullptr, a, b, s32), "context is a null pointer", "");
  expect_refused(switchback_gemm_s8s8s32(context, nullptr, b, s32), "a has dtype -1", "");
  expect_refused(switchback_gemm_s8s8s32(context, a, nullptr, s32), "b has dtype -1", "");
  expect_refused(switchback_gemm_s8s8s32(context, a, b, nullptr), "d has dtype -1", "");
  refuses_null("context x groups q absmax", switchback_grouped_quantize_rowwise, context, x,
               &good_groups, q, s);
  refuses_null("context y slots - out", switchback_combine, context, y, slots, nullptr, g);

  EXPECT_TRUE(bytes == 7 && fingerprint[0] == 7 && fingerprint[1] == 7 && info.threads == 0);
  EXPECT_TRUE(none == nullptr && no_pack == nullptr && infos == nullptr && text == nullptr);
  for (const Owned* output : {&q, &q_t, &b_t, &y, &dx, &s32, &g, &absmax, &absmax_2, &sums})
    EXPECT_TRUE(output->untouched());
}

TEST_F(Arguments, NullPointersOfLayersAreNamed) {
  auto info = sized<switchback_layer_info>();
  std::int32_t forward_mode = 7, dx_mode = 7;
  float* const s = absmax.floats();
  const auto options = layer_options();
  const auto of_layer = grads();
  switchback_linear* none = nullptr;
  refuses_null("context options out", switchback_linear_create, context, &options, &none);
  refuses_null("linear context out", switchback_linear_share, layer, context, &none);
  refuses_null("linear weight -", switchback_linear_set_weight, layer, weight, nullptr);
  refuses_null("linear codes absmax - -", switchback_linear_set_quantized_weight, layer, b,
               scales.floats(), N, nullptr);
  refuses_null("linear", switchback_linear_weight_updated, layer);
  refuses_null("linear", switchback_linear_weight_may_have_changed, layer);
  refuses_null("linear - - forward dx", switchback_linear_pass_modes, layer, M, 0, &forward_mode,
               &dx_mode);
  refuses_null("linear x y - -", switchback_linear_forward, layer, x, y, 0, nullptr);
  refuses_null("linear grads -", switchback_linear_backward, layer, &of_layer, nullptr);
  const auto kept = kept_input();
  const auto kept_blocks = kept_in_blocks();
  for (auto [of, good] : {std::pair(layer, &kept), std::pair(blocks, &kept_blocks)}) {
    auto without_x = *good, without_absmax = *good;
    without_x.x.data = nullptr;
    without_absmax.absmax = nullptr;
    const auto forward = [&](const switchback_kept_input& to) {
      return switchback_linear_forward(of, x, y, SWITCHBACK_SAVE_CALLER, &to);
    };
    expect_refused(forward(without_x), "kept.x", "forward");
    expect_refused(forward(without_absmax), "absmax is a null pointer", "forward");
    expect_refused(switchback_linear_backward(of, &of_layer, &without_x), "kept.x", "backward");
    expect_refused(switchback_linear_backward(of, &of_layer, &without_absmax), "absmax",
                   "backward");
  }
  refuses_null("linear out", switchback_linear_get_info, layer, &info);
  refuses_null("linear", switchback_linear_prepare_for_eval, layer);
  EXPECT_EQ(switchback_linear_prepare_for_eval(layer), SWITCHBACK_OK);
  refuses_null("linear codes absmax -", switchback_linear_quantized_weight, layer, b, s, N);

  const auto grads_of_groups = grouped_grads();
  refuses_null("linear groups x y -", switchback_linear_forward_groups, grouped, &good_groups, x, y,
               0);
  refuses_null("linear grads groups -", switchback_linear_backward_groups, grouped,
               &grads_of_groups, &good_groups, x);

  const auto of_fragments = fragmented_options();
  const auto parts = fragmented_weights();
  const auto grads_of_fragments = fragmented_grads();
  switchback_fragmented_linear* no_fragments = nullptr;
  refuses_null("context options out", switchback_fragmented_linear_create, context, &of_fragments,
               &no_fragments);
  refuses_null("linear weights", switchback_fragmented_linear_set_weights, fragmented, &parts);
  refuses_null("linear", switchback_fragmented_linear_weights_updated, fragmented);
  refuses_null("linear", switchback_fragmented_linear_prepare_for_eval, fragmented);
  refuses_null("linear x y -", switchback_fragmented_linear_forward, fragmented, x, y, 0);
  refuses_null("linear x y", switchback_fragmented_linear_forward_hard, fragmented, x, y);
  refuses_null("linear grads -", switchback_fragmented_linear_backward, fragmented,
               &grads_of_fragments, x);
  refuses_null("linear out", switchback_fragmented_linear_get_info, fragmented, &info);

  EXPECT_TRUE(none == nullptr && no_fragments == nullptr);
  EXPECT_TRUE(info.cached_weight_bytes == 0 && forward_mode == 7 && dx_mode == 7);
  for (const Owned* output : {&y, &dx, &dw, &db, &dws, &dbs, &q, &b_t, &absmax})
    EXPECT_TRUE(output->untouched());
  // The functions that destroy an object accept a null pointer.
  switchback_context_destroy(nullptr);
  switchback_packed_weight_destroy(nullptr);
  switchback_linear_destroy(nullptr);
  switchback_fragmented_linear_destroy(nullptr);
}

TEST_F(Arguments, NumbersOutsideOfStructsAreNamed) {
  float* const s = absmax.floats();
  const switchback_engine_info* infos = nullptr;
  std::size_t count = 77;
  std::int32_t mode = 7;
  Owned wrong(9, M, K);
  const std::vector<std::pair<const char*, std::function<switchback_status()>>> calls = {
      {"operation = 4", [&] { return switchback_engines(context, 4, &infos, &count); }},
      {"operation = -1", [&] { return switchback_engines(context, -1, &infos, &count); }},
      {"no stream", [&] { return switchback_context_set_stream(context, &count); }},
      {"x has dtype 9", [&] { return switchback_quantize_rowwise(context, wrong, q, s); }},
      {"q has dtype f32; it must be s8",
       [&] { return switchback_quantize_rowwise(context, x, dx, s); }},
      {"q has dtype f32; it must be s8",
       [&] { return switchback_dequantize_rowwise(context, x, scales.floats(), dx); }},
      {"d has dtype f32; without scales it must be s32",
       [&] { return switchback_gemm_s8s8s32(context, a, b, y); }},
      {"no_such", [&] { return switchback_pack_weight(context, b, 1, packed, "no_such"); }},
      {"no_such", [&] { return switchback_pack_weight(context, bs, G, packed, "no_such"); }},
      {"groups = 0", [&] { return switchback_pack_weight(context, bs, 0, packed, nullptr); }},
      {"slots has dtype f32", [&] { return switchback_combine(context, y, g, nullptr, g); }},
      {"save_for_backward = 4", [&] { return switchback_linear_forward(layer, x, y, 4, nullptr); }},
      {"save_for_backward = -1",
       [&] { return switchback_linear_forward(layer, x, y, -1, nullptr); }},
      {"save_for_backward = 4",
       [&] { return switchback_fragmented_linear_forward(fragmented, x, y, 4); }},
      {"rows = -1", [&] { return switchback_linear_pass_modes(layer, -1, 1, &mode, &mode); }},
      {"save_for_backward = 7",
       [&] { return switchback_linear_pass_modes(layer, 2, 7, &mode, &mode); }},
      {"bias has dtype 9",
       [&] {
         const Owned bias(9, 1, N);
         return switchback_linear_set_weight(layer, weight, bias);
       }},
      {"absmax_count = -1",
       [&] {
         return switchback_linear_set_quantized_weight(layer, b, scales.floats(), -1, nullptr);
       }},
      {"codes has dtype f32",
       [&] {
         return switchback_linear_set_quantized_weight(layer, weight, scales.floats(), N, nullptr);
       }},
      {"absmax_count = -1", [&] { return switchback_linear_quantized_weight(layer, b, s, -1); }},
      {"codes has dtype f32", [&] { return switchback_linear_quantized_weight(layer, dw, s, N); }}};
  for (const auto& [text, call] : calls)
    expect_refused(call(), text, text);
  expect_refused(switchback_linear_forward_groups(grouped, &good_groups, x, y, 4),
                 "save_for_backward = 4", "");
  EXPECT_TRUE(infos == nullptr && count == 77 && mode == 7);
  for (const Owned* output : {&y, &dx, &dw, &q, &b_t, &s32, &sums, &absmax})
    EXPECT_TRUE(output->untouched());
}

}  // namespace
}  // namespace switchback::test
