// SPDX-License-Identifier: Apache-2.0
// Calls of contexts, quantize operations and products.
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

#include "capi/calls.hpp"

namespace switchback::test {
namespace {

constexpr std::int64_t M = 20, N = 170, K = 130, T = 9, G = 3, block_rows = 128;

}  // namespace

switchback_gemm_args gemm_arguments(World& w, std::int64_t groups, bool sums) {
  const std::int64_t rows_of_b = N * std::max<std::int64_t>(groups, 1);
  auto args = sized<switchback_gemm_args>();
  args.a = w.input(SWITCHBACK_S8, M, K);
  args.b = w.input(SWITCHBACK_S8, rows_of_b, K);
  args.d = w.output(sums ? SWITCHBACK_S32 : SWITCHBACK_BF16, M, N);
  if (groups != 0) args.groups = w.groups(M);
  if (sums) return args;
  args.absmax_a = w.scales(M);
  args.absmax_b = w.scales(rows_of_b);
  args.absmax_b_count = rows_of_b;
  args.bias = w.scales(rows_of_b);
  return args;
}

switchback_gemm_blockwise_args blockwise_arguments(World& w, std::int32_t dtype) {
  constexpr std::int64_t blocks = 2;
  auto args = sized<switchback_gemm_blockwise_args>();
  args.a = w.input(SWITCHBACK_S8, N, blocks * block_rows);
  args.b = w.input(SWITCHBACK_S8, K, blocks * block_rows);
  args.d = w.output(dtype, N, K);
  args.absmax_a = w.scales(blocks * N);
  args.absmax_b = w.scales(blocks * K);
  args.block_rows = block_rows;
  args.accumulate = 1;
  args.m = block_rows + M;
  return args;
}

switchback_gemm_standard_args standard_arguments(World& w, std::int32_t dtype, std::int64_t m,
                                                 std::int64_t n, std::int64_t k) {
  auto args = sized<switchback_gemm_standard_args>();
  args.a = w.input(dtype, m, k);
  args.b = w.input(dtype, k, n);
  args.d = w.output(SWITCHBACK_F32, m, n);
  args.bias = w.scales(n);
  args.accumulate = 1;
  return args;
}

switchback_gemm_standard_args grouped_standard_arguments(World& w, bool weight_gradient) {
  auto args = sized<switchback_gemm_standard_args>();
  args.a = w.input(SWITCHBACK_BF16, M, weight_gradient ? N : K);
  args.b = w.input(SWITCHBACK_BF16, weight_gradient ? M : G * N, K);
  args.d = weight_gradient ? w.output(SWITCHBACK_F32, G * N, K) : w.output(SWITCHBACK_F32, M, N);
  args.transpose_a = weight_gradient ? 1 : 0;
  args.transpose_b = weight_gradient ? 0 : 1;
  args.accumulate = 1;
  // The product must not choose another library, which would allocate where no failure is allowed.
  args.engine = "reference";
  args.groups = w.groups(M);
  return args;
}

namespace {

constexpr std::int32_t not_wanted = -1, per_row = SWITCHBACK_SCALE_PER_ROW,
                       global = SWITCHBACK_SCALE_GLOBAL;

// One pass of switchback_quantize: which results it computes, and from what.
struct Pass {
  std::int32_t dtype = SWITCHBACK_F32;
  std::int32_t q = not_wanted, q_t = not_wanted;  // the kind of scales
  bool blocks = false, column_sums = false, value = false, rotated = false;
  bool column_scales = false, g = false, stochastic = false;
  std::int32_t activation = SWITCHBACK_NO_ACTIVATION;
  std::int32_t rotation = 0;
};
constexpr Pass passes[] = {
    {.q = per_row},
    {.q = global},
    {.q = SWITCHBACK_SCALE_NONE},
    {.q_t = per_row},
    {.q_t = global},
    {.q = per_row, .q_t = per_row},
    {.q = global, .q_t = global},
    {.dtype = SWITCHBACK_BF16, .q_t = per_row, .blocks = true},
    {.q = per_row, .q_t = per_row, .blocks = true, .column_sums = true},
    {.dtype = SWITCHBACK_BF16, .column_sums = true},
    {.q = per_row, .column_sums = true},
    {.dtype = SWITCHBACK_F16, .q = per_row, .column_sums = true, .column_scales = true},
    {.q = per_row, .stochastic = true},
    {.rotated = true, .rotation = 64},
    {.q = per_row, .rotation = 16},
    {.q = per_row, .activation = SWITCHBACK_GELU_TANH, .rotation = 16},
    {.value = true, .activation = SWITCHBACK_GELU_ERF},
    {.q = per_row, .activation = SWITCHBACK_GELU_TANH},
    {.q = per_row, .value = true, .activation = SWITCHBACK_GELU_TANH},
    {.value = true, .g = true, .activation = SWITCHBACK_GELU_TANH},
    {.q = per_row, .value = true, .g = true, .activation = SWITCHBACK_GELU_TANH},
    {.q = per_row,
     .column_sums = true,
     .value = true,
     .g = true,
     .activation = SWITCHBACK_GELU_TANH},
};

switchback_quantize_args arguments(World& w, const Pass& pass, std::int64_t m, std::int64_t k) {
  const auto x = w.input(pass.dtype, m, k);
  auto args = switchback_quantize_args_of(&x);
  if (pass.q != not_wanted) {
    args.q = w.output(SWITCHBACK_S8, m, k);
    args.q_scale = pass.q;
    if (pass.q != SWITCHBACK_SCALE_NONE) args.absmax = w.floats(m);
  }
  if (pass.q_t != not_wanted) {
    const std::int64_t blocks = (m + block_rows - 1) / block_rows;
    args.q_t = w.output(SWITCHBACK_S8, k, pass.blocks ? blocks * block_rows : m);
    args.q_t_scale = pass.q_t;
    // Codes with the global scale share absmax.
    if (pass.q_t != global || pass.q == not_wanted) args.absmax_t = w.floats(blocks * k);
    if (pass.blocks) args.block_rows = block_rows;
  }
  args.accumulate = 1;
  if (pass.column_sums) args.column_sums = w.floats(k);
  if (pass.value) args.value = w.output(pass.dtype, m, k);
  if (pass.rotated) args.rotated = w.output(pass.dtype, m, k);
  if (pass.column_scales) args.column_scales = w.scales(k);
  if (pass.g) args.g = w.input(pass.dtype, m, k);
  args.stochastic = pass.stochastic ? 1 : 0;
  args.activation = pass.activation;
  args.rotation = pass.rotation;
  return args;
}

std::string of_groups(std::int64_t groups) {
  return groups == 0 ? "" : "of groups";
}

Call packing(World& w, const switchback_matrix& b, std::int64_t groups) {
  if (w.packed == nullptr) expect_ok(switchback_packed_weight_create(&w.packed));
  return [=, &w] {
    return switchback_pack_weight(w.context, &b, std::max<std::int64_t>(groups, 1), w.packed,
                                  nullptr);
  };
}

void int8_products(Cases& cases) {
  for (const std::int64_t groups : {std::int64_t{0}, G}) {
    for (const bool packed : {false, true})
      for (const bool sums : {false, true}) {
        const std::string what = of_groups(groups) + (packed ? " packed" : "");
        cases.add_threaded("switchback_gemm", what + (sums ? " sums" : ""), [=](World& w) {
          auto args = gemm_arguments(w, groups, sums);
          if (packed) {
            expect_ok(packing(w, args.b, groups)());
            args.b = {};
            args.packed_b = w.packed;
          }
          w.call = [=, &w] { return switchback_gemm(w.context, &args); };
        });
      }
    // The new packed matrices replace smaller ones, which must remain after a failure.
    cases.add("switchback_pack_weight", of_groups(groups), [=](World& w) {
      constexpr std::int64_t few = 3;
      const std::int64_t count = std::max<std::int64_t>(groups, 1);
      expect_ok(packing(w, w.input(SWITCHBACK_S8, count * few, K), groups)());
      auto args = gemm_arguments(w, groups, true);
      w.call = packing(w, args.b, groups);
      args.b = {};
      args.packed_b = w.packed;
      w.look = [=, &w] { expect_ok(switchback_gemm(w.context, &args)); };
      w.look_unchanged = [=, &w] {
        auto old = args;
        old.d = w.input(SWITCHBACK_S32, M, few);
        expect_ok(switchback_gemm(w.context, &old));
      };
    });
  }
  cases.add("switchback_packed_weight_create", "", [](World& w) {
    w.makes_addresses = true;
    auto** const out = w.result<switchback_packed_weight*>();
    w.call = [=, &w] {
      const switchback_status status = switchback_packed_weight_create(out);
      w.packed = *out;
      return status;
    };
  });
  cases.add("switchback_packed_weight_bytes", "", [](World& w) {
    expect_ok(packing(w, w.input(SWITCHBACK_S8, N, K), 1)());
    auto* const bytes = w.result<std::size_t>();
    w.call = [=, &w] { return switchback_packed_weight_bytes(w.packed, bytes); };
  });
  for (const std::int32_t dtype : {SWITCHBACK_F32, SWITCHBACK_BF16})
    cases.add_threaded("switchback_gemm_blockwise", std::to_string(dtype), [=](World& w) {
      const auto args = blockwise_arguments(w, dtype);
      w.call = [=, &w] { return switchback_gemm_blockwise(w.context, &args); };
    });
}

void floating_products(Cases& cases) {
  const auto add = [&](const char* engine, std::int32_t dtype, std::int64_t m, std::int64_t n,
                       std::int64_t k) {
    const std::string what = std::string(engine) + ", dtype " + std::to_string(dtype);
    cases.add("switchback_gemm_standard", what + ", k " + std::to_string(k), [=](World& w) {
      auto args = standard_arguments(w, dtype, m, n, k);
      args.engine = engine;
      w.call = [=, &w] { return switchback_gemm_standard(w.context, &args); };
    });
  };
  for (const char* const engine : {"", "onednn_matmul", "onednn_sgemm", "openblas", "reference"})
    for (const std::int32_t dtype : {SWITCHBACK_F32, SWITCHBACK_F16})
      add(engine, dtype, M, 70, K);
  // These operands are large enough for several panels of widened elements, of which the last ones
  // are smaller.
  add("onednn_matmul", SWITCHBACK_F16, 2, 300, 9000);
  for (const bool weight_gradient : {false, true})
    cases.add_threaded("switchback_gemm_standard", weight_gradient ? "dW of groups" : "Y of groups",
                       [=](World& w) {
                         const auto args = grouped_standard_arguments(w, weight_gradient);
                         w.call = [=, &w] { return switchback_gemm_standard(w.context, &args); };
                       });
}

}  // namespace

Cases context_cases() {
  Cases cases;
  cases.add("switchback_context_create", "", [](World& w) {
    w.makes_addresses = true;
    switchback_context_destroy(w.context);
    w.context = nullptr;
    auto** const out = w.result<switchback_context*>();
    w.call = [=, &w] {
      auto options = sized<switchback_context_options>();
      options.device = "cpu";
      options.threads = 1;
      const switchback_status status = switchback_context_create(&options, out);
      w.context = *out;
      return status;
    };
  });
  cases.add("switchback_context_get_info", "", [](World& w) {
    w.makes_addresses = true;
    auto* const out = w.result(sized<switchback_context_info>());
    w.call = [=, &w] { return switchback_context_get_info(w.context, out); };
  });
  cases.add("switchback_context_tune_warnings", "", [](World& w) {
    w.makes_addresses = true;
    auto** const out = w.result<const char*>();
    w.call = [=, &w] { return switchback_context_tune_warnings(w.context, out); };
  });
  cases.add("switchback_context_synchronize", "",
            [](World& w) { w.call = [&w] { return switchback_context_synchronize(w.context); }; });
  for (std::int32_t operation = SWITCHBACK_ENGINES_QUANTIZE;
       operation <= SWITCHBACK_ENGINES_GEMM_BLOCKWISE; ++operation)
    cases.add("switchback_engines", std::to_string(operation), [=](World& w) {
      w.makes_addresses = true;
      auto** const out = w.result<const switchback_engine_info*>();
      auto* const count = w.result<std::size_t>(7);
      w.call = [=, &w] { return switchback_engines(w.context, operation, out, count); };
    });
  return cases;
}

Cases quantize_cases() {
  Cases cases;
  // Threads share one long row, and each has some of many rows. (A rotation needs whole groups.)
  for (const std::int64_t m : {1, 150}) {
    for (std::size_t i = 0; i < std::size(passes); ++i) {
      const std::int64_t k = m == 1 ? 8320 : passes[i].rotation != 0 ? 64 : K;
      cases.add_threaded("switchback_quantize", "pass " + std::to_string(i), [=](World& w) {
        const auto args = arguments(w, passes[i], m, k);
        w.call = [=, &w] { return switchback_quantize(w.context, &args); };
      });
    }
    cases.add_threaded("switchback_dequantize_rowwise", "", [=](World& w) {
      const auto q = w.input(SWITCHBACK_S8, m, 8320 / m);
      const float* const absmax = w.scales(m);
      const auto x = w.output(SWITCHBACK_F16, m, 8320 / m);
      w.call = [=, &w] { return switchback_dequantize_rowwise(w.context, &q, absmax, &x); };
    });
    cases.add_threaded("switchback_fingerprint", "", [=](World& w) {
      const auto x = w.input(SWITCHBACK_F32, m, 8320 / m);
      auto* const out = w.result<std::array<std::uint64_t, 2>>();
      w.call = [=, &w] { return switchback_fingerprint(w.context, &x, out->data()); };
    });
  }
  cases.add_threaded("switchback_grouped_quantize_rowwise", "", [](World& w) {
    const auto x = w.input(SWITCHBACK_BF16, T, K);
    const auto* const groups = w.groups(M, T);
    const auto q = w.output(SWITCHBACK_S8, M, K);
    float* const absmax = w.floats(M);
    w.call = [=, &w] {
      return switchback_grouped_quantize_rowwise(w.context, &x, groups, &q, absmax);
    };
  });
  return cases;
}

Cases product_cases() {
  Cases cases;
  int8_products(cases);
  floating_products(cases);
  cases.add_threaded("switchback_combine", "", [](World& w) {
    const auto y = w.input(SWITCHBACK_F16, M, N);
    const auto* const numbers = w.integers({0, 1, 2, 3, -1, 5, 6, 7, 8, -1, 10, 11});
    const switchback_matrix slots = {const_cast<std::int32_t*>(numbers), SWITCHBACK_S32, 6, 2, 2};
    const auto weights = w.input(SWITCHBACK_F32, 6, 2);
    const auto out = w.output(SWITCHBACK_F16, 6, N);
    w.call = [=, &w] { return switchback_combine(w.context, &y, &slots, &weights, &out); };
  });
  return cases;
}

}  // namespace switchback::test
