// SPDX-License-Identifier: Apache-2.0
// A layer with groups: every result has the bits of one SwitchbackLinear for each group alone.
#include <gtest/gtest.h>

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

constexpr std::int64_t outputs = 21;
constexpr std::int64_t inputs = 36;

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
            .in_features = inputs,
            .out_features = outputs,
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
      : y(slots, outputs), dx(slots, inputs), dw(groups * outputs, inputs), db(groups, outputs) {
    for (Matrix<T>* m : {&y, &dx, &dw, &db})
      fill_constant(*m, T(0.25f));
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
        x(gathered ? 9 : groups_.slots, inputs, {3, 0}),
        g(groups_.slots, outputs, {2, 0}),
        weight(groups_.count() * outputs, inputs),
        bias(groups_.count(), outputs) {
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
    Matrix<T> x(rows, inputs), g(rows, outputs), y(rows, outputs), dx(rows, inputs);
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t slot = begin + r;
      const std::int64_t from =
          step.index.empty() ? slot : step.index[static_cast<std::size_t>(slot)];
      for (std::int64_t c = 0; c < inputs; ++c)
        x.set(r, c, step.x.get(from, c));
      for (std::int64_t c = 0; c < outputs; ++c)
        g.set(r, c, step.g.get(slot, c));
    }
    SwitchbackLinear layer(context, s.options<T>(1));
    layer.set_weight(
        {step.weight.data() + group * outputs * inputs, dtype_of<T>, outputs, inputs, inputs},
        {step.bias.data() + group * outputs, DType::f32, 1, outputs, outputs});
    layer.forward(x.view(), y.view(), Save::copy);
    layer.backward(grads_of<T>(g.view(), dx,
                               {results.dw.data() + group * outputs * inputs, outputs, inputs},
                               {results.db.data() + group * outputs, 1, outputs}, s, y.view()));
    context.synchronize();
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < outputs; ++c)
        results.y.set(begin + r, c, y.get(r, c));
      for (std::int64_t c = 0; c < inputs; ++c)
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
  std::vector<SomeGroups> kinds = all_groups();
  kinds.push_back(packed_groups({0, 0}));
  for (const SomeGroups& groups : kinds)
    for (const Mode mode : all_modes)
      check<float>(groups, {.mode = mode}, false);
}

// The features of a layer other than its mode, and what is kept for backward. With an activation dW
// is computed in int8, because the order of sums in floating point differs between kernels.
TEST(LinearGrouped, EveryFeatureOfALayer) {
  constexpr auto int8 = WeightGradient::int8_block;
  std::vector<Setting> settings;
  for (const Mode mode : {Mode::standard, Mode::rowwise, Mode::global_mem_efficient})
    settings.push_back({.mode = mode, .accumulate = true});
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
        // In a mode that keeps codes of x, the caller cannot keep x instead.
        if (traits_of(setting.mode).keeps_codes && save == Save::caller) continue;
        setting.save = save;
        check<float>(groups, setting, save != Save::copy);
        if (!sanitized) check<bfloat16>(groups, setting, save == Save::copy);
      }
}

TEST(LinearGrouped, EveryType) {
  const SomeGroups groups = strided_groups(5, 3, {5, 0, 2});
  for (const Mode mode : {Mode::standard, Mode::rowwise, Mode::automatic}) {
    check<half>(groups, {.mode = mode}, false);
    check<bfloat16>(groups, {.mode = mode}, true);
  }
}

// After prepare_for_eval the caller may free the weight, and an int8 layer computes dx from the
// codes that it has. These can be read, and set in another layer; another layer can share them. An
// update of the weight makes new codes.
TEST(LinearGrouped, Eval) {
  const SomeGroups groups = packed_groups({3, 5});
  const Step<float> step(groups, false, 6);
  for (const Mode mode : {Mode::rowwise, Mode::global}) {
    SCOPED_TRACE(mode_name(mode));
    const Setting setting{.mode = mode};
    Context context(device_options());
    const Results<float> want = one_by_one(context, step, setting);
    Matrix<float> want_dx(groups.slots, inputs), dx(groups.slots, inputs), y(groups.slots, outputs);
    for (std::int64_t g = 0; g < 2; ++g) {
      SwitchbackLinear one(context, setting.options<float>(1));
      one.set_weight(
          {step.weight.data() + g * outputs * inputs, DType::f32, outputs, inputs, inputs});
      one.prepare_for_eval();
      const std::int64_t begin = groups.begins[static_cast<std::size_t>(g)];
      const std::int64_t rows = groups.counts[static_cast<std::size_t>(g)];
      LinearGrads grads;
      grads.g = {step.g.data() + begin * step.g.stride(), DType::f32, rows, outputs,
                 step.g.stride()};
      grads.dx = {want_dx.data() + begin * inputs, DType::f32, rows, inputs, inputs};
      one.backward_from(KeptInput(), grads);
    }
    SwitchbackLinear layer(context, setting.options<float>(2));
    Matrix<float> weight = step.weight, bias = step.bias;
    layer.set_weight(weight.view(), bias.view());
    layer.prepare_for_eval();
    context.synchronize();
    fill_constant(weight, 1e30f);
    fill_constant(bias, 1e30f);
    layer.backward_from(groups.view(), {}, {.g = step.g.view(), .dx = dx.view()});
    layer.forward(groups.view(), step.rows(), y.view());
    context.synchronize();
    expect_same(y, want.y, "y");
    expect_same(dx, want_dx, "dx");
    EXPECT_THROW(layer.forward(groups.view(), step.rows(), y.view(), Save::copy), Error);

    Matrix<std::int8_t> codes(2 * outputs, inputs);
    Vector<float> absmax(static_cast<std::size_t>(2 * scales_of_weight(mode, outputs)));
    layer.quantized_weight(codes.view(), absmax);
    SwitchbackLinear other(context, setting.options<float>(2));
    other.set_quantized_weight(codes.cview(), absmax, step.bias.view());
    for (const SwitchbackLinear* each : {&other, &layer}) {
      SwitchbackLinear shared = each->share(context);
      fill_constant(y, 0.0f);
      shared.forward(groups.view(), step.rows(), y.view());
      context.synchronize();
      expect_same(y, want.y, "y");
    }

    weight = step.weight;
    bias = step.bias;
    weight.set(0, 0, 50.0f);
    layer.weight_updated();
    layer.forward(groups.view(), step.rows(), y.view());
    context.synchronize();
    EXPECT_NE(y.get(0, 0), want.y.get(0, 0));
    EXPECT_EQ(y.get(3, 0), want.y.get(3, 0)) << "another group";
  }
}

// With Save::copy the caller may change everything except the weight before backward.
TEST(LinearGrouped, CopiesWhatBackwardNeeds) {
  SomeGroups groups = packed_groups({3, 5});
  Step<float> step(groups, true, 3);
  Context context(device_options());
  const Results<float> want = one_by_one(context, step, {});
  SwitchbackLinear layer(context, {.groups = 2, .in_features = inputs, .out_features = outputs});
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
  SwitchbackLinear layer(context, {.groups = 2, .in_features = inputs, .out_features = outputs});
  layer.set_weight(step.weight.view());
  Results<float> got(groups.slots, 2);
  layer.forward(groups.view(), step.rows(), got.y.view(), Save::borrow);
  Matrix<float> other = step.x;
  layer.forward(groups.view(), {.data = other.view()},
                {step.x.data(), DType::f32, groups.slots, outputs, step.x.stride()});
  context.synchronize();
  EXPECT_THROW(layer.backward({.g = step.g.view(), .dw = got.dw.view()}), Error);
  if (!on_cpu()) return;
  layer.forward(groups.view(), {.data = other.view()}, got.y.view(), Save::borrow);
  groups.ends[1] = 9;
  EXPECT_THROW(layer.backward({.g = step.g.view(), .dw = got.dw.view()}), Error);
  groups.ends[1] = 8;
  layer.backward({.g = step.g.view(), .dw = got.dw.view()});
}

TEST(LinearGrouped, Rejections) {
  Context context(cpu_options());
  const SomeGroups groups = packed_groups({3, 5});
  const Step<float> step(groups, false, 4);
  SwitchbackLinear layer(context, {.groups = 2, .in_features = inputs, .out_features = outputs});
  Matrix<float> y(groups.slots, outputs);
  EXPECT_EQ(
      failure(Status::invalid_state, [&] { layer.forward(groups.view(), step.rows(), y.view()); }),
      "forward: the layer has no weight; call set_weight first");
  layer.set_weight(step.weight.view());
  const SomeGroups three = packed_groups({3, 5, 0});
  EXPECT_EQ(failure(Status::invalid_argument,
                    [&] { layer.forward(three.view(), step.rows(), y.view()); }),
            "forward: groups.count = 3; it must be the layer's number of groups, 2");
  EXPECT_EQ(failure(Status::invalid_argument, [&] { layer.forward(step.x.view(), y.view()); }),
            "forward: the layer has 2 groups; a call without groups needs a layer with one group");
  LinearGrads rounded{.g = step.g.view()};
  rounded.rounding.emplace();
  EXPECT_EQ(failure(Status::invalid_argument,
                    [&] { layer.backward_from(groups.view(), step.rows(), rounded); }),
            "backward_from: rounding is given with groups; it must be empty");
  EXPECT_EQ(failure(Status::invalid_state, [&] { layer.backward({.g = step.g.view()}); }),
            "backward: no forward has saved anything; call forward with save = copy or borrow "
            "first");
}

}  // namespace
}  // namespace switchback::test
