// SPDX-License-Identifier: Apache-2.0
// Tests of the fragmented layer: its results have the bits of the SwitchBack layers that its
// definition names, and its gradients are those of the definition in f64.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "linear/linear_support.hpp"
#include "quant/gelu.hpp"
#include "switchback/fragmented_linear.hpp"

namespace switchback::test::fragmented {
namespace {

struct Shape {
  std::int64_t rows = 7;
  std::int64_t k = 48;
  std::int64_t n = 21;
  std::int64_t fragments = 4;
  std::int64_t rank = 3;
  [[nodiscard]] std::int64_t each() const { return k / fragments; }
};

std::string text_of(const Shape& s) {
  return "B " + std::to_string(s.rows) + " K " + std::to_string(s.k) + " N " + std::to_string(s.n) +
         " F " + std::to_string(s.fragments) + " R " + std::to_string(s.rank);
}

// Shapes with one fragment, one column per fragment, no rows, one row, fewer columns than lanes,
// odd sizes, and many rows.
std::vector<Shape> all_shapes() {
  return {{},
          {.rows = 0},
          {.rows = 1},
          {.fragments = 1},
          {.rows = 3, .k = 10, .n = 1, .fragments = 10, .rank = 1},
          {.rows = 40, .k = 198, .n = 17, .fragments = 3, .rank = 7},
          {.rows = 130, .k = 96, .n = 5, .fragments = 48, .rank = 2}};
}

template <class T>
struct Operands {
  explicit Operands(const Shape& s, bool exact = false)
      : x(s.rows, s.k, {3, 0}),
        weight(s.n, s.k, {1, 0}),
        selector(s.fragments, s.each(), {2, 0}),
        down(s.rank, s.k),
        up(s.n, s.rank, {5, 0}),
        g(s.rows, s.n, {2, 0}) {
    Random random(1);
    for (Matrix<T>* m : {&x, &weight, &selector, &down, &up, &g})
      for (std::int64_t r = 0; r < m->rows(); ++r)
        for (std::int64_t c = 0; c < m->cols(); ++c)
          m->set(r, c,
                 T(exact ? static_cast<float>(random.below(9) - 4)
                         : random.normal() * (m == &selector ? 0.3f : 1.0f)));
  }
  [[nodiscard]] FragmentedWeights weights() const {
    return {weight.view(), selector.view(), down.view(), up.view()};
  }
  Matrix<T> x, weight, selector, down, up, g;
};

template <class T>
struct Results {
  explicit Results(const Shape& s)
      : y(s.rows, s.n, {1, 0}),
        dx(s.rows, s.k, {2, 0}),
        dweight(s.n, s.k),
        dselector(s.fragments, s.each(), {1, 0}),
        ddown(s.rank, s.k),
        dup(s.n, s.rank) {
    for (Matrix<T>* m : {&y, &dx, &dweight, &dselector, &ddown, &dup})
      fill_constant(*m, T(0.25f));
  }
  FragmentedLinearGrads grads(const Operands<T>& o, bool accumulate = false) {
    return {.g = o.g.view(),
            .dx = dx.view(),
            .dweight = dweight.view(),
            .dselector = dselector.view(),
            .ddown = ddown.view(),
            .dup = dup.view(),
            .accumulate = accumulate};
  }
  Matrix<T> y, dx, dweight, dselector, ddown, dup;
};

FragmentedLinearOptions options_of(const Shape& s, Mode mode, DType dtype) {
  return {.in_features = s.k,
          .out_features = s.n,
          .fragments = s.fragments,
          .rank = s.rank,
          .mode = mode,
          .dtype = dtype};
}

template <class T>
void expect_same(const Matrix<T>& got, const Matrix<T>& want, const char* what) {
  for (std::int64_t r = 0; r < want.rows(); ++r)
    for (std::int64_t c = 0; c < want.cols(); ++c) {
      const float a = got.get_float(r, c);
      const float b = want.get_float(r, c);
      ASSERT_TRUE(a == b || (std::isnan(a) && std::isnan(b)))
          << what << " " << r << "," << c << ": " << a << " instead of " << b;
    }
  EXPECT_TRUE(got.guards_intact()) << what;
}

// The sum of term(i) in the order of the layer: in 32 lanes, whose halves are then added.
template <class Term>
float lane_sum(std::int64_t n, const Term& term) {
  std::array<float, 32> lanes{};
  for (std::int64_t i = 0; i < n; ++i)
    lanes[static_cast<std::size_t>(i % 32)] += term(i);
  for (std::size_t half = 16; half > 0; half /= 2)
    for (std::size_t l = 0; l < half; ++l)
      lanes[l] += lanes[l + half];
  return lanes[0];
}

// The logits [B,F] of all rows and fragments.
template <class T>
Matrix<float> logits(const Shape& s, const Operands<T>& o) {
  Matrix<float> values(s.rows, s.fragments);
  for (std::int64_t r = 0; r < s.rows; ++r)
    for (std::int64_t f = 0; f < s.fragments; ++f)
      values.set(r, f, lane_sum(s.each(), [&](std::int64_t i) {
                   return o.x.get_float(r, f * s.each() + i) * o.selector.get_float(f, i);
                 }));
  return values;
}

template <class T>
Matrix<float> softmax(const Shape& s, const Operands<T>& o) {
  Matrix<float> p = logits(s, o);
  for (std::int64_t r = 0; r < s.rows; ++r) {
    float largest = -std::numeric_limits<float>::infinity();
    for (std::int64_t f = 0; f < s.fragments; ++f)
      if (p.get(r, f) > largest) largest = p.get(r, f);
    for (std::int64_t f = 0; f < s.fragments; ++f) {
      const float v = p.get(r, f) - largest;
      p.set(r, f, quant::gelu::exponential(v < -120.0f ? -120.0f : v, 0.0f));
    }
    const float sum = lane_sum(s.fragments, [&](std::int64_t f) { return p.get(r, f); });
    for (std::int64_t f = 0; f < s.fragments; ++f)
      p.set(r, f, p.get(r, f) / sum);
  }
  return p;
}

template <class T>
SwitchbackLinear layer_of(Context& context, Mode mode, ConstAnyMatrix weight) {
  SwitchbackLinear layer(context, {.in_features = weight.cols,
                                   .out_features = weight.rows,
                                   .mode = mode,
                                   .dtype = dtype_of<T>});
  layer.set_weight(weight);
  return layer;
}

// y = a + b, rounded once to y's type.
template <class T>
void add(const Matrix<float>& a, const Matrix<float>& b, Matrix<T>& y) {
  for (std::int64_t r = 0; r < y.rows(); ++r)
    for (std::int64_t c = 0; c < y.cols(); ++c)
      y.set(r, c, T(a.get(r, c) + b.get(r, c)));
}

// A soft step of the fragmented layer, computed by three SwitchBack layers.
template <class T>
void soft_reference(Context& context, const Shape& s, const Operands<T>& o, Mode mode,
                    Results<T>& out, bool accumulate) {
  Matrix<T> selected(s.rows, s.k), rest(s.rows, s.k), narrow(s.rows, s.rank);
  const Matrix<float> p = softmax(s, o);
  for (std::int64_t r = 0; r < s.rows; ++r)
    for (std::int64_t c = 0; c < s.k; ++c) {
      const float weight = p.get(r, c / s.each());
      selected.set(r, c, T(weight * o.x.get_float(r, c)));
      rest.set(r, c, T((1.0f - weight) * o.x.get_float(r, c)));
    }
  SwitchbackLinear whole = layer_of<T>(context, mode, o.weight.view());
  SwitchbackLinear down = layer_of<T>(context, mode, o.down.view());
  SwitchbackLinear up = layer_of<T>(context, mode, o.up.view());
  Matrix<float> by_whole(s.rows, s.n), by_up(s.rows, s.n);
  whole.forward(selected.view(), by_whole.view(), Save::caller);
  down.forward(rest.view(), narrow.view(), Save::caller);
  up.forward(narrow.view(), by_up.view(), Save::caller);
  context.synchronize();
  add(by_whole, by_up, out.y);

  Matrix<float> d_selected(s.rows, s.k), d_rest(s.rows, s.k);
  Matrix<T> d_narrow(s.rows, s.rank);
  whole.backward_from({selected.view(), {}}, {.g = o.g.view(),
                                              .dx = d_selected.view(),
                                              .dw = out.dweight.view(),
                                              .accumulate = accumulate});
  up.backward_from(
      {narrow.view(), {}},
      {.g = o.g.view(), .dx = d_narrow.view(), .dw = out.dup.view(), .accumulate = accumulate});
  down.backward_from({rest.view(), {}}, {.g = d_narrow.view(),
                                         .dx = d_rest.view(),
                                         .dw = out.ddown.view(),
                                         .accumulate = accumulate});
  context.synchronize();
  Matrix<float> sums(s.fragments, s.each());
  for (std::int64_t r = 0; r < s.rows; ++r) {
    Matrix<float> d(1, s.fragments);
    for (std::int64_t f = 0; f < s.fragments; ++f)
      d.set(0, f, lane_sum(s.each(), [&](std::int64_t i) {
              const std::int64_t c = f * s.each() + i;
              return o.x.get_float(r, c) * (d_selected.get(r, c) - d_rest.get(r, c));
            }));
    const float mean =
        lane_sum(s.fragments, [&](std::int64_t f) { return p.get(r, f) * d.get(0, f); });
    for (std::int64_t c = 0; c < s.k; ++c) {
      const std::int64_t f = c / s.each(), i = c % s.each();
      const float weight = p.get(r, f);
      const float d_logit = weight * (d.get(0, f) - mean);
      const float through_products =
          weight * d_selected.get(r, c) + (1.0f - weight) * d_rest.get(r, c);
      out.dx.set(r, c, T(through_products + d_logit * o.selector.get_float(f, i)));
      sums.set(f, i, sums.get(f, i) + d_logit * o.x.get_float(r, c));
    }
  }
  for (std::int64_t f = 0; f < s.fragments; ++f)
    for (std::int64_t i = 0; i < s.each(); ++i) {
      const float old = accumulate ? out.dselector.get_float(f, i) : 0.0f;
      out.dselector.set(f, i, T(sums.get(f, i) + old));
    }
}

template <class T>
void expect_same(const Results<T>& got, const Results<T>& want) {
  expect_same(got.y, want.y, "y");
  expect_same(got.dx, want.dx, "dx");
  expect_same(got.dweight, want.dweight, "dweight");
  expect_same(got.dselector, want.dselector, "dselector");
  expect_same(got.ddown, want.ddown, "ddown");
  expect_same(got.dup, want.dup, "dup");
}

template <class T>
void check_soft(const Shape& s, Mode mode, Save save, bool accumulate) {
  const Operands<T> o(s);
  for (const ContextOptions& options : all_contexts()) {
    SCOPED_TRACE(describe(options) + " " + text_of(s) + " mode " + std::string(mode_name(mode)) +
                 " save " + std::to_string(static_cast<int>(save)));
    Context context(options);
    Results<T> want(s);
    soft_reference(context, s, o, mode, want, accumulate);
    Results<T> got(s);
    FragmentedLinear layer(context, options_of(s, mode, dtype_of<T>));
    layer.set_weights(o.weights());
    auto x = std::make_unique<Matrix<T>>(o.x);
    layer.forward(x->view(), got.y.view(), save);
    context.synchronize();
    if (save == Save::copy) x.reset();
    if (save == Save::caller)
      layer.backward_from(x->view(), got.grads(o, accumulate));
    else
      layer.backward(got.grads(o, accumulate));
    context.synchronize();
    expect_same(got, want);
    if (accumulate || save == Save::caller) continue;
    Results<T> again(s);
    layer.backward(again.grads(o));
    context.synchronize();
    expect_same(again.dweight, want.dweight, "dweight again");
    expect_same(again.dselector, want.dselector, "dselector again");
  }
}

TEST(LinearFragmented, SoftStepsOfEveryShape) {
  for (const Shape& s : all_shapes())
    for (const Mode mode : {Mode::standard, Mode::rowwise, Mode::global})
      check_soft<float>(s, mode, Save::borrow, false);
}

TEST(LinearFragmented, WhatIsSavedAndTypes) {
  for (const Save save : {Save::copy, Save::borrow, Save::caller})
    check_soft<float>({}, Mode::rowwise, save, true);
  for (const Mode mode : {Mode::standard, Mode::rowwise, Mode::automatic}) {
    check_soft<half>({}, mode, Save::copy, false);
    check_soft<bfloat16>({}, mode, Save::caller, true);
  }
}

// For each row the fragment with the largest logit: of equal ones the first, a NaN never.
template <class T>
std::vector<std::int64_t> chosen(const Shape& s, const Operands<T>& o) {
  const Matrix<float> values = logits(s, o);
  std::vector<std::int64_t> best;
  for (std::int64_t r = 0; r < s.rows; ++r) {
    best.push_back(0);
    for (std::int64_t f = 1; f < s.fragments; ++f)
      if (values.get(r, f) > values.get(r, best.back()) ||
          (std::isnan(values.get(r, best.back())) && !std::isnan(values.get(r, f))))
        best.back() = f;
  }
  return best;
}

// A hard forward, computed by one layer per row: the fragment that it chose, times the fragment's
// part of the weight.
template <class T>
Matrix<T> hard_reference(Context& context, const Shape& s, const Operands<T>& o, Mode mode) {
  Matrix<T> y(s.rows, s.n);
  Matrix<T> rest(s.rows, s.k), narrow(s.rows, s.rank);
  Matrix<float> by_part(s.rows, s.n), by_up(s.rows, s.n);
  const std::vector<std::int64_t> choice = chosen(s, o);
  for (std::int64_t r = 0; r < s.rows; ++r) {
    const std::int64_t f = choice[static_cast<std::size_t>(r)];
    for (std::int64_t c = 0; c < s.k; ++c)
      rest.set(r, c, c / s.each() == f ? T(0.0f) : o.x.get(r, c));
    SwitchbackLinear layer = layer_of<T>(
        context, mode,
        {o.weight.data() + f * s.each(), dtype_of<T>, s.n, s.each(), o.weight.stride()});
    layer.forward(
        {o.x.data() + r * o.x.stride() + f * s.each(), dtype_of<T>, 1, s.each(), s.each()},
        {by_part.data() + r * s.n, DType::f32, 1, s.n, s.n});
  }
  SwitchbackLinear down = layer_of<T>(context, mode, o.down.view());
  SwitchbackLinear up = layer_of<T>(context, mode, o.up.view());
  down.forward(rest.view(), narrow.view());
  up.forward(narrow.view(), by_up.view());
  context.synchronize();
  add(by_part, by_up, y);
  return y;
}

// Compares hard forwards with layers. Floating point products of groups and of one row add in
// different orders, so the numbers are small integers there, whose sums are exact.
template <class T>
void check_hard(const Shape& s, Mode mode) {
  const Operands<T> o(s, !on_cpu() || !traits_of(mode).is_int8());
  for (const ContextOptions& options : all_contexts()) {
    SCOPED_TRACE(describe(options) + " " + text_of(s) + " mode " + std::string(mode_name(mode)));
    Context context(options);
    const Matrix<T> want = hard_reference(context, s, o, mode);
    FragmentedLinear layer(context, options_of(s, mode, dtype_of<T>));
    layer.set_weights(o.weights());
    Results<T> got(s);
    layer.forward_hard(o.x.view(), got.y.view());
    context.synchronize();
    expect_same(got.y, want, "y");
    layer.prepare_for_eval();
    Results<T> prepared(s);
    layer.forward_hard(o.x.view(), prepared.y.view());
    context.synchronize();
    expect_same(prepared.y, want, "y in eval");
  }
}

TEST(LinearFragmented, HardForwardsOfEveryShape) {
  for (const Shape& s : all_shapes())
    for (const Mode mode : {Mode::standard, Mode::rowwise, Mode::global})
      check_hard<float>(s, mode);
  check_hard<half>({}, Mode::rowwise);
  check_hard<bfloat16>({}, Mode::standard);
  check_hard<bfloat16>({}, Mode::automatic);
}

std::vector<double> values(const Matrix<float>& m) {
  std::vector<double> v;
  for (std::int64_t r = 0; r < m.rows(); ++r)
    for (std::int64_t c = 0; c < m.cols(); ++c)
      v.push_back(m.get(r, c));
  return v;
}

// The operands of a soft layer in f64, and the loss Σ g ⊙ y as a function of them.
struct SoftLoss {
  SoftLoss(const Shape& s_, const Operands<float>& o)
      : s(s_),
        x(values(o.x)),
        weight(values(o.weight)),
        selector(values(o.selector)),
        down(values(o.down)),
        up(values(o.up)),
        g(values(o.g)) {}

  [[nodiscard]] double operator()() const {
    double loss = 0;
    for (std::int64_t b = 0; b < s.rows; ++b) {
      std::vector<double> p(static_cast<std::size_t>(s.fragments));
      for (std::int64_t c = 0; c < s.k; ++c)
        p[static_cast<std::size_t>(c / s.each())] += at(x, b * s.k + c) * at(selector, c);
      double sum = 0;
      for (double& v : p)
        sum += v = std::exp(v);
      for (std::int64_t n = 0; n < s.n; ++n)
        for (std::int64_t c = 0; c < s.k; ++c) {
          double low_rank = 0;
          for (std::int64_t r = 0; r < s.rank; ++r)
            low_rank += at(up, n * s.rank + r) * at(down, r * s.k + c);
          const double selected = at(p, c / s.each()) / sum;
          loss += at(g, b * s.n + n) * at(x, b * s.k + c) *
                  (selected * at(weight, n * s.k + c) + (1 - selected) * low_rank);
        }
    }
    return loss;
  }
  static double at(const std::vector<double>& v, std::int64_t i) {
    return v[static_cast<std::size_t>(i)];
  }

  Shape s;
  std::vector<double> x, weight, selector, down, up, g;
};

// Compares with central differences in f64, which are off by h² times a third derivative: h = 1e-4
// leaves about 1e-7 of the loss' scale. The layer computes in f32: each gradient is a few hundred
// products, so 1e-4 of the largest one is a hundred times their rounding.
TEST(LinearFragmented, GradientsAreThoseOfTheDefinition) {
  const Shape s = {.rows = 3, .k = 24, .n = 5, .fragments = 4, .rank = 2};
  const Operands<float> o(s);
  Context context(device_options());
  FragmentedLinear layer(context, options_of(s, Mode::standard, DType::f32));
  layer.set_weights(o.weights());
  Results<float> got(s);
  layer.forward(o.x.view(), got.y.view(), Save::borrow);
  layer.backward(got.grads(o));
  context.synchronize();
  SoftLoss loss(s, o);
  const auto compare = [&](std::vector<double>& inputs, const Matrix<float>& gradient,
                           const char* what) {
    double largest = 0;
    std::vector<double> want;
    for (double& input : inputs) {
      constexpr double h = 1e-4;
      const double middle = input;
      input = middle + h;
      const double above = loss();
      input = middle - h;
      want.push_back((above - loss()) / (2 * h));
      input = middle;
      largest = std::max(largest, std::fabs(want.back()));
    }
    for (std::int64_t r = 0; r < gradient.rows(); ++r)
      for (std::int64_t c = 0; c < gradient.cols(); ++c)
        ASSERT_NEAR(gradient.get(r, c), want[static_cast<std::size_t>(r * gradient.cols() + c)],
                    1e-4 * largest)
            << what << " " << r << "," << c;
  };
  compare(loss.x, got.dx, "dx");
  compare(loss.weight, got.dweight, "dweight");
  compare(loss.selector, got.dselector, "dselector");
  compare(loss.down, got.ddown, "ddown");
  compare(loss.up, got.dup, "dup");
}

// Skipping some gradients does not change the others.
TEST(LinearFragmented, GradientsMayBeSkipped) {
  const Shape s;
  const Operands<float> o(s);
  Context context(device_options());
  FragmentedLinear layer(context, options_of(s, Mode::rowwise, DType::f32));
  layer.set_weights(o.weights());
  Results<float> all(s), some(s);
  layer.forward(o.x.view(), all.y.view(), Save::borrow);
  layer.backward(all.grads(o));
  layer.backward({.g = o.g.view(), .dselector = some.dselector.view()});
  layer.backward({.g = o.g.view(), .ddown = some.ddown.view()});
  layer.backward({.g = o.g.view(), .dweight = some.dweight.view(), .dup = some.dup.view()});
  layer.backward({.g = o.g.view(), .dx = some.dx.view()});
  layer.backward({.g = o.g.view()});
  context.synchronize();
  some.y = all.y;
  expect_same(some, all);
}

// A row with a NaN or an Inf affects only its own result, soft and hard. If there is no largest
// logit, or several are equal, the first fragment is used.
TEST(LinearFragmented, NonFiniteRowsAndTies) {
  const Shape s;
  const Operands<float> clean(s, true);
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Operands<float> o(s, true);
    o.x.set(2, 5, bad);
    Context context(device_options());
    FragmentedLinear layer(context, options_of(s, Mode::rowwise, DType::f32));
    layer.set_weights(o.weights());
    Results<float> got(s), want(s);
    layer.forward(clean.x.view(), want.y.view());
    layer.forward(o.x.view(), got.y.view());
    context.synchronize();
    const auto compare = [&] {
      for (std::int64_t r = 0; r < s.rows; ++r)
        for (std::int64_t c = 0; c < s.n; ++c) {
          if (r == 2)
            EXPECT_TRUE(std::isnan(got.y.get(r, c))) << c;
          else
            EXPECT_EQ(got.y.get(r, c), want.y.get(r, c)) << r << "," << c;
        }
    };
    compare();
    layer.forward_hard(clean.x.view(), want.y.view());
    layer.forward_hard(o.x.view(), got.y.view());
    context.synchronize();
    compare();
  }
  Operands<float> zeros(s, true);
  for (std::int64_t f = 0; f < s.fragments; ++f)
    for (std::int64_t c = 0; c < s.each(); ++c)
      zeros.selector.set(f, c, 0.0f);
  Context context(device_options());
  FragmentedLinear layer(context, options_of(s, Mode::rowwise, DType::f32));
  layer.set_weights(zeros.weights());
  Results<float> got(s);
  layer.forward_hard(zeros.x.view(), got.y.view());
  context.synchronize();
  expect_same(got.y, hard_reference(context, s, zeros, Mode::rowwise), "y");
}

// After prepare_for_eval the caller may free the weights; an update of the weights makes new codes.
TEST(LinearFragmented, EvalAndUpdates) {
  const Shape s;
  auto o = std::make_unique<Operands<float>>(s, true);
  const Matrix<float> x = o->x;
  Context context(device_options());
  const Matrix<float> want = hard_reference(context, s, *o, Mode::rowwise);
  FragmentedLinear layer(context, options_of(s, Mode::rowwise, DType::f32));
  layer.set_weights(o->weights());
  layer.prepare_for_eval();
  EXPECT_GT(layer.cached_weight_bytes(), 0u);
  context.synchronize();
  o.reset();
  Results<float> got(s);
  layer.forward_hard(x.view(), got.y.view());
  context.synchronize();
  expect_same(got.y, want, "y");
  EXPECT_THROW(layer.forward(x.view(), got.y.view()), Error);
  EXPECT_THROW(layer.backward({.g = got.y.view()}), Error);

  Operands<float> other(s, true);
  other.selector.set(0, 0, 40.0f);
  other.weight.set(0, 0, 50.0f);
  layer.set_weights(other.weights());
  layer.forward_hard(other.x.view(), got.y.view());
  context.synchronize();
  expect_same(got.y, hard_reference(context, s, other, Mode::rowwise), "y of new weights");
  layer.prepare_for_eval();
  other.up.set(1, 1, 30.0f);
  other.selector.set(1, 0, 60.0f);
  layer.weights_updated();
  layer.forward_hard(other.x.view(), got.y.view());
  context.synchronize();
  expect_same(got.y, hard_reference(context, s, other, Mode::rowwise), "y of changed weights");
}

TEST(LinearFragmentedRejection, NamesArgumentValueAndRule) {
  constexpr Status bad = Status::invalid_argument;
  const Shape s;
  Context context(cpu_options());
  const auto make = [&](const FragmentedLinearOptions& options) {
    return failure(bad, [&] { FragmentedLinear(context, options); });
  };
  EXPECT_EQ(make({.in_features = 10, .out_features = 4, .fragments = 3}),
            "fragmented linear: in_features = 10; it must be a multiple of fragments = 3");
  EXPECT_EQ(make({.in_features = 10, .out_features = 4, .fragments = 0}),
            "fragmented linear: fragments = 0; it must be at least 1");
  EXPECT_EQ(make({.in_features = 10, .out_features = 4, .fragments = 2, .rank = -1}),
            "fragmented linear: rank = -1; it must not be negative");
  EXPECT_EQ(make({.in_features = 8,
                  .out_features = 4,
                  .fragments = 2,
                  .mode = Mode::global_mem_efficient}),
            "fragmented linear: mode global_mem_efficient; it keeps only codes of x, and the "
            "gradient of the selector needs x");
  const Operands<float> o(s);
  FragmentedLinear layer(context, options_of(s, Mode::rowwise, DType::f32));
  Results<float> got(s);
  EXPECT_EQ(failure(Status::invalid_state, [&] { layer.forward(o.x.view(), got.y.view()); }),
            "forward: the layer has no weights; call set_weights first");
  FragmentedWeights weights = o.weights();
  weights.up = o.down.view();
  EXPECT_EQ(failure(bad, [&] { layer.set_weights(weights); }),
            "set_weights: up is [3,48]; it must be [N,R] = [21,3]");
  layer.set_weights(o.weights());
  EXPECT_EQ(failure(Status::invalid_state, [&] { layer.backward(got.grads(o)); }),
            "backward: no forward has saved anything; call forward with save = copy or borrow "
            "first");
  layer.prepare_for_eval();
  EXPECT_EQ(failure(Status::invalid_state, [&] { layer.forward(o.x.view(), got.y.view()); }),
            "forward: the layer is prepared for eval, and has only the codes for forward_hard; "
            "call weights_updated or set_weights first");
  EXPECT_EQ(FragmentedLinear(context, {.in_features = 64, .out_features = 4, .fragments = 2})
                .options()
                .rank,
            2);
}

}  // namespace
}  // namespace switchback::test::fragmented
