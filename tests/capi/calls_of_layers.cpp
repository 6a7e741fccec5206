// SPDX-License-Identifier: Apache-2.0
// Calls of linear layers, with and without groups of rows, and of fragmented layers.
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "capi/calls.hpp"

namespace switchback::test {

const std::vector<LayerKind> layer_kinds = {
    {.mode = SWITCHBACK_STANDARD},
    {.mode = SWITCHBACK_ROWWISE},
    {.mode = SWITCHBACK_ROWWISE_SHARED},
    {.mode = SWITCHBACK_GLOBAL},
    {.mode = SWITCHBACK_GLOBAL_MEM_EFFICIENT},
    {.mode = SWITCHBACK_AUTO},
    {.mode = SWITCHBACK_STANDARD, .dtype = SWITCHBACK_F16, .activation = SWITCHBACK_GELU_TANH},
    {.mode = SWITCHBACK_GLOBAL, .dtype = SWITCHBACK_BF16, .activation = SWITCHBACK_GELU_TANH},
    {.mode = SWITCHBACK_GLOBAL_MEM_EFFICIENT, .activation = SWITCHBACK_GELU_TANH},
    {.dw = SWITCHBACK_DW_INT8_BLOCK},
    {.activation = SWITCHBACK_GELU_TANH, .dw = SWITCHBACK_DW_INT8_BLOCK, .rotation = 4},
};
const std::vector<LayerKind> grouped_kinds = {
    {.mode = SWITCHBACK_STANDARD},
    {.mode = SWITCHBACK_ROWWISE},
    {.mode = SWITCHBACK_ROWWISE_SHARED},
    {.mode = SWITCHBACK_GLOBAL},
    {.mode = SWITCHBACK_GLOBAL_MEM_EFFICIENT},
    {.mode = SWITCHBACK_STANDARD, .activation = SWITCHBACK_GELU_TANH},
    {.dw = SWITCHBACK_DW_INT8_BLOCK},
    {.activation = SWITCHBACK_GELU_TANH, .dw = SWITCHBACK_DW_INT8_BLOCK, .rotation = 4},
};

std::string name_of(const LayerKind& kind) {
  return "mode " + std::to_string(kind.mode) + ", dtype " + std::to_string(kind.dtype) +
         ", activation " + std::to_string(kind.activation) + ", dw " + std::to_string(kind.dw) +
         ", rotation " + std::to_string(kind.rotation);
}

namespace {
constexpr std::int64_t group_count = 3;
}  // namespace

LayerCalls::LayerCalls(World& w, const LayerKind& kind_, bool grouped)
    : world(&w),
      kind(kind_),
      groups(grouped ? w.groups(20, 9) : nullptr),
      // With int8 dW these are two blocks of rows.
      rows(!grouped && kind.dw == SWITCHBACK_DW_INT8_BLOCK ? 150 : 20),
      weight(w.input(kind.dtype, (grouped ? group_count : 1) * N, K)),
      bias(w.input(SWITCHBACK_F32, grouped ? group_count : 1, N)),
      x(w.input(kind.dtype, grouped ? 9 : rows, K)),
      y(w.output(kind.dtype, rows, N)) {
  const auto of_kind = options(kind, grouped);
  expect_ok(switchback_linear_create(w.context, &of_kind, &w.layer));
  expect_ok(switchback_linear_set_weight(w.layer, &weight, &bias));
}

switchback_linear_options LayerCalls::options(const LayerKind& kind, bool grouped) {
  auto options = sized<switchback_linear_options>();
  options.in_features = K;
  options.out_features = N;
  options.groups = grouped ? group_count : 0;
  options.mode = kind.mode;
  options.dtype = kind.dtype;
  // Groups in mode standard must not run other libraries, which allocate where no failure is
  // allowed.
  if (grouped && kind.mode == SWITCHBACK_STANDARD) options.engine = "reference";
  options.activation = kind.activation;
  options.dw = kind.dw;
  options.dw_block_rows = block_rows;
  options.rotation = kind.rotation;
  return options;
}

switchback_status LayerCalls::forward(std::int32_t save) const {
  return groups == nullptr ? switchback_linear_forward(world->layer, &x, &y, save, nullptr)
                           : switchback_linear_forward_groups(world->layer, groups, &x, &y, save);
}

switchback_status LayerCalls::backward(const switchback_linear_grads& grads) const {
  return switchback_linear_backward(world->layer, &grads, nullptr);
}

switchback_status LayerCalls::backward_from_x(const switchback_linear_grads& grads) const {
  if (groups != nullptr) return switchback_linear_backward_groups(world->layer, &grads, groups, &x);
  auto kept = sized<switchback_kept_input>();
  kept.x = x;
  return switchback_linear_backward(world->layer, &grads, &kept);
}

switchback_linear_grads LayerCalls::gradients(bool dx, bool dw) const {
  const bool grouped = groups != nullptr;
  auto grads = sized<switchback_linear_grads>();
  grads.accumulate = 1;
  grads.g = world->input(kind.dtype, rows, N);
  if (dx) grads.dx = world->output(kind.dtype, rows, K);
  if (dw && (!grouped || !is_int8(kind.mode) || kind.dw == SWITCHBACK_DW_INT8_BLOCK))
    grads.dw = world->output(SWITCHBACK_F32, (grouped ? group_count : 1) * N, K);
  grads.db = world->output(kind.dtype, grouped ? group_count : 1, N);
  // This mode keeps only codes, which are those of activation(x).
  if (kind.mode == SWITCHBACK_GLOBAL_MEM_EFFICIENT && kind.activation != 0)
    grads.dx_of_activation = 1;
  return grads;
}

FragmentedCalls::FragmentedCalls(World& w, std::int32_t mode)
    : world(&w),
      weights(sized<switchback_fragmented_weights>()),
      x(w.input(SWITCHBACK_F32, B, K)),
      y(w.output(SWITCHBACK_F32, B, N)) {
  weights.weight = w.input(SWITCHBACK_F32, N, K);
  weights.selector = w.input(SWITCHBACK_F32, F, K / F);
  weights.down = w.input(SWITCHBACK_F32, R, K);
  weights.up = w.input(SWITCHBACK_F32, N, R);
  const auto of_mode = options(mode);
  expect_ok(switchback_fragmented_linear_create(w.context, &of_mode, &w.fragmented_layer));
  expect_ok(switchback_fragmented_linear_set_weights(w.fragmented_layer, &weights));
}

switchback_fragmented_linear_options FragmentedCalls::options(std::int32_t mode) {
  auto options = sized<switchback_fragmented_linear_options>();
  options.in_features = K;
  options.out_features = N;
  options.fragments = F;
  options.rank = R;
  options.mode = mode;
  // Mode standard must not run other libraries, which allocate in their own ways.
  if (mode == SWITCHBACK_STANDARD) options.engine = "reference";
  return options;
}

switchback_status FragmentedCalls::forward(std::int32_t save) const {
  return switchback_fragmented_linear_forward(world->fragmented_layer, &x, &y, save);
}

switchback_status FragmentedCalls::backward(const switchback_fragmented_linear_grads& grads,
                                            bool from_x) const {
  return switchback_fragmented_linear_backward(world->fragmented_layer, &grads,
                                               from_x ? &x : nullptr);
}

switchback_fragmented_linear_grads FragmentedCalls::gradients(bool of_weights) const {
  auto grads = sized<switchback_fragmented_linear_grads>();
  grads.g = world->input(SWITCHBACK_F32, B, N);
  grads.dx = world->output(SWITCHBACK_F32, B, K);
  grads.dselector = world->output(SWITCHBACK_F32, F, K / F);
  if (!of_weights) return grads;
  grads.dweight = world->output(SWITCHBACK_F32, N, K);
  grads.ddown = world->output(SWITCHBACK_F32, R, K);
  grads.dup = world->output(SWITCHBACK_F32, N, R);
  return grads;
}

namespace {

// The codes of x, as a caller keeps them for a backward.
switchback_kept_input codes_of_x(const LayerCalls& layer, bool written) {
  World& w = *layer.world;
  const bool in_blocks = layer.kind.dw == SWITCHBACK_DW_INT8_BLOCK;
  constexpr std::int64_t blocks = 2;
  const std::int64_t m = in_blocks ? layer.K : layer.rows;
  const std::int64_t k = in_blocks ? blocks * layer.block_rows : layer.K;
  auto kept = sized<switchback_kept_input>();
  kept.x = written ? w.output(SWITCHBACK_S8, m, k) : w.input(SWITCHBACK_S8, m, k);
  kept.absmax = written ? w.floats(blocks * layer.K) : w.scales(blocks * layer.K);
  kept.in_blocks = in_blocks ? 1 : 0;
  return kept;
}

// Creates a layer, and makes its state visible after the call with a forward.
LayerCalls shown_layer(World& w, const LayerKind& kind, bool grouped) {
  LayerCalls layer(w, kind, grouped);
  w.look = [=] { expect_ok(layer.forward(SWITCHBACK_SAVE_NOTHING)); };
  return layer;
}

void add_calls_of_state(Cases& cases, const LayerKind& kind, bool grouped,
                        const std::string& what) {
  cases.add("switchback_linear_create", what, [=](World& w) {
    w.makes_addresses = true;
    auto** const out = w.result<switchback_linear*>();
    w.call = [=, &w] {
      const auto options = LayerCalls::options(kind, grouped);
      const switchback_status status = switchback_linear_create(w.context, &options, out);
      w.layer = *out;
      return status;
    };
  });
  cases.add("switchback_linear_set_weight", what, [=](World& w) {
    const LayerCalls layer = shown_layer(w, kind, grouped);
    const auto other = w.input(kind.dtype, layer.weight.rows, layer.K);
    w.call = [=, &w] { return switchback_linear_set_weight(w.layer, &other, &layer.bias); };
  });
  const std::pair<const char*, switchback_status (*)(switchback_linear*)> calls[] = {
      {"switchback_linear_weight_updated", switchback_linear_weight_updated},
      {"switchback_linear_weight_may_have_changed", switchback_linear_weight_may_have_changed},
      {"switchback_linear_prepare_for_eval", switchback_linear_prepare_for_eval}};
  for (const auto& [name, call] : calls)
    cases.add(name, what, [=, call = call](World& w) {
      shown_layer(w, kind, grouped);
      w.call = [=, &w] { return call(w.layer); };
    });
  if (kind.mode != SWITCHBACK_AUTO)
    cases.add("switchback_linear_share", what, [=](World& w) {
      shown_layer(w, kind, grouped);
      w.makes_addresses = true;
      expect_ok(switchback_linear_prepare_for_eval(w.layer));
      auto** const out = w.result<switchback_linear*>();
      w.call = [=, &w] {
        const switchback_status status = switchback_linear_share(w.layer, w.context, out);
        if (status == SWITCHBACK_OK) switchback_linear_destroy(*out);
        return status;
      };
    });
  cases.add("switchback_linear_pass_modes", what, [=](World& w) {
    const LayerCalls layer(w, kind, grouped);
    auto* const forward = w.result<std::int32_t>(77);
    auto* const dx = w.result<std::int32_t>(77);
    w.call = [=, &w] { return switchback_linear_pass_modes(w.layer, 20, 1, forward, dx); };
  });
  cases.add("switchback_linear_get_info", what, [=](World& w) {
    const LayerCalls layer(w, kind, grouped);
    auto* const out = w.result(sized<switchback_layer_info>());
    w.call = [=, &w] { return switchback_linear_get_info(w.layer, out); };
  });
  if (!is_int8(kind.mode)) return;
  const bool one_scale =
      kind.mode == SWITCHBACK_GLOBAL || kind.mode == SWITCHBACK_GLOBAL_MEM_EFFICIENT;
  const auto scales_of = [=](const LayerCalls& layer) {
    return one_scale ? layer.weight.rows / layer.N : layer.weight.rows;
  };
  cases.add("switchback_linear_set_quantized_weight", what, [=](World& w) {
    const LayerCalls layer = shown_layer(w, kind, grouped);
    const auto codes = w.input(SWITCHBACK_S8, layer.weight.rows, layer.K);
    const float* const absmax = w.scales(scales_of(layer));
    w.call = [=, &w] {
      return switchback_linear_set_quantized_weight(w.layer, &codes, absmax, scales_of(layer),
                                                    &layer.bias);
    };
  });
  cases.add("switchback_linear_quantized_weight", what, [=](World& w) {
    const LayerCalls layer(w, kind, grouped);
    expect_ok(switchback_linear_prepare_for_eval(w.layer));
    const auto codes = w.output(SWITCHBACK_S8, layer.weight.rows, layer.K);
    float* const absmax = w.floats(scales_of(layer));
    w.call = [=, &w] {
      return switchback_linear_quantized_weight(w.layer, &codes, absmax, scales_of(layer));
    };
  });
}

struct BackwardKind {
  const char* what;
  bool dx, dw;
  bool y_activation;
  bool warm;  // a forward and a backward ran before the call
  std::int32_t threads;
};
constexpr BackwardKind backward_kinds[] = {
    {"all", true, true, false, false, 1},
    {"all with y_activation", true, true, true, false, 2},
    {"dw and db", false, true, false, false, 1},
    {"dx and db with y_activation again", true, false, true, true, 1},
};

void add_steps(Cases& cases, const LayerKind& kind, bool grouped, const std::string& what) {
  // A backward after the forward shows whether the forward saved the right data.
  cases.add(grouped ? "switchback_linear_forward_groups" : "switchback_linear_forward", what,
            [=](World& w) {
              const LayerCalls layer(w, kind, grouped);
              const auto grads = layer.gradients(true, true);
              w.call = [=] { return layer.forward(SWITCHBACK_SAVE_COPY); };
              w.look = [=] { expect_ok(layer.backward(grads)); };
            });
  for (const BackwardKind& of : backward_kinds)
    cases.add(
        "switchback_linear_backward", what + ", " + of.what,
        [=](World& w) {
          const LayerCalls layer(w, kind, grouped);
          auto grads = layer.gradients(of.dx, of.dw);
          if (of.y_activation) {
            grads.y = w.input(kind.dtype, layer.rows, layer.N);
            grads.y_activation = SWITCHBACK_GELU_ERF;
          }
          for (int step = 0; step < (of.warm ? 2 : 1); ++step) {
            expect_ok(layer.forward(SWITCHBACK_SAVE_COPY));
            if (of.warm && step == 0) expect_ok(layer.backward(grads));
          }
          w.call = [=] { return layer.backward(grads); };
        },
        of.threads);
  if (kind.mode != SWITCHBACK_GLOBAL_MEM_EFFICIENT || grouped)
    cases.add(grouped ? "switchback_linear_backward_groups" : "switchback_linear_backward",
              what + ", kept x", [=](World& w) {
                const LayerCalls layer(w, kind, grouped);
                const auto grads = layer.gradients(true, true);
                w.call = [=] { return layer.backward_from_x(grads); };
              });
  if (grouped || !is_int8(kind.mode)) return;
  cases.add("switchback_linear_forward", what + ", codes", [=](World& w) {
    const LayerCalls layer(w, kind, false);
    const auto kept = codes_of_x(layer, true);
    w.call = [=, &w] {
      return switchback_linear_forward(w.layer, &layer.x, &layer.y, SWITCHBACK_SAVE_CALLER, &kept);
    };
  });
  cases.add("switchback_linear_backward", what + ", kept codes", [=](World& w) {
    const LayerCalls layer(w, kind, false);
    auto grads = layer.gradients(true, true);
    grads.dx_of_activation = kind.activation == SWITCHBACK_NO_ACTIVATION ? 0 : 1;
    const auto kept = codes_of_x(layer, false);
    w.call = [=, &w] { return switchback_linear_backward(w.layer, &grads, &kept); };
  });
}

}  // namespace

Cases layer_cases() {
  Cases cases;
  for (const bool grouped : {false, true})
    for (const LayerKind& kind : grouped ? grouped_kinds : layer_kinds) {
      const std::string what = name_of(kind) + (grouped ? ", groups" : "");
      add_calls_of_state(cases, kind, grouped, what);
      add_steps(cases, kind, grouped, what);
    }
  return cases;
}

Cases fragmented_cases() {
  Cases cases;
  for (const std::int32_t mode : {SWITCHBACK_STANDARD, SWITCHBACK_ROWWISE, SWITCHBACK_GLOBAL}) {
    const std::string what = "mode " + std::to_string(mode);
    // In the int8 modes the gradients of weights are floating point products, which other libraries
    // compute.
    const bool of_weights = mode == SWITCHBACK_STANDARD;
    cases.add("switchback_fragmented_linear_create", what, [=](World& w) {
      w.makes_addresses = true;
      auto** const out = w.result<switchback_fragmented_linear*>();
      w.call = [=, &w] {
        const auto options = FragmentedCalls::options(mode);
        const auto status = switchback_fragmented_linear_create(w.context, &options, out);
        w.fragmented_layer = *out;
        return status;
      };
    });
    using Function = std::function<switchback_status(World&, const FragmentedCalls&)>;
    const std::pair<const char*, Function> calls[] = {
        {"switchback_fragmented_linear_set_weights",
         [](World& w, const FragmentedCalls& layer) {
           return switchback_fragmented_linear_set_weights(w.fragmented_layer, &layer.weights);
         }},
        {"switchback_fragmented_linear_weights_updated",
         [](World& w, const FragmentedCalls&) {
           return switchback_fragmented_linear_weights_updated(w.fragmented_layer);
         }},
        {"switchback_fragmented_linear_prepare_for_eval",
         [](World& w, const FragmentedCalls&) {
           return switchback_fragmented_linear_prepare_for_eval(w.fragmented_layer);
         }},
        {"switchback_fragmented_linear_forward_hard", [](World& w, const FragmentedCalls& layer) {
           return switchback_fragmented_linear_forward_hard(w.fragmented_layer, &layer.x, &layer.y);
         }}};
    for (const auto& [name, call] : calls)
      cases.add(name, what, [=, call = call](World& w) {
        const FragmentedCalls layer(w, mode);
        w.call = [=, &w] { return call(w, layer); };
        w.look = [=, &w] {
          expect_ok(
              switchback_fragmented_linear_forward_hard(w.fragmented_layer, &layer.x, &layer.y));
        };
      });
    cases.add("switchback_fragmented_linear_get_info", what, [=](World& w) {
      const FragmentedCalls layer(w, mode);
      auto* const out = w.result(sized<switchback_layer_info>());
      w.call = [=, &w] { return switchback_fragmented_linear_get_info(w.fragmented_layer, out); };
    });
    cases.add("switchback_fragmented_linear_forward", what, [=](World& w) {
      const FragmentedCalls layer(w, mode);
      const auto grads = layer.gradients(of_weights);
      w.call = [=] { return layer.forward(SWITCHBACK_SAVE_COPY); };
      w.look = [=] { expect_ok(layer.backward(grads, false)); };
    });
    for (const bool from_x : {false, true})
      cases.add("switchback_fragmented_linear_backward", what + (from_x ? ", kept x" : ""),
                [=](World& w) {
                  const FragmentedCalls layer(w, mode);
                  const auto grads = layer.gradients(of_weights);
                  if (!from_x) expect_ok(layer.forward(SWITCHBACK_SAVE_COPY));
                  w.call = [=] { return layer.backward(grads, from_x); };
                });
  }
  return cases;
}

}  // namespace switchback::test
