// SPDX-License-Identifier: Apache-2.0
// A layer with groups: every result has the bits of one SwitchbackLinear for each group alone.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/modes.hpp"
#include "grouped/support.hpp"
#include "linear/linear_support.hpp"
#include "support/contexts.hpp"
#include "support/generators.hpp"
#include "switchback/error.hpp"
#include "switchback/linear.hpp"

namespace switchback::test {
namespace {

constexpr std::int64_t n = 21;
constexpr std::int64_t k = 36;

struct Setting {
  Mode mode = Mode::rowwise;
  Save save = Save::copy;
  bool accumulate = false;
  Rotation rotation = Rotation::none;
  WeightGradient dw = WeightGradient::floating;
  Activation activation = Activation::none;
  bool derives_y = false;  // g is the gradient of an activation of y

  template <class T>
  [[nodiscard]] LinearOptions options(std::int64_t groups) const {
    return {.groups = groups,
            .in_features = k,
            .out_features = n,
            .mode = mode,
            .dtype = dtype_of<T>,
            .activation = activation,
            .dw = dw,
            .dw_block_rows = 128,
            .rotation = rotation};
  }
};

template <class T>
struct Results {
  Results(std::int64_t slots, std::int64_t groups)
      : y(slots, n), dx(slots, k), dw(groups * n, k), db(groups, n) {
    for (Matrix<T>* m : {&y, &dx, &dw, &db})
      for (std::int64_t r = 0; r < m->rows(); ++r)
        for (std::int64_t c = 0; c < m->cols(); ++c)
          m->set(r, c, T(0.25f));
  }
  Matrix<T> y, dx, dw, db;
};

// Fills a matrix with random multiples of 1/part from -most/part to most/part.
template <class T>
void fill_parts(Matrix<T>& m, int most, int part, Random& random) {
  for (std::int64_t r = 0; r < m.rows(); ++r)
    for (std::int64_t c = 0; c < m.cols(); ++c)
      m.set(r, c,
            T(static_cast<float>(random.below(2 * most + 1) - most) / static_cast<float>(part)));
}

// The operands of one step of a layer with groups. If rows are gathered, `index` says which row of
// `x` each slot reads.
template <class T>
struct Step {
  Step(const SomeGroups& groups_, bool gathered, std::uint64_t seed, bool exact = false)
      : groups(groups_),
        x(gathered ? 9 : groups_.slots, k, {3, 0}),
        g(groups_.slots, n, {2, 0}),
        weight(groups_.count() * n, k),
        bias(groups_.count(), n) {
    Random random(seed);
    if (on_cpu() && !exact) {
      fill_normal(x, random);
      fill_normal(g, random);
      fill_normal(weight, random);
      fill_normal(bias, random);
    } else {
      fill_exact(random);
    }
    if (!gathered) return;
    index = Vector<std::int32_t>(static_cast<std::size_t>(groups.slots));
    for (std::int32_t& row : index)
      row = static_cast<std::int32_t>(random.below(9));
  }

  // A GPU uses different kernels for the floating point products of groups and of a layer, and
  // these add in different orders. On a CPU a library's order may depend on the operands'
  // addresses. So these are numbers of few bits, whose sums are exact in any order: sums of at most
  // 200 products, each a multiple of 1/128 up to 8. Codes restore x exactly (a scale of 127/32
  // times n/127), so that the same holds where dW is computed from codes.
  void fill_exact(Random& random) {
    fill_parts(x, 127, 32, random);
    for (std::int64_t r = 0; r < x.rows(); ++r)
      x.set(r, 0, T(127.0f / 32.0f));
    fill_parts(g, 8, 4, random);
    fill_parts(weight, 8, 4, random);
    fill_parts(bias, 8, 4, random);
  }

  [[nodiscard]] GroupedRows rows() const {
    return {.data = x.view(), .index = {index.data(), index.size()}};
  }

  const SomeGroups& groups;
  Matrix<T> x, g, weight;
  Matrix<float> bias;
  Vector<std::int32_t> index;
};

template <class T>
LinearGrads grads_of(ConstAnyMatrix g, Matrix<T>& dx, MatrixView<T> dw, MatrixView<T> db,
                     const Setting& s, ConstAnyMatrix y) {
  LinearGrads grads{.g = g, .dx = dx.view(), .dw = dw, .db = db, .accumulate = s.accumulate};
  if (s.derives_y) {
    grads.y = y;
    grads.y_activation = Activation::gelu_erf;
  }
  return grads;
}

// Runs the step with a separate layer for each group.
template <class T>
Results<T> one_by_one(Context& context, const Step<T>& step, const Setting& s) {
  const SomeGroups& groups = step.groups;
  Results<T> results(groups.slots, groups.count());
  for (std::int64_t group = 0; group < groups.count(); ++group) {
    const std::int64_t begin = groups.begins[static_cast<std::size_t>(group)];
    const std::int64_t rows = groups.counts[static_cast<std::size_t>(group)];
    Matrix<T> x(rows, k), g(rows, n), y(rows, n), dx(rows, k);
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t slot = begin + r;
      const std::int64_t from =
          step.index.empty() ? slot : step.index[static_cast<std::size_t>(slot)];
      for (std::int64_t c = 0; c < k; ++c)
        x.set(r, c, step.x.get(from, c));
      for (std::int64_t c = 0; c < n; ++c)
        g.set(r, c, step.g.get(slot, c));
    }
    SwitchbackLinear layer(context, s.options<T>(1));
    layer.set_weight({step.weight.data() + group * n * k, dtype_of<T>, n, k, k},
                     {step.bias.data() + group * n, DType::f32, 1, n, n});
    layer.forward(x.view(), y.view(), Save::copy);
    layer.backward(grads_of<T>(g.view(), dx, {results.dw.data() + group * n * k, n, k},
                               {results.db.data() + group * n, 1, n}, s, y.view()));
    context.synchronize();
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < n; ++c)
        results.y.set(begin + r, c, y.get(r, c));
      for (std::int64_t c = 0; c < k; ++c)
        results.dx.set(begin + r, c, dx.get(r, c));
    }
  }
  return results;
}

template <class T>
void expect_same(const Matrix<T>& got, const Matrix<T>& want, const char* what) {
  for (std::int64_t r = 0; r < want.rows(); ++r)
    for (std::int64_t c = 0; c < want.cols(); ++c)
      ASSERT_EQ(got.get_float(r, c), want.get_float(r, c)) << what << " " << r << "," << c;
}

template <class T>
void check(const SomeGroups& groups, const Setting& s, bool gathered) {
  const bool floating = s.mode == Mode::standard || s.mode == Mode::automatic;
  const Step<T> step(groups, gathered, 1, floating);
  for (const ContextOptions& options : all_contexts()) {
    SCOPED_TRACE(::testing::Message()
                 << describe(options) << " groups " << groups.name << " mode " << mode_name(s.mode)
                 << " save " << static_cast<int>(s.save) << (gathered ? " gathered" : "")
                 << " rotation " << static_cast<int>(s.rotation) << " dw "
                 << weight_gradient_name(s.dw) << " activation " << activation_name(s.activation)
                 << (s.derives_y ? ", of y too" : "") << (s.accumulate ? ", accumulated " : " ")
                 << dtype_name(dtype_of<T>));
    Context context(options);
    const Results<T> want = one_by_one(context, step, s);
    Results<T> got(groups.slots, groups.count());
    SwitchbackLinear layer(context, s.options<T>(groups.count()));
    layer.set_weight(step.weight.view(), step.bias.view());
    const LinearGrads grads =
        grads_of<T>(step.g.view(), got.dx, got.dw.view(), got.db.view(), s, got.y.view());
    layer.forward(groups.view(), step.rows(), got.y.view(), s.save);
    if (s.save == Save::caller)
      layer.backward_from(groups.view(), step.rows(), grads);
    else
      layer.backward(grads);
    context.synchronize();
    expect_same(got.y, want.y, "y");
    expect_same(got.dx, want.dx, "dx");
    expect_same(got.dw, want.dw, "dw");
    expect_same(got.db, want.db, "db");
  }
}

TEST(LinearGrouped, EveryModeOfEveryKindOfGroups) {
  for (const SomeGroups& groups : all_groups())
    for (const Mode mode : all_modes)
      check<float>(groups, {.mode = mode}, false);
}

// The features of a layer other than its mode. With an activation dW is computed in int8, because
// the order of sums in floating point differs between kernels.
TEST(LinearGrouped, EveryFeatureOfALayer) {
  constexpr auto int8 = WeightGradient::int8_block;
  std::vector<Setting> settings;
  for (const Mode mode : {Mode::rowwise, Mode::rowwise_shared, Mode::global}) {
    settings.push_back({.mode = mode, .rotation = Rotation::hadamard_4});
    settings.push_back({.mode = mode, .accumulate = true, .dw = int8});
    settings.push_back({.mode = mode,
                        .rotation = Rotation::hadamard_4,
                        .dw = int8,
                        .activation = Activation::gelu_tanh,
                        .derives_y = true});
  }
  const std::vector<SomeGroups> some = {packed_groups({4, 0, 130, 1}, 2),
                                        strided_groups(5, 3, {5, 0, 2})};
  for (const SomeGroups& groups : some)
    for (Setting setting : settings)
      for (const Save save : {Save::copy, Save::borrow, Save::caller}) {
        setting.save = save;
        check<float>(groups, setting, save != Save::copy);
        if (!sanitized) check<bfloat16>(groups, setting, save == Save::copy);
      }
}

TEST(LinearGrouped, GatheredRowsAndWhatIsSaved) {
  const SomeGroups groups = packed_groups({4, 0, 7, 1}, 2);
  for (const Mode mode : {Mode::standard, Mode::rowwise, Mode::global_mem_efficient})
    for (const Save save : {Save::copy, Save::borrow, Save::caller}) {
      // In a mode that keeps codes of x, the caller cannot keep x instead.
      if (traits_of(mode).keeps_codes && save == Save::caller) continue;
      for (const bool gathered : {false, true})
        check<float>(groups, {.mode = mode, .save = save, .accumulate = true}, gathered);
    }
}

TEST(LinearGrouped, EveryType) {
  const SomeGroups groups = strided_groups(5, 3, {5, 0, 2});
  for (const Mode mode : {Mode::standard, Mode::rowwise, Mode::automatic}) {
    check<half>(groups, {.mode = mode}, false);
    check<bfloat16>(groups, {.mode = mode}, true);
  }
}

TEST(LinearGrouped, OneGroupIsALayer) {
  check<float>(packed_groups({13}), {.mode = Mode::rowwise}, false);
}

// After prepare_for_eval the caller may free the weight; an update of the weight makes new codes.
TEST(LinearGrouped, EvalAndUpdates) {
  const SomeGroups groups = packed_groups({3, 5});
  const Step<float> step(groups, false, 2);
  Context context(device_options());
  const Results<float> want = one_by_one(context, step, {});
  SwitchbackLinear layer(context, {.groups = 2, .in_features = k, .out_features = n});
  auto weight = std::make_unique<Matrix<float>>(step.weight);
  auto bias = std::make_unique<Matrix<float>>(step.bias);
  layer.set_weight(weight->view(), bias->view());
  layer.prepare_for_eval();
  context.synchronize();
  weight.reset();
  bias.reset();
  Matrix<float> y(groups.slots, n);
  layer.forward(groups.view(), step.rows(), y.view());
  context.synchronize();
  expect_same(y, want.y, "y");
  EXPECT_THROW(layer.forward(groups.view(), step.rows(), y.view(), Save::copy), Error);

  Matrix<float> changed = step.weight;
  layer.set_weight(changed.view(), step.bias.view());
  layer.forward(groups.view(), step.rows(), y.view());
  changed.set(0, 0, 50.0f);
  layer.weight_updated();
  layer.forward(groups.view(), step.rows(), y.view());
  context.synchronize();
  EXPECT_NE(y.get(0, 0), want.y.get(0, 0));
  EXPECT_EQ(y.get(0, 1), want.y.get(0, 1));
}

// After prepare_for_eval an int8 layer computes dx from the codes that it has. Its weight can be
// read, and set, as codes; another layer can share it.
TEST(LinearGrouped, GradientsAndCodesInEval) {
  const SomeGroups groups = packed_groups({3, 5});
  const Step<float> step(groups, false, 6);
  for (const Mode mode : {Mode::rowwise, Mode::global}) {
    SCOPED_TRACE(mode_name(mode));
    Context context(device_options());
    Matrix<float> want(groups.slots, k), got(groups.slots, k), y(groups.slots, n),
        same(groups.slots, n);
    for (std::int64_t g = 0; g < 2; ++g) {
      SwitchbackLinear one(context, Setting{.mode = mode}.options<float>(1));
      one.set_weight({step.weight.data() + g * n * k, DType::f32, n, k, k});
      one.prepare_for_eval();
      const std::int64_t begin = groups.begins[static_cast<std::size_t>(g)];
      const std::int64_t rows = groups.counts[static_cast<std::size_t>(g)];
      LinearGrads grads;
      grads.g = {step.g.data() + begin * step.g.stride(), DType::f32, rows, n, step.g.stride()};
      grads.dx = {want.data() + begin * want.stride(), DType::f32, rows, k, want.stride()};
      one.backward_from(KeptInput(), grads);
    }
    SwitchbackLinear layer(context, Setting{.mode = mode}.options<float>(2));
    layer.set_weight(step.weight.view());
    layer.prepare_for_eval();
    layer.backward_from(groups.view(), {}, {.g = step.g.view(), .dx = got.view()});
    layer.forward(groups.view(), step.rows(), y.view());
    context.synchronize();
    expect_same(got, want, "dx");

    Matrix<std::int8_t> codes(2 * n, k);
    Vector<float> absmax(static_cast<std::size_t>(2 * scales_of_weight(mode, n)));
    layer.quantized_weight(codes.view(), {absmax.data(), absmax.size()});
    SwitchbackLinear other(context, Setting{.mode = mode}.options<float>(2));
    other.set_quantized_weight(codes.cview(), {absmax.data(), absmax.size()});
    for (const SwitchbackLinear* each : {&other, &layer}) {
      SwitchbackLinear shared = each->share(context);
      shared.forward(groups.view(), step.rows(), same.view());
      context.synchronize();
      expect_same(same, y, "y");
    }
  }
}

// If all groups are empty, dw and db are zeros, also after a forward that saves.
TEST(LinearGrouped, WithoutSlotsGradientsAreZeros) {
  const SomeGroups groups = packed_groups({0, 0});
  const Step<float> step(groups, false, 4);
  for (const Mode mode : all_modes) {
    SCOPED_TRACE(mode_name(mode));
    Context context(device_options());
    SwitchbackLinear layer(context,
                           {.groups = 2, .in_features = k, .out_features = n, .mode = mode});
    layer.set_weight(step.weight.view(), step.bias.view());
    Results<float> got(0, 2);
    layer.forward(groups.view(), step.rows(), got.y.view(), Save::copy);
    layer.backward(
        {.g = step.g.view(), .dx = got.dx.view(), .dw = got.dw.view(), .db = got.db.view()});
    context.synchronize();
    for (std::int64_t r = 0; r < 2 * n; ++r)
      for (std::int64_t c = 0; c < k; ++c)
        ASSERT_EQ(got.dw.get(r, c), 0.0f);
    for (std::int64_t g = 0; g < 2; ++g)
      for (std::int64_t c = 0; c < n; ++c)
        ASSERT_EQ(got.db.get(g, c), 0.0f);
  }
}

// With Save::copy the caller may change everything except the weight before backward.
TEST(LinearGrouped, CopiesWhatBackwardNeeds) {
  SomeGroups groups = packed_groups({3, 5});
  Step<float> step(groups, true, 3);
  Context context(device_options());
  const Results<float> want = one_by_one(context, step, {});
  SwitchbackLinear layer(context, {.groups = 2, .in_features = k, .out_features = n});
  layer.set_weight(step.weight.view(), step.bias.view());
  Results<float> got(groups.slots, 2);
  layer.forward(groups.view(), step.rows(), got.y.view(), Save::copy);
  context.synchronize();
  groups.ends[0] = 1;
  std::fill(step.index.begin(), step.index.end(), 0);
  step.x.set(0, 0, 1e9f);
  layer.backward({.g = step.g.view(), .dw = got.dw.view()});
  context.synchronize();
  expect_same(got.dw, want.dw, "dw");
}

// As in a layer without groups, an output over borrowed rows invalidates the saved forward, and
// borrowed arrays that no longer fit are refused.
TEST(LinearGrouped, WhatWasBorrowedMustStay) {
  SomeGroups groups = packed_groups({3, 5});
  Step<float> step(groups, false, 5);
  Context context(device_options());
  SwitchbackLinear layer(context, {.groups = 2, .in_features = k, .out_features = n});
  layer.set_weight(step.weight.view());
  Results<float> got(groups.slots, 2);
  layer.forward(groups.view(), step.rows(), got.y.view(), Save::borrow);
  Matrix<float> other = step.x;
  layer.forward(groups.view(), {.data = other.view()},
                {step.x.data(), DType::f32, groups.slots, n, step.x.stride()});
  context.synchronize();
  EXPECT_THROW(layer.backward({.g = step.g.view(), .dw = got.dw.view()}), Error);
  if (!on_cpu()) return;
  layer.forward(groups.view(), {.data = other.view()}, got.y.view(), Save::borrow);
  groups.ends[1] = 9;
  EXPECT_THROW(layer.backward({.g = step.g.view(), .dw = got.dw.view()}), Error);
  groups.ends[1] = 8;
  layer.backward({.g = step.g.view(), .dw = got.dw.view()});
}

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(LinearGrouped, Rejections) {
  Context context(cpu_options());
  EXPECT_EQ(message_of([&] {
              SwitchbackLinear(context, {.groups = 0, .in_features = 1, .out_features = 1});
            }),
            "linear: groups = 0; it must be from 1 to 2^31 - 1");
  EXPECT_EQ(message_of([&] {
              SwitchbackLinear(context, {.groups = 1, .in_features = 0, .out_features = 1});
            }),
            "linear: in_features = 0; it must be at least 1");
  EXPECT_EQ(message_of([&] {
              SwitchbackLinear(
                  context,
                  {.groups = 2, .in_features = 1, .out_features = 1, .transposed_weight = true});
            }),
            "linear: transposed_weight with 2 groups; only a layer without groups may have it");
  const SomeGroups groups = packed_groups({3, 5});
  const Step<float> step(groups, false, 4);
  SwitchbackLinear layer(context, {.groups = 2, .in_features = k, .out_features = n});
  Matrix<float> y(groups.slots, n);
  EXPECT_EQ(message_of([&] { layer.forward(groups.view(), step.rows(), y.view()); }),
            "forward: the layer has no weight; call set_weight first");
  layer.set_weight(step.weight.view());
  const SomeGroups three = packed_groups({3, 5, 0});
  EXPECT_EQ(message_of([&] { layer.forward(three.view(), step.rows(), y.view()); }),
            "forward: groups.count = 3; it must be the layer's number of groups, 2");
  EXPECT_EQ(message_of([&] { layer.forward(step.x.view(), y.view()); }),
            "forward: the layer has 2 groups; a call without groups needs a layer with one group");
  LinearOptions shared{.groups = 2, .in_features = k, .out_features = n, .mode = Mode::automatic};
  shared.allow = allow_mode(Mode::rowwise_shared);
  EXPECT_NO_THROW(const SwitchbackLinear one(context, shared));
  LinearGrads rounded{.g = step.g.view()};
  rounded.rounding.emplace();
  EXPECT_EQ(message_of([&] { layer.backward_from(groups.view(), step.rows(), rounded); }),
            "backward_from: rounding is given with groups; it must be empty");
  EXPECT_EQ(message_of([&] { layer.backward({.g = step.g.view()}); }),
            "backward: no forward has saved anything; call forward with save = copy or borrow "
            "first");
}

}  // namespace
}  // namespace switchback::test
