// SPDX-License-Identifier: Apache-2.0
// Test cases of failing allocations for out_of_memory_functions_test.cpp: groups of rows.
#include "capi/out_of_memory_world.hpp"

namespace switchback::test {
namespace {

// Three groups in M slots, which read rows of x[T,K]. The second group is empty, and the last slot
// unused.
constexpr std::int64_t G = 3, M = 20, T = 9, N = 70, K = 130;

switchback_groups groups_of(World& w, bool gathers) {
  switchback_groups groups = {};
  groups.struct_size = sizeof(groups);
  groups.count = G;
  groups.ends = w.integers({12, 12, M - 1});
  if (gathers) {
    std::vector<std::int32_t> index;
    for (std::int32_t slot = 0; slot < M; ++slot)
      index.push_back(slot * 4 % T);
    groups.row_index = w.integers(index);
  }
  return groups;
}

std::function<switchback_status()> pack(World& w, std::int64_t rows) {
  const auto b = w.input(SWITCHBACK_S8, G * rows, K);
  if (w.packed == nullptr) expect_ok(switchback_packed_weight_create(&w.packed));
  return [b, &w] { return switchback_pack_weight(w.context, &b, G, w.packed, nullptr); };
}

// Arguments for a product with int32 sums of a and the packed matrices of all groups.
switchback_gemm_args sums_of_packed(World& w, const switchback_matrix& d) {
  switchback_gemm_args args = {};
  args.struct_size = sizeof(args);
  args.a = w.input(SWITCHBACK_S8, M, K);
  args.packed_b = w.packed;
  args.d = d;
  args.groups = w.keep(groups_of(w, false));
  return args;
}

void product_cases(std::vector<Case>& cases, std::int32_t threads) {
  cases.push_back({"switchback_grouped_quantize_rowwise", "",
                   [](World& w) {
                     const auto x = w.input(SWITCHBACK_BF16, T, K);
                     const auto groups = groups_of(w, true);
                     const auto q = w.output(SWITCHBACK_S8, M, K);
                     float* const absmax = w.floats(M);
                     w.call = [=, &w] {
                       return switchback_grouped_quantize_rowwise(w.context, &x, &groups, &q,
                                                                  absmax);
                     };
                   },
                   threads});
  for (const bool packed : {false, true}) {
    cases.push_back({"switchback_gemm",
                     packed ? "of groups, int32 sums, packed" : "of groups, int32 sums",
                     [=](World& w) {
                       if (packed) expect_ok(pack(w, N)());
                       auto args = sums_of_packed(w, w.output(SWITCHBACK_S32, M, N));
                       if (!packed) args.b = w.input(SWITCHBACK_S8, G * N, K);
                       w.call = [=, &w] { return switchback_gemm(w.context, &args); };
                     },
                     threads});
    cases.push_back({"switchback_gemm", packed ? "of groups, packed" : "of groups",
                     [=](World& w) {
                       if (packed) expect_ok(pack(w, N)());
                       auto args = sums_of_packed(w, w.output(SWITCHBACK_F16, M, N));
                       if (!packed) args.b = w.input(SWITCHBACK_S8, G * N, K);
                       args.absmax_a = w.scales(M);
                       args.absmax_b = w.scales(G * N);
                       args.absmax_b_count = G * N;
                       args.bias = w.scales(G * N);
                       w.call = [=, &w] { return switchback_gemm(w.context, &args); };
                     },
                     threads});
  }
  for (const bool weight_gradient : {false, true})
    cases.push_back({"switchback_gemm_standard", weight_gradient ? "dW of groups" : "Y of groups",
                     [=](World& w) {
                       switchback_gemm_standard_args args = {};
                       args.struct_size = sizeof(args);
                       const std::int32_t type = SWITCHBACK_BF16;
                       args.a = w.input(type, M, weight_gradient ? N : K);
                       args.b = w.input(type, weight_gradient ? M : G * N, K);
                       args.d = weight_gradient ? w.output(SWITCHBACK_F32, G * N, K)
                                                : w.output(SWITCHBACK_F32, M, N);
                       args.transpose_a = weight_gradient ? 1 : 0;
                       args.transpose_b = weight_gradient ? 0 : 1;
                       args.accumulate = 1;
                       // The product must not choose another library, which would allocate where no
                       // failure is allowed.
                       args.engine = "reference";
                       args.groups = w.keep(groups_of(w, false));
                       w.call = [=, &w] { return switchback_gemm_standard(w.context, &args); };
                     },
                     threads});
  cases.push_back(
      {"switchback_combine", "",
       [](World& w) {
         constexpr std::int64_t rows = 6, slots = 2;
         const auto y = w.input(SWITCHBACK_F16, M, N);
         std::vector<std::int32_t> numbers;
         for (std::int32_t i = 0; i < rows * slots; ++i)
           numbers.push_back(i % 5 == 4 ? -1 : i);
         const switchback_matrix where = {const_cast<std::int32_t*>(w.integers(numbers)),
                                          SWITCHBACK_S32, rows, slots, slots};
         const auto weights = w.input(SWITCHBACK_F32, rows, slots);
         const auto out = w.output(SWITCHBACK_F16, rows, N);
         w.call = [=, &w] { return switchback_combine(w.context, &y, &where, &weights, &out); };
       },
       threads});
}

void pack_cases(std::vector<Case>& cases) {
  // The packed matrices replace smaller ones, which must remain after a failure.
  cases.push_back({"switchback_pack_weight", "of groups", [](World& w) {
                     constexpr std::int64_t few = 3;
                     expect_ok(pack(w, few)());
                     const auto args = sums_of_packed(w, w.output(SWITCHBACK_S32, M, N));
                     w.call = pack(w, N);
                     w.look = [=, &w] { expect_ok(switchback_gemm(w.context, &args)); };
                     w.look_unchanged = [=, &w] {
                       auto old = args;
                       old.d = w.input(SWITCHBACK_S32, M, few);
                       expect_ok(switchback_gemm(w.context, &old));
                     };
                   }});
}

struct Kind {
  std::int32_t mode;
  std::int32_t activation = SWITCHBACK_NO_ACTIVATION;
  std::int32_t dw = SWITCHBACK_DW_FLOATING;
  std::int32_t rotation = 0;
};
constexpr Kind kinds[] = {
    {SWITCHBACK_STANDARD},
    {SWITCHBACK_ROWWISE},
    {SWITCHBACK_ROWWISE_SHARED},
    {SWITCHBACK_GLOBAL},
    {SWITCHBACK_GLOBAL_MEM_EFFICIENT},
    {SWITCHBACK_STANDARD, SWITCHBACK_GELU_TANH},
    {SWITCHBACK_ROWWISE, SWITCHBACK_NO_ACTIVATION, SWITCHBACK_DW_INT8_BLOCK},
    {SWITCHBACK_ROWWISE, SWITCHBACK_GELU_TANH, SWITCHBACK_DW_INT8_BLOCK, 4},
};

// The inner dimension of a layer. A rotation needs groups of four columns.
std::int64_t k_of(const Kind& kind) {
  return kind.rotation == 0 ? K : K + 2;
}

switchback_linear_options options_of(const Kind& kind) {
  switchback_linear_options options = {};
  options.struct_size = sizeof(options);
  options.in_features = k_of(kind);
  options.out_features = N;
  options.groups = G;
  options.mode = kind.mode;
  // Mode standard must not run other libraries, which allocate where no failure is allowed.
  if (kind.mode == SWITCHBACK_STANDARD) options.engine = "reference";
  options.activation = kind.activation;
  options.dw = kind.dw;
  options.dw_block_rows = 128;
  options.rotation = kind.rotation;
  return options;
}

switchback_linear_grads gradients(World& w, const Kind& kind) {
  switchback_linear_grads grads = {};
  grads.struct_size = sizeof(grads);
  grads.g = w.input(SWITCHBACK_F32, M, N);
  grads.dx = w.output(SWITCHBACK_F32, M, k_of(kind));
  // In the int8 modes a floating point dW is left out, because other libraries may compute it.
  if (kind.mode == SWITCHBACK_STANDARD || kind.dw == SWITCHBACK_DW_INT8_BLOCK)
    grads.dw = w.output(SWITCHBACK_F32, G * N, k_of(kind));
  grads.db = w.output(SWITCHBACK_F32, G, N);
  return grads;
}

void layer_cases(std::vector<Case>& cases, const Kind& kind) {
  const std::string what = "of groups in mode " + std::to_string(kind.mode) + ", activation " +
                           std::to_string(kind.activation) + ", dw " + std::to_string(kind.dw) +
                           ", rotation " + std::to_string(kind.rotation);
  const auto forward = [](World& w, const switchback_groups& groups, const switchback_matrix& x,
                          const switchback_matrix& y, std::int32_t save) {
    return switchback_linear_forward_groups(w.layer, &groups, &x, &y, save);
  };
  cases.push_back({"switchback_linear_create", what, [=](World& w) {
                     w.makes_addresses = true;
                     auto** const out = w.result<switchback_linear*>();
                     w.call = [=, &w] {
                       const auto options = options_of(kind);
                       const switchback_status status =
                           switchback_linear_create(w.context, &options, out);
                       w.layer = *out;
                       return status;
                     };
                   }});
  const auto on_layer = [&](std::string name, auto call) {
    cases.push_back({name, what, [=](World& w) {
                       w.make_layer(options_of(kind));
                       const auto groups = groups_of(w, true);
                       const auto x = w.input(SWITCHBACK_F32, T, k_of(kind));
                       const auto y = w.output(SWITCHBACK_F32, M, N);
                       w.call = [=, &w] { return call(w); };
                       w.look = [=, &w] {
                         expect_ok(forward(w, groups, x, y, SWITCHBACK_SAVE_NOTHING));
                       };
                     }});
  };
  on_layer("switchback_linear_set_weight",
           [](World& w) { return switchback_linear_set_weight(w.layer, &w.weight, &w.bias); });
  on_layer("switchback_linear_weight_updated",
           [](World& w) { return switchback_linear_weight_updated(w.layer); });
  on_layer("switchback_linear_weight_may_have_changed",
           [](World& w) { return switchback_linear_weight_may_have_changed(w.layer); });
  on_layer("switchback_linear_prepare_for_eval",
           [](World& w) { return switchback_linear_prepare_for_eval(w.layer); });
  cases.push_back({"switchback_linear_forward_groups", what, [=](World& w) {
                     w.make_layer(options_of(kind));
                     const auto groups = groups_of(w, true);
                     const auto x = w.input(SWITCHBACK_F32, T, k_of(kind));
                     const auto y = w.output(SWITCHBACK_F32, M, N);
                     const auto grads = gradients(w, kind);
                     w.call = [=, &w] { return forward(w, groups, x, y, SWITCHBACK_SAVE_COPY); };
                     w.look = [=, &w] {
                       expect_ok(switchback_linear_backward(w.layer, &grads, nullptr));
                     };
                   }});
  for (const bool kept : {false, true})
    cases.push_back({kept ? "switchback_linear_backward_groups" : "switchback_linear_backward",
                     what, [=](World& w) {
                       w.make_layer(options_of(kind));
                       const auto groups = groups_of(w, true);
                       const auto x = w.input(SWITCHBACK_F32, T, k_of(kind));
                       const auto y = w.input(SWITCHBACK_F32, M, N);
                       const auto grads = gradients(w, kind);
                       if (!kept) expect_ok(forward(w, groups, x, y, SWITCHBACK_SAVE_COPY));
                       w.call = [=, &w] {
                         return kept ? switchback_linear_backward_groups(w.layer, &grads, &groups,
                                                                         &x)
                                     : switchback_linear_backward(w.layer, &grads, nullptr);
                       };
                     }});
}

}  // namespace

void grouped_cases(std::vector<Case>& cases) {
  for (const std::int32_t threads : {1, 2})
    product_cases(cases, threads);
  pack_cases(cases);
  for (const Kind& kind : kinds)
    layer_cases(cases, kind);
}

}  // namespace switchback::test
