// SPDX-License-Identifier: Apache-2.0
// Calls every function of the C ABI that returns a status, with its first, second, ... allocation
// failing: only that one, or all from there on. Each time the status is out_of_memory, and every
// byte of every output is unchanged. The same call, repeated, gives the same result as without a
// failure. A function that the header declares and that has no case here fails the test.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <memory>
#include <regex>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "capi/failing_allocations.hpp"
#include "capi/out_of_memory_world.hpp"
#include "switchback/switchback.h"

namespace switchback::test {
namespace {

// Runs f in a new thread, so that libraries allocate again what they keep for each thread.
template <class F>
void in_new_thread(const F& f) {
  std::thread(f).join();
}

// Runs the case while only `allowed` allocations succeed. Returns false if no allocation was
// refused.
bool run_with(const Case& c, const Bytes& want, long allowed, Refuse how) {
  bool was_refused = false;
  in_new_thread([&] {
    SCOPED_TRACE(c.function + " " + c.what + ", allocation " + std::to_string(allowed) +
                 (how == Refuse::once ? " alone" : " and all after it"));
    World world(c.threads);
    c.prepare(world);
    const Bytes before = world.written();
    refuse_allocations(allowed, how);
    switchback_status status = world.call();
    was_refused = stop_refusing();
    // A call may succeed without an optional allocation; its results must then be the usual ones.
    if (was_refused && status != SWITCHBACK_OK) {
      EXPECT_EQ(status, SWITCHBACK_OUT_OF_MEMORY) << switchback_last_error();
      EXPECT_STRNE(switchback_last_error(), "");
      EXPECT_TRUE(world.written() == before) << "an output was changed";
      world.look_unchanged();
      status = world.call();
    }
    EXPECT_EQ(status, SWITCHBACK_OK) << switchback_last_error();
    world.look();
    EXPECT_TRUE(world.makes_addresses || world.written() == want)
        << "the results are not those of an undisturbed call";
  });
  return was_refused;
}

void sweep(const Case& c) {
  Bytes want;
  in_new_thread([&] {
    World world(c.threads);
    c.prepare(world);
    expect_ok(world.call());
    world.look();
    want = world.written();
  });
  for (const Refuse how : {Refuse::once, Refuse::from_then})
    for (long allowed = how == Refuse::once ? 0 : sample_step / 2;; allowed += sample_step) {
      ASSERT_LT(allowed, 2000) << "it never succeeds";
      if (!run_with(c, want, allowed, how) || ::testing::Test::HasFailure()) break;
    }
}

constexpr std::int64_t M = 20, N = 170, K = 130;

void quantize_cases(std::vector<Case>& cases) {
  const auto add = [&](const std::string& name, const std::string& what,
                       const std::function<void(World&)>& prepare) {
    cases.push_back({name, what + " of one thread", prepare, 1});
    cases.push_back({name, what + " of two threads", prepare, 2});
  };
  // Both one long row, which threads share, and several rows are quantized.
  for (const std::int64_t rows : {std::int64_t{1}, M}) {
    const std::int64_t cols = rows == M ? K : 8320;
    // Adds a case that quantizes x with this element type. fill_in() adds the other arguments.
    using Args = switchback_quantize_args;
    const auto quantize = [&](const std::string& what, std::int32_t dtype, std::int64_t width,
                              auto fill_in) {
      add("switchback_quantize", what, [=](World& w) {
        const auto x = w.input(dtype, rows, width);
        Args args = switchback_quantize_args_of(&x);
        fill_in(w, args);
        w.call = [=, &w] { return switchback_quantize(w.context, &args); };
      });
    };
    const auto add_q = [=](World& w, Args& args, std::int32_t scale) {
      args.q = w.output(SWITCHBACK_S8, rows, args.x.cols);
      args.absmax = w.floats(scale == SWITCHBACK_SCALE_GLOBAL ? 1 : rows);
      args.q_scale = scale;
    };
    const auto add_q_t = [=](World& w, Args& args, std::int32_t scale) {
      args.q_t = w.output(SWITCHBACK_S8, args.x.cols, rows);
      args.q_t_scale = scale;
      if (scale == SWITCHBACK_SCALE_PER_ROW) args.absmax_t = w.floats(args.x.cols);
    };
    const auto add_sums = [=](World& w, Args& args) {
      args.column_sums = w.floats(args.x.cols);
      args.accumulate = 1;
    };
    quantize("q with row scales", SWITCHBACK_F32, cols,
             [=](World& w, Args& args) { add_q(w, args, SWITCHBACK_SCALE_PER_ROW); });
    quantize("q with a global scale", SWITCHBACK_F32, cols,
             [=](World& w, Args& args) { add_q(w, args, SWITCHBACK_SCALE_GLOBAL); });
    quantize("q_t with row scales", SWITCHBACK_F32, cols,
             [=](World& w, Args& args) { add_q_t(w, args, SWITCHBACK_SCALE_PER_ROW); });
    quantize("q_t with a global scale", SWITCHBACK_F32, cols, [=](World& w, Args& args) {
      add_q_t(w, args, SWITCHBACK_SCALE_GLOBAL);
      args.absmax_t = w.floats(1);
    });
    quantize("q and column_sums", SWITCHBACK_F32, cols, [=](World& w, Args& args) {
      add_q(w, args, SWITCHBACK_SCALE_PER_ROW);
      add_sums(w, args);
    });
    quantize("q, column_scales and column_sums", SWITCHBACK_F16, cols, [=](World& w, Args& args) {
      add_q(w, args, SWITCHBACK_SCALE_PER_ROW);
      args.column_scales = w.floats(cols);
      add_sums(w, args);
    });
    quantize("column_sums", SWITCHBACK_BF16, cols,
             [=](World& w, Args& args) { add_sums(w, args); });
    quantize("q and q_t with row scales", SWITCHBACK_F32, cols, [=](World& w, Args& args) {
      add_q(w, args, SWITCHBACK_SCALE_PER_ROW);
      add_q_t(w, args, SWITCHBACK_SCALE_PER_ROW);
    });
    quantize("q and q_t with a global scale", SWITCHBACK_F32, cols, [=](World& w, Args& args) {
      add_q(w, args, SWITCHBACK_SCALE_GLOBAL);
      add_q_t(w, args, SWITCHBACK_SCALE_GLOBAL);
    });
    quantize("q without scales", SWITCHBACK_F32, cols, [=](World& w, Args& args) {
      args.q = w.output(SWITCHBACK_S8, rows, cols);
      args.q_scale = SWITCHBACK_SCALE_NONE;
    });
    quantize("stochastic q", SWITCHBACK_F32, cols, [=](World& w, Args& args) {
      add_q(w, args, SWITCHBACK_SCALE_PER_ROW);
      args.stochastic = 1;
    });
    add("switchback_dequantize_rowwise", "", [=](World& w) {
      const auto q = w.input(SWITCHBACK_S8, rows, cols);
      const float* const absmax = w.scales(rows);
      const auto x = w.output(SWITCHBACK_F16, rows, cols);
      w.call = [=, &w] { return switchback_dequantize_rowwise(w.context, &q, absmax, &x); };
    });
    add("switchback_fingerprint", "", [=](World& w) {
      const auto x = w.input(SWITCHBACK_F32, rows, cols);
      auto* const out = w.result<std::array<std::uint64_t, 2>>();
      w.call = [=, &w] { return switchback_fingerprint(w.context, &x, out->data()); };
    });
    quantize("activation", SWITCHBACK_F32, cols, [=](World& w, Args& args) {
      args.activation = SWITCHBACK_GELU_ERF;
      args.value = w.output(SWITCHBACK_F32, rows, cols);
    });
    quantize("activation's gradient", SWITCHBACK_F32, cols, [=](World& w, Args& args) {
      args.g = w.input(SWITCHBACK_F32, rows, cols);
      args.activation = SWITCHBACK_GELU_TANH;
      args.value = w.output(SWITCHBACK_F32, rows, cols);
    });
    quantize("rotation", SWITCHBACK_F32, 64, [=](World& w, Args& args) {
      args.rotation = 64;
      args.rotated = w.output(SWITCHBACK_F32, rows, 64);
    });
    for (const std::int32_t activation : {SWITCHBACK_NO_ACTIVATION, SWITCHBACK_GELU_TANH})
      quantize("rotation and q", SWITCHBACK_F32, 64, [=](World& w, Args& args) {
        args.activation = activation;
        args.rotation = 16;
        add_q(w, args, SWITCHBACK_SCALE_PER_ROW);
      });
    for (const bool all : {false, true}) {
      quantize("activation and q", SWITCHBACK_F32, cols, [=](World& w, Args& args) {
        args.activation = SWITCHBACK_GELU_TANH;
        add_q(w, args, SWITCHBACK_SCALE_PER_ROW);
        if (all) args.value = w.output(SWITCHBACK_F32, rows, cols);
      });
      quantize("activation's gradient and q", SWITCHBACK_F32, cols, [=](World& w, Args& args) {
        args.g = w.input(SWITCHBACK_F32, rows, cols);
        args.activation = SWITCHBACK_GELU_TANH;
        args.value = w.output(SWITCHBACK_F32, rows, cols);
        add_q(w, args, SWITCHBACK_SCALE_PER_ROW);
        if (all) add_sums(w, args);
      });
    }
  }
}

void product_cases(std::vector<Case>& cases) {
  cases.push_back({"switchback_packed_weight_create", "", [](World& w) {
                     w.makes_addresses = true;
                     auto** const out = w.result<switchback_packed_weight*>();
                     w.call = [=, &w] {
                       const switchback_status status = switchback_packed_weight_create(out);
                       w.packed = *out;
                       return status;
                     };
                   }});
  const auto pack = [](World& w, std::int64_t rows) {
    const auto b = w.input(SWITCHBACK_S8, rows, K);
    if (w.packed == nullptr) expect_ok(switchback_packed_weight_create(&w.packed));
    return [b, &w] { return switchback_pack_weight(w.context, &b, 1, w.packed, nullptr); };
  };
  cases.push_back({"switchback_packed_weight_bytes", "", [=](World& w) {
                     expect_ok(pack(w, N)());
                     auto* const bytes = w.result<std::size_t>();
                     w.call = [=, &w] { return switchback_packed_weight_bytes(w.packed, bytes); };
                   }});
  const auto sums_of_packed = [](World& w, const switchback_matrix& d) {
    switchback_gemm_args args = {};
    args.struct_size = sizeof(args);
    args.a = w.input(SWITCHBACK_S8, M, K);
    args.packed_b = w.packed;
    args.d = d;
    return args;
  };
  // The new packed matrix replaces a smaller one, which must remain after a failure.
  cases.push_back({"switchback_pack_weight", "", [=](World& w) {
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
  for (const std::int32_t threads : {1, 2}) {
    cases.push_back({"switchback_gemm", "of int32 sums",
                     [](World& w) {
                       const auto a = w.input(SWITCHBACK_S8, M, K);
                       const auto b = w.input(SWITCHBACK_S8, N, K);
                       const auto d = w.output(SWITCHBACK_S32, M, N);
                       w.call = [=, &w] { return switchback_gemm_s8s8s32(w.context, &a, &b, &d); };
                     },
                     threads});
    cases.push_back({"switchback_gemm", "of int32 sums, packed",
                     [=](World& w) {
                       expect_ok(pack(w, N)());
                       const auto args = sums_of_packed(w, w.output(SWITCHBACK_S32, M, N));
                       w.call = [=, &w] { return switchback_gemm(w.context, &args); };
                     },
                     threads});
    cases.push_back({"switchback_gemm", "",
                     [](World& w) {
                       switchback_gemm_args args = {};
                       args.struct_size = sizeof(args);
                       args.a = w.input(SWITCHBACK_S8, M, K);
                       args.b = w.input(SWITCHBACK_S8, N, K);
                       args.d = w.output(SWITCHBACK_BF16, M, N);
                       args.absmax_a = w.scales(M);
                       args.absmax_b = w.scales(N);
                       args.absmax_b_count = N;
                       args.bias = w.scales(N);
                       w.call = [=, &w] { return switchback_gemm(w.context, &args); };
                     },
                     threads});
  }
  // These operands are large enough for several panels of widened elements, of which the last ones
  // are smaller.
  for (const char* engine : {"", "onednn_matmul", "onednn_sgemm", "openblas", "reference"})
    for (const std::int32_t dtype : {SWITCHBACK_F32, SWITCHBACK_F16})
      for (const bool panels : {false, true}) {
        if (panels && (dtype == SWITCHBACK_F32 || std::string(engine) != "onednn_matmul")) continue;
        cases.push_back({"switchback_gemm_standard",
                         std::string(engine) + (dtype == SWITCHBACK_F32 ? " f32" : " f16") +
                             (panels ? " in panels" : ""),
                         [=](World& w) {
                           const std::int64_t n = panels ? 300 : 70;
                           const std::int64_t k = panels ? 9000 : K;
                           switchback_gemm_standard_args args = {};
                           args.struct_size = sizeof(args);
                           const std::int64_t m = panels ? 2 : M;
                           args.a = w.input(dtype, m, k);
                           args.b = w.input(dtype, k, n);
                           args.d = w.output(SWITCHBACK_F32, m, n);
                           args.bias = w.scales(n);
                           args.accumulate = 1;
                           args.engine = engine;
                           w.call = [=, &w] { return switchback_gemm_standard(w.context, &args); };
                         }});
      }
}

void context_cases(std::vector<Case>& cases) {
  cases.push_back({"switchback_context_create", "", [](World& w) {
                     w.makes_addresses = true;
                     switchback_context_destroy(w.context);
                     w.context = nullptr;
                     auto** const out = w.result<switchback_context*>();
                     w.call = [=, &w] {
                       switchback_context_options options = {};
                       options.struct_size = sizeof(options);
                       options.device = "cpu";
                       options.threads = 1;
                       const switchback_status status = switchback_context_create(&options, out);
                       w.context = *out;
                       return status;
                     };
                   }});
  const auto add = [&](std::string name, auto function, auto initial) {
    cases.push_back({name, "", [=](World& w) {
                       w.makes_addresses = true;
                       auto* const out = w.result(initial);
                       w.call = [=, &w] { return function(w.context, out); };
                     }});
  };
  const char* const text = nullptr;
  switchback_context_info info = {};
  info.struct_size = sizeof(info);
  add("switchback_context_get_info", switchback_context_get_info, info);
  add("switchback_context_tune_warnings", switchback_context_tune_warnings, text);
  cases.push_back({"switchback_context_synchronize", "", [](World& w) {
                     w.call = [&w] { return switchback_context_synchronize(w.context); };
                   }});
  for (const std::int32_t operation :
       {SWITCHBACK_ENGINES_QUANTIZE, SWITCHBACK_ENGINES_GEMM, SWITCHBACK_ENGINES_GEMM_STANDARD,
        SWITCHBACK_ENGINES_GEMM_BLOCKWISE})
    cases.push_back({"switchback_engines", std::to_string(operation), [=](World& w) {
                       w.makes_addresses = true;
                       auto** const out = w.result<const switchback_engine_info*>();
                       auto* const count = w.result<std::size_t>(7);
                       w.call = [=, &w] {
                         return switchback_engines(w.context, operation, out, count);
                       };
                     }});
}

constexpr std::int32_t int8_modes[] = {SWITCHBACK_ROWWISE, SWITCHBACK_GLOBAL,
                                       SWITCHBACK_GLOBAL_MEM_EFFICIENT};
constexpr std::int32_t modes[] = {SWITCHBACK_STANDARD, SWITCHBACK_ROWWISE, SWITCHBACK_GLOBAL,
                                  SWITCHBACK_GLOBAL_MEM_EFFICIENT, SWITCHBACK_AUTO};

std::string in_mode(std::int32_t mode) {
  return "in mode " + std::to_string(mode);
}

void layer_cases(std::vector<Case>& cases) {
  cases.push_back({"switchback_linear_create", "", [](World& w) {
                     w.makes_addresses = true;
                     auto** const out = w.result<switchback_linear*>();
                     w.call = [=, &w] {
                       switchback_linear_options options = {};
                       options.struct_size = sizeof(options);
                       options.in_features = K;
                       options.out_features = N;
                       options.mode = SWITCHBACK_ROWWISE;
                       options.engine = "reference";
                       const switchback_status status =
                           switchback_linear_create(w.context, &options, out);
                       w.layer = *out;
                       return status;
                     };
                   }});
  // A forward over new rows makes the layer's state visible after the call.
  const auto show_by_forward = [](World& w) {
    const auto x = w.input(SWITCHBACK_F32, M, K);
    const auto y = w.output(SWITCHBACK_F32, M, N);
    w.look = [=, &w] { expect_ok(switchback_linear_forward(w.layer, &x, &y, 0, nullptr)); };
  };
  for (const std::int32_t mode : modes) {
    const auto add = [&](std::string name, std::function<void(World&)> prepare) {
      cases.push_back({name, in_mode(mode), [=](World& w) {
                         w.make_layer(mode, SWITCHBACK_F32, K, N);
                         prepare(w);
                       }});
    };
    add("switchback_linear_set_weight", [=](World& w) {
      show_by_forward(w);
      const auto other = w.input(SWITCHBACK_F32, N, K);
      w.call = [=, &w] { return switchback_linear_set_weight(w.layer, &other, &w.bias); };
    });
    add("switchback_linear_weight_updated", [=](World& w) {
      show_by_forward(w);
      w.call = [&w] { return switchback_linear_weight_updated(w.layer); };
    });
    add("switchback_linear_weight_may_have_changed", [=](World& w) {
      show_by_forward(w);
      w.call = [&w] { return switchback_linear_weight_may_have_changed(w.layer); };
    });
    add("switchback_linear_prepare_for_eval", [=](World& w) {
      show_by_forward(w);
      w.call = [&w] { return switchback_linear_prepare_for_eval(w.layer); };
    });
    if (mode != SWITCHBACK_AUTO) {
      add("switchback_linear_share", [=](World& w) {
        show_by_forward(w);
        w.makes_addresses = true;
        expect_ok(switchback_linear_prepare_for_eval(w.layer));
        auto** const out = w.result<switchback_linear*>();
        w.call = [=, &w] {
          const switchback_status status = switchback_linear_share(w.layer, w.context, out);
          if (status == SWITCHBACK_OK) switchback_linear_destroy(*out);
          return status;
        };
      });
    }
    add("switchback_linear_pass_modes", [](World& w) {
      auto* const forward = w.result<std::int32_t>(77);
      auto* const dx = w.result<std::int32_t>(77);
      w.call = [=, &w] { return switchback_linear_pass_modes(w.layer, M, 1, forward, dx); };
    });
    add("switchback_linear_get_info", [=](World& w) {
      switchback_layer_info info = {};
      info.struct_size = sizeof(info);
      auto* const out = w.result(info);
      w.call = [=, &w] { return switchback_linear_get_info(w.layer, out); };
    });
  }
  for (const std::int32_t mode : int8_modes)
    cases.push_back({"switchback_linear_set_quantized_weight", in_mode(mode), [=](World& w) {
                       w.make_layer(mode, SWITCHBACK_F32, K, N);
                       show_by_forward(w);
                       const auto codes = w.input(SWITCHBACK_S8, N, K);
                       const std::int64_t count = mode == SWITCHBACK_ROWWISE ? N : 1;
                       const float* const absmax = w.scales(count);
                       w.call = [=, &w] {
                         return switchback_linear_set_quantized_weight(w.layer, &codes, absmax,
                                                                       count, &w.bias);
                       };
                     }});
  for (const std::int32_t mode : int8_modes)
    cases.push_back({"switchback_linear_quantized_weight", in_mode(mode), [=](World& w) {
                       w.make_layer(mode, SWITCHBACK_F32, K, N);
                       expect_ok(switchback_linear_prepare_for_eval(w.layer));
                       const auto codes = w.output(SWITCHBACK_S8, N, K);
                       const std::int64_t count = mode == SWITCHBACK_ROWWISE ? N : 1;
                       float* const absmax = w.floats(count);
                       w.call = [=, &w] {
                         return switchback_linear_quantized_weight(w.layer, &codes, absmax, count);
                       };
                     }});
}

// Arguments for the gradients that the flags ask for, added to the old values.
switchback_linear_grads gradients(World& w, std::int32_t dtype, bool dx, bool dw, bool db) {
  switchback_linear_grads grads = {};
  grads.struct_size = sizeof(grads);
  grads.accumulate = 1;
  grads.g = w.input(dtype, M, N);
  if (dx) grads.dx = w.output(dtype, M, K);
  if (dw) grads.dw = w.output(SWITCHBACK_F32, N, K);
  if (db) grads.db = w.output(dtype, 1, N);
  return grads;
}

// Adds an activation before the layer and one after it to the gradients.
void activate_both_ends(World& w, std::int32_t mode, std::int32_t dtype,
                        switchback_linear_grads& grads) {
  grads.y = w.input(dtype, M, N);
  grads.y_activation = SWITCHBACK_GELU_ERF;
  grads.dx_of_activation = mode == SWITCHBACK_GLOBAL_MEM_EFFICIENT ? 1 : 0;
}

void forward_cases(std::vector<Case>& cases) {
  for (const std::int32_t mode : modes)
    for (const std::int32_t activation : {SWITCHBACK_NO_ACTIVATION, SWITCHBACK_GELU_TANH}) {
      // A backward after the forward shows whether the forward saved the right data.
      cases.push_back(
          {"switchback_linear_forward", in_mode(mode),
           [=](World& w) {
             w.make_layer(mode, SWITCHBACK_F32, K, N, activation);
             const auto x = w.input(SWITCHBACK_F32, M, K);
             const auto y = w.output(SWITCHBACK_F32, M, N);
             const auto grads = gradients(w, SWITCHBACK_F32, false, true, true);
             w.call = [=, &w] {
               return switchback_linear_forward(w.layer, &x, &y, SWITCHBACK_SAVE_COPY, nullptr);
             };
             w.look = [=, &w] { expect_ok(switchback_linear_backward(w.layer, &grads, nullptr)); };
           },
           activation == SWITCHBACK_NO_ACTIVATION ? 1 : 2});
      if (mode == SWITCHBACK_STANDARD || mode == SWITCHBACK_AUTO) continue;
      cases.push_back({"switchback_linear_forward", in_mode(mode) + ", codes", [=](World& w) {
                         w.make_layer(mode, SWITCHBACK_BF16, K, N, activation);
                         const auto x = w.input(SWITCHBACK_BF16, M, K);
                         const auto y = w.output(SWITCHBACK_F32, M, N);
                         const auto codes = w.output(SWITCHBACK_S8, M, K);
                         const auto kept = World::kept(codes, w.floats(M));
                         w.call = [=, &w] {
                           return switchback_linear_forward(w.layer, &x, &y, SWITCHBACK_SAVE_CALLER,
                                                            &kept);
                         };
                       }});
    }
}

struct BackwardKind {
  const char* what;
  std::int32_t dtype;
  bool dx, dw, db, activations;
  bool warm;  ///< a forward and a backward ran before the call
  std::int32_t threads;
  bool everywhere;  ///< run it in every mode, and as backward_from; else in two modes
};
constexpr BackwardKind backward_kinds[] = {
    {"all", SWITCHBACK_F32, true, true, true, false, false, 1, true},
    {"all again", SWITCHBACK_F32, true, true, true, false, true, 1, false},
    {"all with activations", SWITCHBACK_F32, true, true, true, true, false, 1, false},
    {"all with activations in f16", SWITCHBACK_F16, true, true, true, true, false, 2, true},
    {"all in bf16", SWITCHBACK_BF16, true, true, true, false, false, 1, false},
    {"dx", SWITCHBACK_F32, true, false, false, false, false, 1, false},
    {"dw and db", SWITCHBACK_F32, false, true, true, false, false, 1, false},
    {"dx and db with activations", SWITCHBACK_F32, true, false, true, true, true, 1, false},
};

void backward_cases(std::vector<Case>& cases) {
  for (const std::int32_t mode : modes)
    for (const BackwardKind& kind : backward_kinds) {
      if (!kind.everywhere && mode != SWITCHBACK_STANDARD && mode != SWITCHBACK_ROWWISE) continue;
      const std::int32_t activation =
          kind.activations ? SWITCHBACK_GELU_TANH : SWITCHBACK_NO_ACTIVATION;
      const std::string what = std::string(kind.what) + " " + in_mode(mode);
      cases.push_back(
          {"switchback_linear_backward", what,
           [=](World& w) {
             w.make_layer(mode, kind.dtype, K, N, activation);
             const auto x = w.input(kind.dtype, M, K);
             const auto y = w.input(kind.dtype, M, N);
             auto grads = gradients(w, kind.dtype, kind.dx, kind.dw, kind.db);
             if (kind.activations) activate_both_ends(w, mode, kind.dtype, grads);
             for (int step = 0; step < (kind.warm ? 2 : 1); ++step) {
               expect_ok(switchback_linear_forward(w.layer, &x, &y, SWITCHBACK_SAVE_COPY, nullptr));
               if (kind.warm && step == 0)
                 expect_ok(switchback_linear_backward(w.layer, &grads, nullptr));
             }
             w.call = [=, &w] { return switchback_linear_backward(w.layer, &grads, nullptr); };
           },
           kind.threads});
      if (!kind.everywhere) continue;
      cases.push_back({"switchback_linear_backward", what + ", kept",
                       [=](World& w) {
                         w.make_layer(mode, kind.dtype, K, N, activation);
                         auto grads = gradients(w, kind.dtype, kind.dx, kind.dw, kind.db);
                         const bool codes = mode == SWITCHBACK_GLOBAL_MEM_EFFICIENT;
                         if (kind.activations) activate_both_ends(w, mode, kind.dtype, grads);
                         const auto x = w.input(codes ? SWITCHBACK_S8 : kind.dtype, M, K);
                         const auto kept = World::kept(x, codes ? w.scales(M) : nullptr);
                         w.call = [=, &w] {
                           return switchback_linear_backward(w.layer, &grads, &kept);
                         };
                       },
                       kind.threads});
    }
}

using Cases = void (*)(std::vector<Case>&);
constexpr Cases all_cases[] = {context_cases,   quantize_cases, product_cases,
                               layer_cases,     forward_cases,  backward_cases,
                               blockwise_cases, grouped_cases,  fragmented_cases};

class OutOfMemoryIn : public ::testing::TestWithParam<Cases> {};

TEST_P(OutOfMemoryIn, NothingIsChangedAndTheCallCanBeRepeated) {
  std::vector<Case> cases;
  GetParam()(cases);
  for (const Case& c : cases) {
    sweep(c);
    if (HasFailure()) return;  // one failing case is report enough
  }
}

INSTANTIATE_TEST_SUITE_P(Functions, OutOfMemoryIn, ::testing::ValuesIn(all_cases));

TEST(OutOfMemoryFunctions, EveryFunctionThatReturnsAStatusHasACase) {
  std::string header;
  for (const char* const name : {"switchback.h", "switchback_groups.h"}) {
    std::ifstream file(std::string(SWITCHBACK_C_HEADERS) + name);
    header.append(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  // switchback_context_set_stream has no case: it does nothing except on CUDA.
  std::set<std::string> covered = {"switchback_context_set_stream"};
  for (const Case& c : cases_of_every_function())
    covered.insert(c.function);
  const std::regex declaration("SWITCHBACK_API switchback_status\\s+(switchback_\\w+)\\(");
  std::set<std::string> declared;
  for (std::sregex_iterator at(header.begin(), header.end(), declaration), end; at != end; ++at)
    declared.insert((*at)[1]);
  EXPECT_GE(declared.size(), 35u);
  for (const std::string& function : declared)
    EXPECT_TRUE(covered.contains(function)) << function << " has no case in this file";
  for (const std::string& function : covered)
    EXPECT_TRUE(declared.contains(function)) << function << " is not declared";
}

}  // namespace

std::vector<Case> cases_of_every_function() {
  std::vector<Case> cases;
  for (const Cases cases_of : all_cases)
    cases_of(cases);
  return cases;
}

}  // namespace switchback::test
