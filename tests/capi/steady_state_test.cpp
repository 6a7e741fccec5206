// SPDX-License-Identifier: Apache-2.0
// Steady state: a call that was made before allocates no heap memory and creates no thread, through
// C++ and C, in every mode, with and without a tuner.
//
// Where every product is this library's own, nothing in the process may allocate at all: malloc and
// its relatives are replaced (under a sanitizer, which replaces them itself, only operator new and
// aligned_alloc). For passes that run oneDNN or OpenBLAS only the allocations of this library's
// code count: those libraries may allocate.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "capi/allocation_hooks.hpp"
#include "switchback/activation.hpp"
#include "switchback/context.hpp"
#include "switchback/fragmented_linear.hpp"
#include "switchback/gemm.hpp"
#include "switchback/grouped.hpp"
#include "switchback/linear.hpp"
#include "switchback/quant.hpp"
#include "switchback/switchback.h"
#include "switchback/tuner.hpp"

#if defined(__GLIBC__) && !defined(SWITCHBACK_TEST_SANITIZED)
#define SWITCHBACK_TEST_COUNTS_ALL 1
#endif

namespace {

std::atomic<bool> counting{false};
std::atomic<long> of_library{0};
std::atomic<long> of_anybody{0};
std::atomic<long> threads_created{0};

void count_any() noexcept {
  if (counting.load(std::memory_order_relaxed)) of_anybody.fetch_add(1);
}

}  // namespace

bool switchback::test::may_allocate(void* caller) {
  if (counting.load(std::memory_order_relaxed)) {
    of_anybody.fetch_add(1);
    if (is_of_library(caller)) of_library.fetch_add(1);
  }
  return true;
}

#if defined(SWITCHBACK_TEST_COUNTS_ALL)
extern "C" {
void* __libc_malloc(std::size_t bytes);                           // NOLINT
void* __libc_calloc(std::size_t count, std::size_t bytes);        // NOLINT
void* __libc_realloc(void* memory, std::size_t bytes);            // NOLINT
void* __libc_memalign(std::size_t alignment, std::size_t bytes);  // NOLINT

void* malloc(std::size_t bytes) noexcept {
  count_any();
  return __libc_malloc(bytes);
}
void* calloc(std::size_t count, std::size_t bytes) noexcept {
  count_any();
  return __libc_calloc(count, bytes);
}
void* realloc(void* memory, std::size_t bytes) noexcept {
  count_any();
  return __libc_realloc(memory, bytes);
}
int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) noexcept {
  count_any();
  *memory = __libc_memalign(alignment, bytes);
  return *memory == nullptr ? 12 : 0;  // ENOMEM
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*),
                   void* argument) noexcept {
  static const auto real =
      reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  threads_created.fetch_add(1);
  return real(thread, attributes, start, argument);
}
}
#endif

namespace switchback {
namespace {

enum class Count { everybody, library };

// Runs `call` until buffers have grown and caches are filled, then counts the allocations and
// threads of a few more calls.
void expect_nothing_new(const std::string& what, Count whose, const std::function<void()>& call) {
  for (int i = 0; i < 3; ++i)
    call();
  of_library = of_anybody = 0;
  const long threads_before = threads_created;
  counting = true;
  for (int i = 0; i < 5; ++i)
    call();
  counting = false;
  EXPECT_EQ(of_library.load(), 0) << what;
  if (whose == Count::library) return;
  EXPECT_EQ(of_anybody.load(), 0) << what;
  EXPECT_EQ(threads_created - threads_before, 0) << what;
}

template <class T>
struct Owned {
  Owned(std::int64_t rows, std::int64_t cols)
      : values(static_cast<std::size_t>(rows * cols), T(1)), view(values.data(), rows, cols) {}
  std::vector<T> values;
  MatrixView<T> view;
  operator MatrixView<T>() const { return view; }
  operator MatrixView<const T>() const { return view; }
  operator AnyMatrix() const { return view; }
  operator ConstAnyMatrix() const { return ConstAnyMatrix(view); }
};

constexpr std::int64_t n = 70;
constexpr std::int64_t k = 96;

class SteadyState : public ::testing::TestWithParam<int> {
 protected:
  static ContextOptions options(int threads) {
    ContextOptions made;
    made.device = "cpu";
    made.threads = threads;
    return made;
  }
  Context context{options(GetParam())};
};
INSTANTIATE_TEST_SUITE_P(Threads, SteadyState, ::testing::Values(1, 3));

TEST_P(SteadyState, Quantize) {
  const Owned<float> x(n, k), y(n, k);
  const Owned<std::int8_t> q(n, k), q_t(k, n);
  std::vector<float> rows(n, 1.0f), cols(k, 1.0f), one(1, 1.0f);
  const auto all = [&] {
    quantize_rowwise(context, x, q, rows);
    quantize_rowwise_column_sums(context, x, q, rows, cols);
    column_sums(context, x, cols);
    quantize_columnwise_transpose(context, x, q_t, cols);
    quantize_global(context, x, q, one);
    quantize_global_transpose(context, x, q_t, one);
    quantize_rowwise_and_columnwise_transpose(context, x, q, rows, q_t, cols);
    quantize_global_and_transpose(context, x, q, q_t, one);
    dequantize_rowwise(context, q, rows, y);
    cast_to_int8(context, x, q);
  };
  expect_nothing_new("quantize", Count::everybody, all);
  expect_nothing_new("activation", Count::everybody, [&] {
    activation_forward(context, x, Activation::gelu_tanh, y);
    activation_backward(context, x, x, Activation::gelu_erf, y);
    activation_forward_quantize(context, x, Activation::gelu_erf, q, rows);
    activation_backward_quantize(context, x, x, Activation::gelu_tanh, y, q, rows, cols);
  });
}

TEST_P(SteadyState, Int8Products) {
  const Owned<std::int8_t> b(n, k);
  PackedWeight packed;
  pack_weight(context, b, packed);
  const std::vector<float> absmax_rows(300, 1.0f), absmax_cols(n, 1.0f);
  const Owned<float> bias(1, n);
  // These numbers of rows give one task and many tasks: the state that one call leaves must suit
  // the next call.
  expect_nothing_new("products", Count::everybody, [&] {
    static const Owned<std::int8_t> a(300, k);
    static const Owned<std::int32_t> sums(300, n);
    static const Owned<float> y(300, n);
    for (const std::int64_t m : {1, 8, 300, 70, 2}) {
      for (const bool is_packed : {false, true}) {
        GemmS8S8S32Args s32;
        s32.a = {a.values.data(), m, k};
        s32.d = {sums.view.data, m, n};
        GemmArgs args;
        args.a = s32.a;
        args.absmax_a = std::span(absmax_rows).first(static_cast<std::size_t>(m));
        args.absmax_b = absmax_cols;
        args.bias = bias;
        args.d = MatrixView<float>(y.view.data, m, n);
        if (is_packed)
          args.packed_b = s32.packed_b = &packed;
        else
          args.b = s32.b = b;
        gemm_s8s8s32(context, s32);
        gemm(context, args);
      }
    }
  });
}

// One layer with its operands. dW, a floating point product in every mode, is computed only if
// asked for.
struct LayerCalls {
  LayerCalls(Context& context, Mode mode, Activation activation)
      : layer(context, options(mode, activation)) {
    layer.set_weight(w, bias);
  }
  static LinearOptions options(Mode mode, Activation activation) {
    LinearOptions made;
    made.in_features = k;
    made.out_features = n;
    made.mode = mode;
    made.activation = activation;
    return made;
  }
  void step(Save save, bool with_dw) {
    layer.weight_updated();
    layer.forward(x, y, save);
    LinearGrads grads;
    grads.g = g;
    grads.dx = dx;
    if (with_dw) grads.dw = dw;
    grads.db = db;
    if (save == Save::caller) {
      KeptInput kept;
      kept.x = x;
      layer.backward_from(kept, grads);
    } else {
      layer.backward(grads);
    }
  }

  const Owned<float> x{9, k}, w{n, k}, bias{1, n}, y{9, n}, g{9, n}, dx{9, k}, dw{n, k}, db{1, n};
  SwitchbackLinear layer;
};

void check_layers(Context& context, const std::string& name) {
  for (const Mode mode :
       {Mode::standard, Mode::rowwise, Mode::global, Mode::global_mem_efficient, Mode::automatic})
    for (const Activation activation : {Activation::none, Activation::gelu_tanh}) {
      const bool own = mode != Mode::standard && mode != Mode::automatic;
      const Count whose = own ? Count::everybody : Count::library;
      LayerCalls calls(context, mode, activation);
      const std::string what = name + " " + std::string(mode_name(mode)) + " " +
                               std::string(activation_name(activation));
      expect_nothing_new(what + " forward", whose, [&] { calls.layer.forward(calls.x, calls.y); });
      // With an activation, mode global_mem_efficient saves only codes, from which dX cannot be
      // computed.
      const bool keeps_x = mode != Mode::global_mem_efficient || activation == Activation::none;
      for (const Save save : {Save::copy, Save::borrow, Save::caller}) {
        if (!keeps_x && save != Save::caller) continue;
        const std::string step = what + " step, save " + std::to_string(static_cast<int>(save));
        expect_nothing_new(step, whose, [&] { calls.step(save, false); });
        expect_nothing_new(step + ", dw", Count::library, [&] { calls.step(save, true); });
      }
      calls.layer.prepare_for_eval();
      expect_nothing_new(what + " eval", whose, [&] { calls.layer.forward(calls.x, calls.y); });
    }
}

TEST_P(SteadyState, Layers) {
  check_layers(context, "untuned");
}

TEST_P(SteadyState, LayersWithATunerThatKnowsNothing) {
  TunerOptions options;
  options.mode = "read";
  options.cache_directory = options.system_directory = testing::TempDir() + "no_such_directory";
  Tuner::open(context, options)->attach(context);
  check_layers(context, "tuned");
}

// Operands of three groups with 9 slots that read rows of x in another order. The second group is
// empty.
struct GroupedOperands {
  static constexpr std::int64_t g = 3, m = 9;
  const std::vector<std::int32_t> ends = {4, 4, 8}, index = {8, 1, 7, 2, 6, 3, 5, 4, 0};
  const Owned<float> x{m, k}, w{g * n, k}, bias{g, n}, y{m, n}, grad{m, n}, dx{m, k}, dw{g * n, k},
      db{g, n};
  const Groups groups = Groups::packed(ends);
  const GroupedRows rows{x, index, 0};
};

TEST_P(SteadyState, GroupedProducts) {
  const GroupedOperands o;
  const Owned<std::int8_t> q(o.m, k), b(o.g * n, k);
  const Owned<std::int32_t> slots(4, 2);
  std::vector<float> absmax(o.m, 1.0f);
  const std::vector<float> absmax_b(o.g * n, 1.0f);
  PackedWeight packed;
  pack_weights(context, b, o.g, packed);
  expect_nothing_new("grouped products", Count::everybody, [&] {
    grouped_quantize_rowwise(context, o.groups, o.rows, q, absmax);
    for (const bool is_packed : {false, true}) {
      GroupedGemmArgs args;
      args.groups = o.groups;
      args.a = q;
      if (is_packed)
        args.packed_b = &packed;
      else
        args.b = b;
      args.d = o.y;
      args.absmax_a = absmax;
      args.absmax_b = absmax_b;
      args.bias = o.bias;
      grouped_gemm(context, args);
    }
    combine(context, {o.y, slots, {}, AnyMatrix(o.dx.view.data, DType::f32, 4, n, n)});
  });
}

TEST_P(SteadyState, GroupedLayers) {
  const GroupedOperands o;
  std::vector<LinearOptions> kinds;
  for (const Mode mode : {Mode::standard, Mode::rowwise, Mode::rowwise_shared, Mode::global,
                          Mode::global_mem_efficient})
    kinds.push_back({.groups = o.g, .in_features = k, .out_features = n, .mode = mode});
  LinearOptions int8_dw = kinds[1];
  int8_dw.dw = WeightGradient::int8_block;
  kinds.push_back(int8_dw);
  int8_dw.activation = Activation::gelu_tanh;
  int8_dw.rotation = Rotation::hadamard_16;
  kinds.push_back(int8_dw);
  for (const LinearOptions& kind : kinds) {
    const bool own = kind.mode != Mode::standard;
    const Count whose = own ? Count::everybody : Count::library;
    const bool own_dw = own && kind.dw == WeightGradient::int8_block;
    SwitchbackLinear layer(context, kind);
    layer.set_weight(o.w, o.bias);
    const auto step = [&](Save save, bool with_dw) {
      layer.weight_updated();
      layer.forward(o.groups, o.rows, o.y, save);
      LinearGrads grads;
      grads.g = o.grad;
      grads.dx = o.dx;
      if (with_dw) grads.dw = o.dw;
      grads.db = o.db;
      if (save == Save::caller)
        layer.backward_from(o.groups, o.rows, grads);
      else
        layer.backward(grads);
    };
    const std::string what = "grouped " + std::string(mode_name(kind.mode)) + ", dw " +
                             std::string(weight_gradient_name(kind.dw)) + ", activation " +
                             std::string(activation_name(kind.activation));
    for (const Save save : {Save::copy, Save::borrow, Save::caller}) {
      const std::string name = what + " step, save " + std::to_string(static_cast<int>(save));
      expect_nothing_new(name, whose, [&] { step(save, false); });
      expect_nothing_new(name + ", dw", own_dw ? Count::everybody : Count::library,
                         [&] { step(save, true); });
    }
    layer.prepare_for_eval();
    expect_nothing_new(what + " eval", whose, [&] { layer.forward(o.groups, o.rows, o.y); });
  }
}

TEST_P(SteadyState, FragmentedLayers) {
  constexpr std::int64_t rows = 9, fragments = 2, rank = 3;
  const Owned<float> x(rows, k), y(rows, n), grad(rows, n), w(n, k), s(fragments, k / fragments),
      down(rank, k), up(n, rank), dx(rows, k), dw(n, k), ds(fragments, k / fragments);
  for (const Mode mode : {Mode::standard, Mode::rowwise, Mode::global}) {
    const Count whose = mode == Mode::standard ? Count::library : Count::everybody;
    FragmentedLinear layer(context, {k, n, fragments, rank, mode});
    layer.set_weights({w, s, down, up});
    const auto step = [&](Save save, bool with_dw) {
      layer.weights_updated();
      layer.forward(x, y, save);
      FragmentedLinearGrads grads;
      grads.g = grad;
      grads.dx = dx;
      grads.dselector = ds;
      if (with_dw) grads.dweight = dw;
      if (save == Save::caller)
        layer.backward_from(x, grads);
      else
        layer.backward(grads);
    };
    const std::string what = "fragmented " + std::string(mode_name(mode));
    for (const Save save : {Save::copy, Save::borrow, Save::caller}) {
      const std::string name = what + " step, save " + std::to_string(static_cast<int>(save));
      expect_nothing_new(name, whose, [&] { step(save, false); });
      expect_nothing_new(name + ", dw", Count::library, [&] { step(save, true); });
    }
    layer.prepare_for_eval();
    expect_nothing_new(what + " eval", whose, [&] { layer.forward_hard(x, y); });
  }
}

switchback_matrix c_matrix(const Owned<float>& m) {
  return {m.view.data, SWITCHBACK_F32, m.view.rows, m.view.cols, m.view.stride};
}

TEST_P(SteadyState, TheCAbi) {
  switchback_context_options options = {};
  options.struct_size = sizeof(options);
  options.device = "cpu";
  options.threads = GetParam();
  switchback_context* c = nullptr;
  ASSERT_EQ(switchback_context_create(&options, &c), SWITCHBACK_OK);
  for (const std::int32_t mode :
       {SWITCHBACK_ROWWISE, SWITCHBACK_GLOBAL, SWITCHBACK_GLOBAL_MEM_EFFICIENT}) {
    switchback_linear_options layer_options = {};
    layer_options.struct_size = sizeof(layer_options);
    layer_options.in_features = k;
    layer_options.out_features = n;
    layer_options.mode = mode;
    switchback_linear* layer = nullptr;
    ASSERT_EQ(switchback_linear_create(c, &layer_options, &layer), SWITCHBACK_OK);
    const Owned<float> x(9, k), w(n, k), bias(1, n), y(9, n), g(9, n), dx(9, k), dw(n, k), db(1, n);
    const switchback_matrix mx = c_matrix(x), mw = c_matrix(w), mbias = c_matrix(bias),
                            my = c_matrix(y);
    switchback_linear_grads grads = {};
    grads.struct_size = sizeof(grads);
    grads.g = c_matrix(g);
    grads.dx = c_matrix(dx);
    grads.db = c_matrix(db);
    ASSERT_EQ(switchback_linear_set_weight(layer, &mw, &mbias), SWITCHBACK_OK);
    int failed = 0;
    const auto step = [&] {
      failed += switchback_linear_weight_updated(layer) != SWITCHBACK_OK;
      failed += switchback_linear_forward(layer, &mx, &my, SWITCHBACK_SAVE_COPY, nullptr) !=
                SWITCHBACK_OK;
      failed += switchback_linear_backward(layer, &grads, nullptr) != SWITCHBACK_OK;
    };
    const std::string what = "C, mode " + std::to_string(mode);
    expect_nothing_new(what + " step", Count::everybody, step);
    grads.dw = c_matrix(dw);
    expect_nothing_new(what + " step, dw", Count::library, step);
    ASSERT_EQ(switchback_linear_prepare_for_eval(layer), SWITCHBACK_OK);
    expect_nothing_new(what + " eval", Count::everybody, [&] {
      failed += switchback_linear_forward(layer, &mx, &my, SWITCHBACK_SAVE_NOTHING, nullptr) !=
                SWITCHBACK_OK;
    });
    EXPECT_EQ(failed, 0) << switchback_last_error();
    switchback_linear_destroy(layer);
  }
  switchback_context_destroy(c);
}

}  // namespace
}  // namespace switchback
