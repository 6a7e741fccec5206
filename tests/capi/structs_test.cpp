// SPDX-License-Identifier: Apache-2.0
// Structs of the C ABI with other sizes, and with values that a member cannot have.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <utility>

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
  accepts_sizes("options", layer_options(),
                creating(switchback_linear_create, switchback_linear_destroy));
  accepts_sizes("options", grouped_options(),
                creating(switchback_linear_create, switchback_linear_destroy));
  accepts_sizes(
      "options", fragmented_options(),
      creating(switchback_fragmented_linear_create, switchback_fragmented_linear_destroy));
  accepts_sizes("args", quantize_args(), on(context, switchback_quantize));
  accepts_sizes(
      "out", sized<switchback_context_info>(), [this](const switchback_context_info* out) {
        return switchback_context_get_info(context, const_cast<switchback_context_info*>(out));
      });
  accepts_sizes("args", gemm(), on(context, switchback_gemm));
  accepts_sizes("args", gemm_standard(), on(context, switchback_gemm_standard));
  accepts_sizes("args", gemm_blockwise(), on(context, switchback_gemm_blockwise));
  accepts_sizes("args", grouped_gemm(false), on(context, switchback_gemm));
  accepts_sizes("args", grouped_gemm(true), on(context, switchback_gemm));
  accepts_sizes("args", grouped_standard(), on(context, switchback_gemm_standard));
  accepts_sizes("weights", fragmented_weights(),
                on(fragmented, switchback_fragmented_linear_set_weights));
  accepts_sizes("groups", groups(), [this](const switchback_groups* given) {
    return switchback_grouped_quantize_rowwise(context, x, given, q, absmax.floats());
  });
  const auto kept = kept_x();
  accepts_sizes("kept", kept, [this](const switchback_kept_input* given) {
    const auto of_layer = grads();
    return switchback_linear_backward(layer, &of_layer, given);
  });
  accepts_sizes("kept", kept_input(), [this](const switchback_kept_input* given) {
    return switchback_linear_forward(layer, x, y, SWITCHBACK_SAVE_CALLER, given);
  });
  accepts_sizes("out", sized<switchback_layer_info>(), [this](const switchback_layer_info* out) {
    return switchback_linear_get_info(layer, const_cast<switchback_layer_info*>(out));
  });
  accepts_sizes("grads", grads(), [&](const switchback_linear_grads* given) {
    return switchback_linear_backward(layer, given, &kept);
  });
  accepts_sizes("grads", grouped_grads(), [&](const switchback_linear_grads* given) {
    return switchback_linear_backward_groups(grouped, given, &good_groups, x);
  });
  accepts_sizes("grads", fragmented_grads(),
                [this](const switchback_fragmented_linear_grads* given) {
                  return switchback_fragmented_linear_backward(fragmented, given, x);
                });
}

TEST_F(Arguments, NumbersThatNothingHasAreNamed) {
  auto options = sized<switchback_context_options>();
  options.device = "cpu";
  options.threads = 1;
  using Context = switchback_context_options;
  refuses<Context>(options,
                   [](const Context* given) {
                     switchback_context* made = nullptr;
                     return switchback_context_create(given, &made);
                   },
                   {{"'tpu' is not one of cpu, cuda", [](Context& o) { o.device = "tpu"; }},
                    {"threads = -1", [](Context& o) { o.threads = -1; }},
                    {"'avx9' is not one of", [](Context& o) { o.isa = "avx9"; }},
                    {"stream is not null", [](Context& o) { o.stream = &o; }},
                    {"an allocator is given; a cpu context",
                     [](Context& o) {
                       o.allocate = [](void*, std::size_t, void*) -> void* { return nullptr; };
                     }},
                    {"tuner: mode 'sometimes' is not one of off, read, record, tune, require",
                     [](Context& o) { o.tune = "sometimes"; }}});
  using Linear = switchback_linear_options;
  refuses<Linear>(layer_options(), creating(switchback_linear_create, switchback_linear_destroy),
                  {{"mode = 6", [](Linear& o) { o.mode = 6; }},
                   {"mode = -1", [](Linear& o) { o.mode = -1; }},
                   {"dtype = 3", [](Linear& o) { o.dtype = SWITCHBACK_S8; }},
                   {"in_features = -1", [](Linear& o) { o.in_features = -1; }},
                   {"out_features = -5", [](Linear& o) { o.out_features = -5; }},
                   {"no_such", [](Linear& o) { o.engine = "no_such"; }},
                   {"linear: activation = 3; it must be none (0), gelu_tanh (1) or gelu_erf (2)",
                    [](Linear& o) { o.activation = 3; }},
                   {"overlap_dw = 3; it must be 0 or 1", [](Linear& o) { o.overlap_dw = 3; }},
                   {"dw = 7", [](Linear& o) { o.dw = 7; }},
                   {"linear: rotation = 8; it must be one of hadamard_4 (4)",
                    [](Linear& o) { o.rotation = 8; }},
                   {"transposed_weight = 2", [](Linear& o) { o.transposed_weight = 2; }},
                   {"allow = 8",
                    [](Linear& o) {
                      o.mode = SWITCHBACK_AUTO;
                      o.allow = 1u << SWITCHBACK_GLOBAL_MEM_EFFICIENT;
                    }},
                   {"dw_block_rows = 100", [](Linear& o) {
                      o.dw = SWITCHBACK_DW_INT8_BLOCK;
                      o.dw_block_rows = 100;
                    }}});
  refuses<Linear>(grouped_options(), creating(switchback_linear_create, switchback_linear_destroy),
                  {{"groups = -1; it must be from 1 to 2^31 - 1", [](Linear& o) { o.groups = -1; }},
                   {"groups = 2147483648", [](Linear& o) { o.groups = INT64_C(1) << 31; }},
                   {"transposed_weight with 2 groups", [](Linear& o) { o.transposed_weight = 1; }},
                   {"more than a 64-bit signed integer", [](Linear& o) {
                      o.mode = SWITCHBACK_STANDARD;
                      o.out_features = INT64_MAX;
                    }}});
  using Fragmented = switchback_fragmented_linear_options;
  refuses<Fragmented>(
      fragmented_options(),
      creating(switchback_fragmented_linear_create, switchback_fragmented_linear_destroy),
      {{"in_features = -1", [](Fragmented& o) { o.in_features = -1; }},
       {"out_features = -1", [](Fragmented& o) { o.out_features = -1; }},
       {"fragments = 3", [](Fragmented& o) { o.fragments = 3; }},
       {"rank = -1", [](Fragmented& o) { o.rank = -1; }},
       {"mode = 9", [](Fragmented& o) { o.mode = 9; }},
       {"dtype = 3", [](Fragmented& o) { o.dtype = SWITCHBACK_S8; }},
       {"no_such", [](Fragmented& o) { o.engine = "no_such"; }}});
  using Grads = switchback_linear_grads;
  const auto kept = kept_x();
  refuses<Grads>(
      grads(), [&](const Grads* given) { return switchback_linear_backward(layer, given, &kept); },
      {{"accumulate = 9", [](Grads& o) { o.accumulate = 9; }},
       {"dx_of_activation = 2; it must be 0 or 1", [](Grads& o) { o.dx_of_activation = 2; }},
       {"y_activation = 5", [](Grads& o) { o.y_activation = 5; }},
       {"stochastic = 2", [](Grads& o) { o.stochastic = 2; }},
       {"g has dtype 50", [](Grads& o) { o.g.dtype = 50; }},
       {"g is [6,3]", [](Grads& o) { o.g.cols = 3; }},
       {"dx is [6,15]", [](Grads& o) { o.dx.cols = 15; }},
       {"dw is [3,16]", [](Grads& o) { o.dw.rows = 3; }},
       {"db", [](Grads& o) { o.db.cols = 3; }}});
  using Kept = switchback_kept_input;
  refuses<Kept>(kept,
                [this](const Kept* given) {
                  const auto of_layer = grads();
                  return switchback_linear_backward(layer, &of_layer, given);
                },
                {{"kept.in_blocks = 2", [](Kept& o) { o.in_blocks = 2; }},
                 {"kept.x has dtype f32; it must be s8", [](Kept& o) { o.in_blocks = 1; }},
                 {"x is [6,15]", [](Kept& o) { o.x.cols = 15; }}});
  refuses<Kept>(kept_input(),
                [this](const Kept* given) {
                  return switchback_linear_forward(layer, x, y, SWITCHBACK_SAVE_CALLER, given);
                },
                {{"kept.in_blocks = -1", [](Kept& o) { o.in_blocks = -1; }},
                 {"kept.x has dtype f32; it must be s8", [this](Kept& o) { o.x = x; }},
                 {"codes is [6,15]", [](Kept& o) { o.x.cols = 15; }}});
  refuses<Grads>(grouped_grads(),
                 [&](const Grads* given) {
                   return switchback_linear_backward_groups(grouped, given, &good_groups, x);
                 },
                 {{"accumulate = 2", [](Grads& o) { o.accumulate = 2; }},
                  {"g is [6,3]", [](Grads& o) { o.g.cols = 3; }},
                  {"dx is [6,15]", [](Grads& o) { o.dx.cols = 15; }},
                  {"dw is [4,16]", [](Grads& o) { o.dw.rows = N; }},
                  {"db is [1,4]", [](Grads& o) { o.db.rows = 1; }},
                  {"rounding is given with groups", [](Grads& o) { o.stochastic = 1; }}});
  using FragmentedGrads = switchback_fragmented_linear_grads;
  refuses<FragmentedGrads>(fragmented_grads(),
                           [this](const FragmentedGrads* given) {
                             return switchback_fragmented_linear_backward(fragmented, given, x);
                           },
                           {{"accumulate = 2", [](FragmentedGrads& o) { o.accumulate = 2; }},
                            {"dweight", [](FragmentedGrads& o) { o.dweight.rows = 3; }}});
  using Quantize = switchback_quantize_args;
  const auto to_blocks = [this](Quantize& o) {
    o.q_t = b_t;
    o.absmax_t = absmax_2.floats();
    o.block_rows = block_rows;
  };
  const auto without_codes = [](Quantize& o) {
    o.q = {};
    o.absmax = nullptr;
  };
  refuses<Quantize>(quantize_args(), on(context, switchback_quantize),
                    {{"x has dtype 9", [](Quantize& o) { o.x.dtype = 9; }},
                     {"x has dtype s8", [this](Quantize& o) { o.x = a; }},
                     {"q has dtype f32; it must be s8", [this](Quantize& o) { o.q = dx; }},
                     {"q is [6,15]", [](Quantize& o) { o.q.cols = 15; }},
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
                        o.absmax_t = absmax_2.floats();
                      }},
                     {"block_rows = 1",
                      [&](Quantize& o) {
                        to_blocks(o);
                        o.block_rows = 1;
                      }},
                     {"block_rows = 128 with q_t_scale global",
                      [&](Quantize& o) {
                        to_blocks(o);
                        o.q_t_scale = SWITCHBACK_SCALE_GLOBAL;
                      }},
                     {"accumulate = -1", [](Quantize& o) { o.accumulate = -1; }},
                     {"accumulate = 2", [](Quantize& o) { o.accumulate = 2; }},
                     {"activation = 7; it must be gelu_tanh (1) or gelu_erf (2)",
                      [](Quantize& o) { o.activation = 7; }},
                     {"g has dtype f16; it must be x's, f32",
                      [this](Quantize& o) {
                        o.activation = SWITCHBACK_GELU_ERF;
                        o.g = x;
                        o.g.dtype = SWITCHBACK_F16;
                      }},
                     {"value has dtype f16; it must be g's, f32",
                      [&](Quantize& o) {
                        without_codes(o);
                        o.activation = SWITCHBACK_GELU_ERF;
                        o.g = x;
                        o.value = dx;
                        o.value.dtype = SWITCHBACK_F16;
                      }},
                     {"rotation = 8; it must be one of hadamard_4 (4), hadamard_16 (16)",
                      [](Quantize& o) { o.rotation = 8; }},
                     {"rotation = 0",
                      [&](Quantize& o) {
                        without_codes(o);
                        o.rotated = dx;
                      }},
                     {"rotated is [6,4]",
                      [&](Quantize& o) {
                        without_codes(o);
                        o.rotation = 4;
                        o.rotated = y;
                      }},
                     {"stochastic = 2", [](Quantize& o) { o.stochastic = 2; }},
                     {"row0 = -1", [](Quantize& o) {
                        o.stochastic = 1;
                        o.rounding_row0 = -1;
                      }}});
  using Info = switchback_context_info;
  refuses<Info>(sized<Info>(), on(context, switchback_context_get_info),
                {{"out has struct_size = 8", [](Info& o) { o.struct_size = 8; }}});
  using Gemm = switchback_gemm_args;
  refuses<Gemm>(gemm(), on(context, switchback_gemm),
                {{"absmax_b_count = 5", [](Gemm& o) { o.absmax_b_count = 5; }},
                 {"absmax_b_count", [](Gemm& o) { o.absmax_b_count = INT64_MIN; }},
                 {"absmax_a is a null", [](Gemm& o) { o.absmax_a = nullptr; }},
                 {"absmax_b is a null", [](Gemm& o) { o.absmax_b = nullptr; }},
                 {"for int32 sums (d has dtype s32) all three must be null",
                  [](Gemm& o) { o.d.dtype = SWITCHBACK_S32; }},
                 {"d has dtype f32; without scales it must be s32",
                  [](Gemm& o) {
                    o.absmax_a = o.absmax_b = nullptr;
                    o.absmax_b_count = 0;
                  }},
                 {"d_column_stride = 4 without groups", [](Gemm& o) { o.d_column_stride = 4; }},
                 {"bias has dtype 17",
                  [](Gemm& o) {
                    o.bias = o.absmax_a;
                    o.bias_dtype = 17;
                  }},
                 {"no_such", [](Gemm& o) { o.engine = "no_such"; }},
                 {"b and packed_b are both given", [this](Gemm& o) { o.packed_b = packed; }}});
  using Standard = switchback_gemm_standard_args;
  refuses<Standard>(gemm_standard(), on(context, switchback_gemm_standard),
                    {{"transpose_a = 2", [](Standard& o) { o.transpose_a = 2; }},
                     {"transpose_b = -1", [](Standard& o) { o.transpose_b = -1; }},
                     {"accumulate = 3", [](Standard& o) { o.accumulate = 3; }},
                     {"bias has dtype 5",
                      [](Standard& o) {
                        o.bias = o.a.data;
                        o.bias_dtype = 5;
                      }},
                     {"no_such", [](Standard& o) { o.engine = "no_such"; }}});
  using Blockwise = switchback_gemm_blockwise_args;
  refuses<Blockwise>(gemm_blockwise(), on(context, switchback_gemm_blockwise),
                     {{"block_rows = 0", [](Blockwise& o) { o.block_rows = 0; }},
                      {"accumulate = 2", [](Blockwise& o) { o.accumulate = 2; }},
                      {"absmax_b is a null", [](Blockwise& o) { o.absmax_b = nullptr; }},
                      {"m = -1", [](Blockwise& o) { o.m = -1; }},
                      {"m = 129", [](Blockwise& o) { o.m = padded + 1; }},
                      {"no_such", [](Blockwise& o) { o.engine = "no_such"; }}});
  auto small_groups = groups();
  small_groups.struct_size = 8;
  refuses<Gemm>(
      grouped_gemm(false), on(context, switchback_gemm),
      {{"groups has struct_size = 8", [&](Gemm& o) { o.groups = &small_groups; }},
       {"absmax_b_count = 3; it must be 2, one for each matrix, or 8, one for each row of b",
        [](Gemm& o) { o.absmax_b_count = 3; }},
       {"bias has dtype 9",
        [](Gemm& o) {
          o.bias = o.absmax_a;
          o.bias_dtype = 9;
        }},
       {"d_column_stride", [](Gemm& o) { o.d_column_stride = N; }},
       {"no_such", [](Gemm& o) { o.engine = "no_such"; }},
       {"for int32 sums", [](Gemm& o) { o.d.dtype = SWITCHBACK_S32; }},
       {"b and packed_b are both given", [this](Gemm& o) { o.packed_b = packed; }}});
  refuses<Gemm>(grouped_gemm(true), on(context, switchback_gemm),
                {{"d has dtype f32; without scales", [](Gemm& o) { o.d.dtype = SWITCHBACK_F32; }},
                 {"for int32 sums", [this](Gemm& o) { o.absmax_a = scales.floats(); }}});
  refuses<Standard>(grouped_standard(), on(context, switchback_gemm_standard),
                    {{"groups has struct_size = 8", [&](Standard& o) { o.groups = &small_groups; }},
                     {"transpose_a = 2", [](Standard& o) { o.transpose_a = 2; }},
                     {"transpose_b = 3", [](Standard& o) { o.transpose_b = 3; }},
                     {"accumulate = 5", [](Standard& o) { o.accumulate = 5; }},
                     {"bias", [](Standard& o) {
                        o.bias = o.a.data;
                        o.bias_dtype = 9;
                      }}});
  using Groups = switchback_groups;
  refuses<Groups>(
      groups(),
      [this](const Groups* given) {
        return switchback_grouped_quantize_rowwise(context, x, given, q, absmax.floats());
      },
      {{"groups.count = -1", [](Groups& o) { o.count = -1; }},
       {"groups.on_device = 2", [](Groups& o) { o.on_device = 2; }},
       {"packed groups have only ends", [](Groups& o) { o.row_stride = 3; }},
       {"groups.used[1] = 5",
        [](Groups& o) {
          o.rows_of = std::exchange(o.ends, nullptr);
          o.row_stride = M / G;
        }},
       {"x.index[0] = 1515870810",  // the bytes of the fill mark 0x5A as an int
        [this](Groups& o) { o.row_index = reinterpret_cast<std::int32_t*>(scales.floats()); }},
       {"column_stride = -1", [](Groups& o) { o.column_stride = -1; }}});
  for (const Owned* output : {&y, &dx, &dw, &db, &dws, &dbs, &q, &s32, &absmax})
    EXPECT_TRUE(output->untouched());
}

}  // namespace
}  // namespace switchback::test
