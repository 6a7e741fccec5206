// SPDX-License-Identifier: Apache-2.0
// Structs of the C ABI with other sizes, and with values that a member cannot have.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>

#include "capi/good_arguments.hpp"

namespace switchback::test {
namespace {

// Turns a function of an object and a struct into a function of the struct alone.
auto on(auto* object, auto function) {
  return [=](auto* given) { return function(object, given); };
}

TEST_F(Arguments, StructsMayBeNewer) {
  auto options = sized<switchback_context_options>();
  options.device = "cpu";
  options.threads = 1;
  accepts_sizes("options", options, [](const switchback_context_options* given) {
    switchback_context* made = nullptr;
    const switchback_status status = switchback_context_create(given, &made);
    switchback_context_destroy(made);
    return status;
  });
  accepts_sizes("options", LayerCalls::options({}, false),
                creating(switchback_linear_create, switchback_linear_destroy));
  accepts_sizes(
      "options", FragmentedCalls::options(SWITCHBACK_ROWWISE),
      creating(switchback_fragmented_linear_create, switchback_fragmented_linear_destroy));
  accepts_sizes("args", codes_of_rows(), on(context, switchback_quantize));
  accepts_sizes(
      "out", sized<switchback_context_info>(), [this](const switchback_context_info* out) {
        return switchback_context_get_info(context, const_cast<switchback_context_info*>(out));
      });
  accepts_sizes("args", gemm_arguments(w, 0, false), on(context, switchback_gemm));
  accepts_sizes("args", standard_arguments(w, SWITCHBACK_F32, M, N, K),
                on(context, switchback_gemm_standard));
  accepts_sizes("args", blockwise_arguments(w, SWITCHBACK_F32),
                on(context, switchback_gemm_blockwise));
  accepts_sizes("weights", fragmented.weights,
                on(w.fragmented_layer, switchback_fragmented_linear_set_weights));
  accepts_sizes("groups", *grouped.groups, [this](const switchback_groups* given) {
    return switchback_grouped_quantize_rowwise(context, &x, given, &q, absmax);
  });
  accepts_sizes("kept", kept_x, [this](const switchback_kept_input* given) {
    return switchback_linear_backward(w.layer, &grads, given);
  });
  accepts_sizes("kept", kept_codes, [this](const switchback_kept_input* given) {
    return switchback_linear_forward(w.layer, &x, &y, SWITCHBACK_SAVE_CALLER, given);
  });
  accepts_sizes("out", sized<switchback_layer_info>(), [this](const switchback_layer_info* out) {
    return switchback_linear_get_info(w.layer, const_cast<switchback_layer_info*>(out));
  });
  accepts_sizes("grads", grads, [this](const switchback_linear_grads* given) {
    return switchback_linear_backward(w.layer, given, &kept_x);
  });
  accepts_sizes("grads", fragmented_grads, [this](const switchback_fragmented_linear_grads* given) {
    return switchback_fragmented_linear_backward(w.fragmented_layer, given, &fragmented.x);
  });
}

// The values that the C ABI itself refuses, and for members that no other test of this folder uses,
// one value that the C++ API refuses.
TEST_F(Arguments, NumbersThatNothingHasAreNamed) {
  const auto gemm = gemm_arguments(w, 0, false), gemm_of_groups = gemm_arguments(w, 3, false);
  const auto standard = standard_arguments(w, SWITCHBACK_F32, M, N, K);
  const auto standard_of_groups = grouped_standard_arguments(w, false);
  const auto blockwise = blockwise_arguments(w, SWITCHBACK_F32);
  const Bytes before = written();
  auto options = sized<switchback_context_options>();
  options.device = "cpu";
  options.threads = 1;
  using Context = switchback_context_options;
  refuses<Context>(options,
                   [](const Context* given) {
                     switchback_context* made = nullptr;
                     return switchback_context_create(given, &made);
                   },
                   {{"stream is not null", [](Context& o) { o.stream = &o; }},
                    {"an allocator is given; a cpu context",
                     [](Context& o) {
                       o.allocate = [](void*, std::size_t, void*) -> void* { return nullptr; };
                     }},
                    {"tuner: mode 'sometimes' is not one of off, read, record, tune, require",
                     [](Context& o) { o.tune = "sometimes"; }}});
  using Linear = switchback_linear_options;
  refuses<Linear>(LayerCalls::options({}, false),
                  creating(switchback_linear_create, switchback_linear_destroy),
                  {{"mode = 6", [](Linear& o) { o.mode = 6; }},
                   {"mode = -1", [](Linear& o) { o.mode = -1; }},
                   {"dtype = 3", [](Linear& o) { o.dtype = SWITCHBACK_S8; }},
                   {"in_features = -1", [](Linear& o) { o.in_features = -1; }},
                   {"out_features = -5", [](Linear& o) { o.out_features = -5; }},
                   {"groups = -1; it must be from 1 to 2^31 - 1", [](Linear& o) { o.groups = -1; }},
                   {"groups = 2147483648", [](Linear& o) { o.groups = INT64_C(1) << 31; }},
                   {"no_such", [](Linear& o) { o.engine = "no_such"; }},
                   {"linear: activation = 3; it must be none (0), gelu_tanh (1) or gelu_erf (2)",
                    [](Linear& o) { o.activation = 3; }},
                   {"overlap_dw = 3; it must be 0 or 1", [](Linear& o) { o.overlap_dw = 3; }},
                   {"dw = 7", [](Linear& o) { o.dw = 7; }},
                   {"linear: rotation = 8; it must be one of hadamard_4 (4)",
                    [](Linear& o) { o.rotation = 8; }},
                   {"transposed_weight = 2", [](Linear& o) { o.transposed_weight = 2; }},
                   {"more than a 64-bit signed integer", [](Linear& o) {
                      o.groups = 2;
                      o.mode = SWITCHBACK_STANDARD;
                      o.out_features = INT64_MAX;
                    }}});
  using Fragmented = switchback_fragmented_linear_options;
  refuses<Fragmented>(
      FragmentedCalls::options(SWITCHBACK_ROWWISE),
      creating(switchback_fragmented_linear_create, switchback_fragmented_linear_destroy),
      {{"mode = 9", [](Fragmented& o) { o.mode = 9; }},
       {"dtype = 3", [](Fragmented& o) { o.dtype = SWITCHBACK_S8; }},
       {"no_such", [](Fragmented& o) { o.engine = "no_such"; }}});
  using Grads = switchback_linear_grads;
  refuses<Grads>(
      grads,
      [&](const Grads* given) { return switchback_linear_backward(w.layer, given, &kept_x); },
      {{"accumulate = 9", [](Grads& o) { o.accumulate = 9; }},
       {"dx_of_activation = 2; it must be 0 or 1", [](Grads& o) { o.dx_of_activation = 2; }},
       {"y_activation = 5", [](Grads& o) { o.y_activation = 5; }},
       {"stochastic = 2", [](Grads& o) { o.stochastic = 2; }},
       {"g has dtype 50", [](Grads& o) { o.g.dtype = 50; }},
       {"dx has dtype 50", [](Grads& o) { o.dx.dtype = 50; }}});
  using Kept = switchback_kept_input;
  refuses<Kept>(
      kept_x,
      [this](const Kept* given) { return switchback_linear_backward(w.layer, &grads, given); },
      {{"kept.in_blocks = 2", [](Kept& o) { o.in_blocks = 2; }},
       {"kept.x has dtype f32; it must be s8", [](Kept& o) { o.in_blocks = 1; }}});
  refuses<Kept>(kept_codes,
                [this](const Kept* given) {
                  return switchback_linear_forward(w.layer, &x, &y, SWITCHBACK_SAVE_CALLER, given);
                },
                {{"kept.in_blocks = -1", [](Kept& o) { o.in_blocks = -1; }},
                 {"kept.x has dtype f32; it must be s8", [this](Kept& o) { o.x = x; }}});
  using FragmentedGrads = switchback_fragmented_linear_grads;
  refuses<FragmentedGrads>(fragmented_grads,
                           [this](const FragmentedGrads* given) {
                             return switchback_fragmented_linear_backward(w.fragmented_layer, given,
                                                                          &fragmented.x);
                           },
                           {{"accumulate = 2", [](FragmentedGrads& o) { o.accumulate = 2; }}});
  using Quantize = switchback_quantize_args;
  refuses<Quantize>(codes_of_rows(), on(context, switchback_quantize),
                    {{"x has dtype 9", [](Quantize& o) { o.x.dtype = 9; }},
                     {"q has dtype f32; it must be s8", [this](Quantize& o) { o.q = x; }},
                     {"q_t has dtype f32; it must be s8", [this](Quantize& o) { o.q_t = y; }},
                     {"q_scale = 3; it must be per_row (0), global (1) or none (2)",
                      [](Quantize& o) { o.q_scale = 3; }},
                     {"q_scale = -1", [](Quantize& o) { o.q_scale = -1; }},
                     {"q_t_scale = 2; it must be per_row (0) or global (1)",
                      [](Quantize& o) { o.q_t_scale = SWITCHBACK_SCALE_NONE; }},
                     {"absmax is given for codes without scales",
                      [](Quantize& o) { o.q_scale = SWITCHBACK_SCALE_NONE; }},
                     {"absmax_t is given; codes with the global scale share absmax",
                      [this](Quantize& o) {
                        o.q_scale = o.q_t_scale = SWITCHBACK_SCALE_GLOBAL;
                        o.q_t = q_t;
                        o.absmax_t = scales;
                      }},
                     {"block_rows = 128 with q_t_scale global",
                      [this](Quantize& o) {
                        o.q_t = codes_of_blocks;
                        o.absmax_t = scales;
                        o.block_rows = 128;
                        o.q_t_scale = SWITCHBACK_SCALE_GLOBAL;
                      }},
                     {"accumulate = -1", [](Quantize& o) { o.accumulate = -1; }},
                     {"activation = 7; it must be gelu_tanh (1) or gelu_erf (2)",
                      [](Quantize& o) { o.activation = 7; }},
                     {"rotation = 8; it must be one of hadamard_4 (4), hadamard_16 (16)",
                      [](Quantize& o) { o.rotation = 8; }},
                     {"stochastic = 2", [](Quantize& o) { o.stochastic = 2; }}});
  using Gemm = switchback_gemm_args;
  refuses<Gemm>(gemm, on(context, switchback_gemm),
                {{"absmax_b_count = 5", [](Gemm& o) { o.absmax_b_count = 5; }},
                 {"absmax_b_count", [](Gemm& o) { o.absmax_b_count = INT64_MIN; }},
                 {"absmax_a is a null", [](Gemm& o) { o.absmax_a = nullptr; }},
                 {"absmax_b is a null", [](Gemm& o) { o.absmax_b = nullptr; }},
                 {"for int32 sums (d has dtype s32) all three must be null",
                  [](Gemm& o) { o.d.dtype = SWITCHBACK_S32; }},
                 {"d has dtype bf16; without scales it must be s32",
                  [](Gemm& o) {
                    o.absmax_a = o.absmax_b = nullptr;
                    o.absmax_b_count = 0;
                  }},
                 {"d_column_stride = 4 without groups", [](Gemm& o) { o.d_column_stride = 4; }},
                 {"bias has dtype 17", [](Gemm& o) { o.bias_dtype = 17; }},
                 {"no_such", [](Gemm& o) { o.engine = "no_such"; }},
                 {"b and packed_b are both given", [this](Gemm& o) { o.packed_b = w.packed; }}});
  using Standard = switchback_gemm_standard_args;
  refuses<Standard>(standard, on(context, switchback_gemm_standard),
                    {{"transpose_a = 2", [](Standard& o) { o.transpose_a = 2; }},
                     {"transpose_b = -1", [](Standard& o) { o.transpose_b = -1; }},
                     {"accumulate = 3", [](Standard& o) { o.accumulate = 3; }},
                     {"bias has dtype 5", [](Standard& o) { o.bias_dtype = 5; }},
                     {"no_such", [](Standard& o) { o.engine = "no_such"; }}});
  using Blockwise = switchback_gemm_blockwise_args;
  refuses<Blockwise>(blockwise, on(context, switchback_gemm_blockwise),
                     {{"block_rows = 0", [](Blockwise& o) { o.block_rows = 0; }},
                      {"accumulate = 2", [](Blockwise& o) { o.accumulate = 2; }},
                      {"m = -1", [](Blockwise& o) { o.m = -1; }},
                      {"m = 257", [](Blockwise& o) { o.m = 257; }},
                      {"no_such", [](Blockwise& o) { o.engine = "no_such"; }}});
  auto small_groups = *grouped.groups;
  small_groups.struct_size = 8;
  refuses<Gemm>(
      gemm_of_groups, on(context, switchback_gemm),
      {{"groups has struct_size = 8", [&](Gemm& o) { o.groups = &small_groups; }},
       {"absmax_b_count = 4; it must be 3, one for each matrix, or 510, one for each row of b",
        [](Gemm& o) { o.absmax_b_count = 4; }},
       {"bias has dtype 9", [](Gemm& o) { o.bias_dtype = 9; }},
       {"d_column_stride", [](Gemm& o) { o.d_column_stride = N; }},
       {"for int32 sums", [](Gemm& o) { o.d.dtype = SWITCHBACK_S32; }}});
  refuses<Standard>(
      standard_of_groups, on(context, switchback_gemm_standard),
      {{"groups has struct_size = 8", [&](Standard& o) { o.groups = &small_groups; }},
       {"grouped_gemm_standard: transpose_a = 2", [](Standard& o) { o.transpose_a = 2; }}});
  using Groups = switchback_groups;
  refuses<Groups>(*grouped.groups,
                  [this](const Groups* given) {
                    return switchback_grouped_quantize_rowwise(context, &x, given, &q, absmax);
                  },
                  {{"groups.count = -1", [](Groups& o) { o.count = -1; }},
                   {"groups.on_device = 2", [](Groups& o) { o.on_device = 2; }},
                   {"column_stride = -1", [](Groups& o) { o.column_stride = -1; }}});
  EXPECT_TRUE(written() == before);
}

}  // namespace
}  // namespace switchback::test
