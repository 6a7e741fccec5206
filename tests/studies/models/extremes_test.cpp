// SPDX-License-Identifier: Apache-2.0
// Tests of operations at the edges of their numbers: logits and scores whose exponentials overflow,
// sums with terms that are 2^24 times as large as the rest, and gradients that are NaN or Inf. A
// trainer's scaler must find these where the formula has them, and nowhere else.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "studies/models/kernels.hpp"
#include "studies/models/support.hpp"

namespace switchback::test {
namespace {

using namespace models;

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr double unit = 0x1p-24;  // the relative rounding error of f32

Tensor of_values(Memory& memory, DType dtype, std::int64_t rows, std::int64_t cols,
                 const std::function<double(std::int64_t)>& f) {
  Tensor t = tensor(memory, dtype, rows, cols);
  for (std::int64_t i = 0; i < t.size(); ++i)
    core::store_float(t.any().data, dtype, i, static_cast<float>(f(i)));
  return t;
}

// How many f32 additions follow each other in a sum over a row. First the lanes of four vectors
// (CPU) or 256 threads (GPU) each add their elements, then their sums are added.
double steps_of_row(const Setting& s, std::int64_t cols) {
  std::int64_t lanes = 256;
  if (s.context.state().on_cpu()) {
    const core::Isa isa = s.context.state().features.level();
    lanes = isa == core::Isa::scalar ? 4 : isa == core::Isa::sse4 ? 16 : 32;
  }
  return static_cast<double>(cols) / static_cast<double>(lanes) + 16;
}

// ---- Exponentials of large logits and scores ----

// Compares the loss of a row, whose logits are f(class), and its gradient with f64. Terms whose
// logit is more than 17 below the largest are less than a unit of the largest term each. The
// exponent of any other term is rounded twice, to 34 units. An exponential errs by 2e-7, or 3e-6
// for bf16. A sum over chunks of 16 steps errs by 22 units (on a GPU, by one per step). For bf16,
// the product of the shift and log2(e) is rounded. Its error is the error of the exponent: its
// number of units equals the shift.
void expect_loss(const Setting& s, std::int64_t vocabulary, std::int32_t target,
                 const std::function<double(std::int64_t)>& f, const std::string& name) {
  const std::string what = s.name + " " + name + " of " + std::to_string(vocabulary);
  Memory memory(visible_memory(s.context));
  const Tensor logits = of_values(memory, s.dtype, 1, vocabulary, f);
  const Values input = values_of(logits);
  const DeviceTokens targets = {target};
  const double want = reference::cross_entropy(input, targets);
  const double max = *std::max_element(input.begin(), input.end());
  const bool is_bf16 = s.dtype == DType::bf16;
  // The shift is at most 40 below the largest logit.
  const double steps = s.context.state().on_cpu() ? 22 : steps_of_row(s, vocabulary);
  const double error =
      2e-7 + (34 + steps) * unit + (is_bf16 ? 3e-6 + 2 * (std::fabs(max) + 40) * unit : 0.0);
  const auto expect = [&](double loss) {
    if (std::isfinite(want)) {
      EXPECT_NEAR(loss, want, error) << what;
    } else {
      EXPECT_EQ(loss, want) << what;
    }
  };
  expect(cross_entropy(s.context.state(), logits.any(), targets, 1, false));
  EXPECT_EQ(values_of(logits), input) << what;
  expect(cross_entropy(s.context.state(), logits.any(), targets, 1, true));
  double sum = 0;
  for (const double v : input)
    sum += std::exp(v - max);
  const Values got = values_of(logits);
  for (std::size_t i = 0; i < got.size(); ++i) {
    const bool is_target = static_cast<std::int32_t>(i) == target;
    const double p = std::exp(input[i] - max) / sum;
    // If an exponential is smaller than e^-17, its exponent errs by more units: 180 down to e^-88.
    const double relative = 2 * error + 180 * unit + (is_bf16 ? 0x1.02p-8 : 0.0);
    const double tolerance = relative * p + (is_target ? 2 * unit : 1e-37) +
                             (is_target && is_bf16 ? 0x1p-8 * (1 - p) : 0.0);
    ASSERT_NEAR(got[i], p - (is_target ? 1 : 0), tolerance) << what << " " << i;
  }
}

TEST(ModelsReference, CrossEntropyOfExtremeLogits) {
  for_all_settings([](const Setting& s) {
    for (const std::int64_t vocabulary : {13, 2500}) {
      const auto noise = [](std::int64_t i) { return static_cast<double>(i * 37 % 24) / 4 - 3; };
      const std::int32_t target = 11;
      for (const double middle : {1e4, -1e4, 88.0, -88.0})
        expect_loss(
            s, vocabulary, target, [&](std::int64_t i) { return middle + noise(i); },
            "around " + std::to_string(middle));
      expect_loss(
          s, vocabulary, target, [&](std::int64_t i) { return i % 2 == 0 ? 88.0 : -88.0; },
          "88 and -88");
      expect_loss(
          s, vocabulary, target, [](std::int64_t) { return 7.25; }, "equal");
      for (const std::int64_t at : {std::int64_t{11}, std::int64_t{0}, vocabulary - 1})
        expect_loss(
            s, vocabulary, target, [&](std::int64_t i) { return i == at ? 1e4 : noise(i); },
            "one above, at " + std::to_string(at));
      // Steps upward: several times, a logit is far above all earlier ones.
      expect_loss(
          s, vocabulary, target,
          [&](std::int64_t i) { return 300.0 * static_cast<double>(i / 600) + noise(i); }, "steps");
      expect_loss(
          s, vocabulary, target,
          [&](std::int64_t i) { return 300.0 * static_cast<double>(i / 600) - 900.0 + noise(i); },
          "steps from below");
      for (const double lower : {-88.0, -45.0, -30.0, 30.0})
        for (const double step : {50.0, 98.0})
          expect_loss(
              s, vocabulary, target,
              [&](std::int64_t i) { return (i < 1300 ? lower : lower + step) + noise(i); },
              fmt::format("from {} to {}", lower, lower + step));
      expect_loss(
          s, vocabulary, target,
          [&](std::int64_t i) { return i < vocabulary - 2 ? noise(i) : 30.0 + noise(i); },
          "the last above");
      for (const std::int64_t at : {std::int64_t{11}, vocabulary - 1})
        expect_loss(
            s, vocabulary, target, [&](std::int64_t i) { return i == at ? -700.0 : -infinity; },
            "one that is not -Inf, at " + std::to_string(at));
    }
  });
}

TEST(ModelsReference, CrossEntropyKeepsNonFiniteRowsVisibleAndApart) {
  for_all_settings([](const Setting& s) {
    constexpr std::int64_t vocabulary = 1500;
    Memory memory(visible_memory(s.context));
    for (const float value : {not_a_number, -not_a_number, infinity})
      for (const std::int64_t at : {0, 7, 1200, 1499}) {
        const auto run = [&](bool spoiled) {
          const Tensor logits = filled(memory, s.dtype, 3, vocabulary, 1, 6);
          if (spoiled) core::store_float(logits.any().data, s.dtype, vocabulary + at, value);
          const DeviceTokens targets = {1, 7, 3};
          const double loss = cross_entropy(s.context.state(), logits.any(), targets, 3, true);
          EXPECT_EQ(std::isnan(loss), spoiled) << s.name << " " << value << " " << at;
          return values_of(logits);
        };
        const Values clean = run(false), got = run(true);
        for (std::size_t i = 0; i < got.size(); ++i)
          if (i / vocabulary == 1) {
            ASSERT_TRUE(std::isnan(got[i])) << s.name << " " << value << " " << i;
          } else {
            ASSERT_EQ(got[i], clean[i]) << s.name << " " << value << " " << i;
          }
      }
  });
}

// The most that the gradient of one head may differ from its formula, if each weight, product and
// output has an error of `relative` of the magnitudes that it sums. qkv is laid out as in
// reference::attention_gradient.
Values bound_of_gradient(const Values& qkv, const Values& dout, std::int64_t length,
                         std::int64_t dim, double relative) {
  const double scale = 1 / std::sqrt(static_cast<double>(dim));
  const auto at = [&](std::int64_t row, std::int64_t part, std::int64_t i) {
    return static_cast<std::size_t>((row * 3 + part) * dim + i);
  };
  Values bound(qkv.size());
  for (std::int64_t t = 0; t < length; ++t) {
    const auto n = static_cast<std::size_t>(t) + 1;
    Values p(n), dp(n);
    double largest = -std::numeric_limits<double>::infinity(), total = 0, mean = 0;
    for (std::int64_t key = 0; key <= t; ++key) {
      const auto k = static_cast<std::size_t>(key);
      for (std::int64_t i = 0; i < dim; ++i) {
        p[k] += scale * qkv[at(t, 0, i)] * qkv[at(key, 1, i)];
        dp[k] += std::fabs(dout[static_cast<std::size_t>(t * dim + i)] * qkv[at(key, 2, i)]);
      }
      largest = std::max(largest, p[k]);
    }
    for (double& weight : p)
      total += weight = std::exp(weight - largest);
    for (std::size_t k = 0; k < n; ++k)
      mean += (p[k] /= total) * dp[k];
    for (std::int64_t key = 0; key <= t; ++key) {
      const auto k = static_cast<std::size_t>(key);
      const double dscore = relative * scale * p[k] * (dp[k] + mean);
      for (std::int64_t i = 0; i < dim; ++i) {
        bound[at(t, 0, i)] += dscore * std::fabs(qkv[at(key, 1, i)]);
        bound[at(key, 1, i)] += dscore * std::fabs(qkv[at(t, 0, i)]);
        bound[at(key, 2, i)] +=
            relative * p[k] * std::fabs(dout[static_cast<std::size_t>(t * dim + i)]);
      }
    }
  }
  return bound;
}

// The score of a key is b[key]: queries and keys have one element that is not 0, namely 4 and b,
// and the scale is 1/4. A score is rounded to a unit of itself when it is scaled by log2(e) and
// when the largest is subtracted, and its weight errs by as much. For bf16 see AttentionForward.
// Backward makes weights of the scores and of their log-sum-exp, which is rounded too.
TEST(ModelsReference, AttentionOfExtremeScores) {
  constexpr std::int64_t length = 100, dim = 16;
  const auto noise = [](std::int64_t i) { return static_cast<double>(i * 37 % 24) / 4 - 3; };
  const std::vector<std::pair<std::string, std::function<double(std::int64_t)>>> cases = {
      {"around 1e4", [&](std::int64_t i) { return 1e4 + noise(i); }},
      {"around -1e4", [&](std::int64_t i) { return -1e4 + noise(i); }},
      {"88 and -88", [](std::int64_t i) { return i % 3 == 0 ? 88.0 : -88.0; }},
      {"equal", [](std::int64_t) { return 3.5; }},
      {"one above", [](std::int64_t i) { return i == 70 ? 1e4 : 0.0; }},
      {"-Inf but for one", [](std::int64_t i) { return i == 0 ? -5.0 : -double{infinity}; }}};
  for_all_settings([&](const Setting& s) {
    Memory memory(visible_memory(s.context));
    const AttentionShape shape{.batch = 1, .length = length, .heads = 1, .head_dim = dim};
    for (const auto& [name, score] : cases) {
      const Tensor qkv = filled(memory, s.dtype, length, 3 * dim, 1);
      double largest = 0;
      for (std::int64_t t = 0; t < length; ++t)
        for (std::int64_t i = 0; i < 2 * dim; ++i) {
          const double v = i == 0 ? 4.0 : i == dim ? score(t) : 0.0;
          core::store_float(qkv.any().data, s.dtype, t * 3 * dim + i, static_cast<float>(v));
          if (std::isfinite(v)) largest = std::max(largest, std::fabs(v));
        }
      const Tensor out = tensor(memory, s.dtype, length, dim);
      const Tensor lse = tensor(memory, DType::f32, 1, length);
      attention(s.context.state(), shape, qkv.any(), out.any(), lse.floats());
      const Values input = values_of(qkv);
      expect_near(values_of(out), reference::attention(input, 1, length, 1, dim),
                  tolerance_of(s.dtype) + 4 * largest * unit, s.name + " " + name);
      for (const float v : lse.floats())
        ASSERT_TRUE(std::isfinite(v)) << s.name << " " << name;
      if (!std::all_of(input.begin(), input.end(), [](double v) { return std::isfinite(v); }))
        continue;  // the formula is NaN too: weights of zero times -Inf
      const Tensor dout = filled(memory, s.dtype, length, dim, 2);
      const Tensor dqkv = tensor(memory, s.dtype, length, 3 * dim);
      attention_backward(s.context.state(), shape, qkv.any(), out.any(), lse.floats(), dout.any(),
                         dqkv.any());
      const Values want = reference::attention_gradient(input, values_of(dout), 1, length, 1, dim);
      const double relative = tolerance_of(s.dtype) + 6 * largest * unit;
      const Values bound = bound_of_gradient(input, values_of(dout), length, dim, relative);
      const Values got = values_of(dqkv);
      for (std::size_t i = 0; i < got.size(); ++i)
        ASSERT_LE(std::fabs(got[i] - want[i]),
                  bound[i] + tolerance_of(s.dtype) * std::fabs(want[i]) + 1e-30)
            << s.name << " " << name << ": element " << i << " is " << got[i] << ", not "
            << want[i];
    }
  });
}

// ---- Sums with one large term ----

// The losses of rows are added in f64: a loss of 2^24 does not hide the others. The bound of each
// loss is that of expect_loss().
TEST(ModelsReference, LossOfManyTokensBesideALargeOne) {
  const std::int64_t rows = on_emulated() ? 600 : 5000;
  for_all_settings([&](const Setting& s) {
    Memory memory(visible_memory(s.context));
    const Tensor logits =
        of_values(memory, s.dtype, rows, 2, [](std::int64_t i) { return i == 1 ? -0x1p24 : 0.0; });
    DeviceTokens targets;
    for (std::int64_t r = 0; r < rows; ++r)
      targets.push_back(1);
    const double others = static_cast<double>(rows - 1);
    const double loss = cross_entropy(s.context.state(), logits.any(), targets, 1, false);
    EXPECT_NEAR(loss - 0x1p24, others * std::log(2.0), others * 6e-6) << s.name;
  });
}

// One class has a large logit. The term of any other class is less than half a unit of the largest
// term: if they were added to it one after the other they would be lost, and the loss would be
// 2.7e-3 too small.
TEST(ModelsReference, LossOfManyClassesBesideALargeOne) {
  for_all_settings([](const Setting& s) {
    expect_loss(
        s, 65536, 0, [](std::int64_t i) { return i == 0 ? 17.0 : 0.0; }, "many below one");
  });
}

// A row whose squares are 2^24 once and ones otherwise. An f32 sum errs by one of its units in each
// step; if the terms were added one after the other, all the ones would be lost.
TEST(ModelsReference, NormsOfWideRowsBesideALargeElement) {
  for_all_settings([](const Setting& s) {
    constexpr std::int64_t cols = 32768;
    Memory memory(visible_memory(s.context));
    const Tensor x =
        of_values(memory, s.dtype, 1, cols, [](std::int64_t i) { return i == 5 ? 4096.0 : 1.0; });
    const Tensor gain = of_values(memory, DType::f32, 1, cols, [](std::int64_t) { return 1.0; });
    const Tensor y = tensor(memory, s.dtype, 1, cols), rstd = tensor(memory, DType::f32, 1, 1);
    rms_norm(s.context.state(),
             {.x = x.any(), .gain = gain.floats(), .y = y.any(), .rstd = rstd.floats()});
    const double want = 1 / std::sqrt((0x1p24 + cols - 1) / cols + 1e-5);
    // The square root halves a relative error; three more operations follow.
    const double error = (steps_of_row(s, cols) / 2 + 3) * unit;
    EXPECT_NEAR(rstd.floats()[0] / want, 1, error) << s.name;
  });
}

// With a mean of 2^12, the squares leave no room in an f32 for a deviation of 1. The mean errs by
// one of its units in each step of its sum, and so do the deviations: by a tenth at most.
TEST(ModelsReference, LayerNormBesideALargeMean) {
  for_all_settings([](const Setting& s) {
    constexpr std::int64_t cols = 512;
    const double deviation = s.dtype == DType::f32 ? 1 : 32;
    Memory memory(visible_memory(s.context));
    const Tensor x = of_values(memory, s.dtype, 2, cols, [&](std::int64_t i) {
      return 4096 + (i * 7 % 4 < 2 ? deviation : -deviation);
    });
    const Tensor gain = of_values(memory, DType::f32, 1, cols, [](std::int64_t) { return 1.0; });
    const Tensor bias = of_values(memory, DType::f32, 1, cols, [](std::int64_t) { return 0.0; });
    const Tensor y = tensor(memory, s.dtype, 2, cols);
    const Tensor mean = tensor(memory, DType::f32, 1, 2), rstd = tensor(memory, DType::f32, 1, 2);
    layer_norm(s.context.state(), {.x = x.any(),
                                   .gain = gain.floats(),
                                   .bias = bias.floats(),
                                   .y = y.any(),
                                   .mean = mean.floats(),
                                   .rstd = rstd.floats()});
    const double error = 4096 * unit * steps_of_row(s, cols) / deviation;
    expect_near(values_of(y),
                reference::layer_norm(values_of(x), cols, values_of(gain), values_of(bias)),
                (s.dtype == DType::f32 ? 1e-5 : 0.005) + 2 * error, s.name);
  });
}

// The gradients of the norms' parameters are sums over blocks of 64 rows, and then over the blocks.
// Each step errs by a unit of the sum of magnitudes. One row is 2^24, the others are ones: if the
// rows were added one after the other, all ones would be lost.
TEST(ModelsReference, GradientsOfNormsBesideALargeRow) {
  const std::int64_t rows = on_emulated() ? 1024 : 8192;
  constexpr std::int64_t cols = 4;
  for_all_settings([&](const Setting& s) {
    Memory memory(visible_memory(s.context));
    const Tensor x = of_values(memory, s.dtype, rows, cols,
                               [](std::int64_t i) { return i % 2 == 0 ? 3.0 : -3.0; });
    const Tensor dy = of_values(memory, s.dtype, rows, cols,
                                [&](std::int64_t i) { return i / cols == 0 ? 0x1p24 : 1.0; });
    const Tensor gain = of_values(memory, DType::f32, 1, cols, [](std::int64_t) { return 1.0; });
    const Tensor mean = of_values(memory, DType::f32, 1, rows, [](std::int64_t) { return 0.0; });
    // With this rstd, the normalized elements are 1 and -1.
    const Tensor rstd =
        of_values(memory, DType::f32, 1, rows, [](std::int64_t) { return 1.0 / 3.0; });
    const Tensor dx = tensor(memory, s.dtype, rows, cols);
    const Tensor dgain = tensor(memory, DType::f32, 1, cols),
                 dbias = tensor(memory, DType::f32, 1, cols);
    const double want = 0x1p24 + static_cast<double>(rows - 1);
    const double error = want * unit * (64 + static_cast<double>(rows) / 64 + 2);
    ASSERT_LT(error, static_cast<double>(rows) / 2);  // lost ones would exceed this bound
    const auto expect = [&](const Tensor& sums, bool alternate, const std::string& what) {
      for (std::size_t c = 0; c < cols; ++c)
        EXPECT_NEAR(sums.floats()[c], alternate && c % 2 == 1 ? -want : want, error)
            << s.name << " " << what;
    };
    rms_norm_backward(s.context.state(), {.s = x.any(),
                                          .gain = gain.floats(),
                                          .rstd = rstd.floats(),
                                          .dy = dy.any(),
                                          .dx = dx.any(),
                                          .dgain = dgain.floats()});
    expect(dgain, true, "rmsnorm: dgain");
    layer_norm_backward(s.context.state(), {.s = x.any(),
                                            .gain = gain.floats(),
                                            .mean = mean.floats(),
                                            .rstd = rstd.floats(),
                                            .dy = dy.any(),
                                            .dx = dx.any(),
                                            .dgain = dgain.floats(),
                                            .dbias = dbias.floats()});
    expect(dgain, true, "layernorm: dgain");
    expect(dbias, false, "layernorm: dbias");
  });
}

// If a token repeats, the gradient of its embedding is a sum over many rows, which is also added in
// blocks of rows.
TEST(ModelsReference, GradientOfARepeatedTokenBesideALargeRow) {
  const std::int64_t rows = on_emulated() ? 2000 : 8000;
  constexpr std::int64_t cols = 3;
  for_all_settings([&](const Setting& s) {
    Memory memory(visible_memory(s.context));
    const Tensor dy = of_values(memory, s.dtype, rows, cols,
                                [&](std::int64_t i) { return i / cols == 0 ? 0x1p24 : 1.0; });
    const Tensor dtable = tensor(memory, DType::f32, 3, cols);
    DeviceTokens tokens;
    for (std::int64_t r = 0; r < rows; ++r)
      tokens.push_back(r % 10 == 9 ? 2 : 1);
    embed_backward(s.context.state(), tokens, dy.any(), {dtable.floats().data(), 3, cols}, {},
                   false);
    const double repeated = static_cast<double>(rows) * 0.9;
    const double want = 0x1p24 + repeated - 1;
    const double error = want * unit * (64 + static_cast<double>(rows) / 64);
    ASSERT_LT(error, repeated / 2);
    for (std::size_t c = 0; c < cols; ++c) {
      EXPECT_EQ(dtable.floats()[c], 0.0f) << s.name;
      EXPECT_NEAR(dtable.floats()[cols + c], want, error) << s.name;
      EXPECT_EQ(dtable.floats()[2 * cols + c], static_cast<float>(rows / 10)) << s.name;
    }
  });
}

// ---- Gradients that are not finite ----

enum class Reach { nothing, everything, unsaid };

// Elements of `spoiled` must not be finite where `reach` says everything. Where it says nothing,
// they must equal those of `clean`.
void expect_reach(const Values& clean, const Values& spoiled,
                  const std::function<Reach(std::int64_t)>& reach, const std::string& what) {
  ASSERT_EQ(clean.size(), spoiled.size()) << what;
  for (std::size_t i = 0; i < clean.size(); ++i) {
    const Reach r = reach(static_cast<std::int64_t>(i));
    ASSERT_TRUE(std::isfinite(clean[i])) << what << " " << i;
    if (r == Reach::everything) {
      ASSERT_FALSE(std::isfinite(spoiled[i])) << what << " " << i;
    } else if (r == Reach::nothing) {
      ASSERT_EQ(spoiled[i], clean[i]) << what << " " << i;
    }
  }
}
Reach only_if(bool reached) {
  return reached ? Reach::everything : Reach::nothing;
}

// Calls f(setting, memory, value, description) for each setting and for NaN and both infinities.
template <class F>
void for_all_spoils(F&& f) {
  for_all_settings([&](const Setting& s) {
    Memory memory(visible_memory(s.context));
    for (const float value : {not_a_number, infinity, -infinity})
      f(s, memory, value, s.name + " " + std::to_string(value));
  });
}

// A random gradient whose element (row, col) is `value`.
Tensor gradient_with(Memory& memory, DType dtype, std::int64_t rows, std::int64_t cols,
                     std::int64_t row, std::int64_t col, float value) {
  Tensor t = filled(memory, dtype, rows, cols, 21);
  core::store_float(t.any().data, dtype, row * cols + col, value);
  return t;
}

// A gradient that is not finite reaches the whole row of dx, through the row's mean of products. In
// the parameters' gradients it affects one column.
TEST(ModelsReference, NonFiniteGradientsOfNorms) {
  constexpr std::int64_t rows = 70, cols = 37, row = 66, col = 35;
  for_all_spoils([](const Setting& s, Memory& memory, float value, const std::string& what) {
    const auto run = [&](float at) {
      const Tensor x = filled(memory, s.dtype, rows, cols, 1);
      const Tensor dy = gradient_with(memory, s.dtype, rows, cols, row, col, at);
      const Tensor gain = of_values(memory, DType::f32, 1, cols, [](std::int64_t i) {
        return 1.0 + 0.01 * static_cast<double>(i);
      });
      const Tensor mean = filled(memory, DType::f32, 1, rows, 3, 0.01);
      const Tensor rstd = of_values(memory, DType::f32, 1, rows, [](std::int64_t) { return 1.5; });
      const Tensor dx = filled(memory, s.dtype, rows, cols, 4);
      std::vector<Tensor> sums;
      for (int i = 0; i < 3; ++i)
        sums.push_back(tensor(memory, DType::f32, 1, cols));
      rms_norm_backward(s.context.state(), {.s = x.any(),
                                            .gain = gain.floats(),
                                            .rstd = rstd.floats(),
                                            .dy = dy.any(),
                                            .dx = dx.any(),
                                            .dgain = sums[0].floats()});
      std::vector<Values> all = {values_of(dx)};
      layer_norm_backward(s.context.state(), {.s = x.any(),
                                              .gain = gain.floats(),
                                              .mean = mean.floats(),
                                              .rstd = rstd.floats(),
                                              .dy = dy.any(),
                                              .dx = dx.any(),
                                              .dgain = sums[1].floats(),
                                              .dbias = sums[2].floats()});
      all.push_back(values_of(dx));
      for (const Tensor& t : sums)
        all.push_back(values_of(t));
      return all;
    };
    const auto clean = run(0.5f), spoiled = run(value);
    for (std::size_t i = 0; i < clean.size(); ++i)
      expect_reach(
          clean[i], spoiled[i],
          [&](std::int64_t at) { return only_if(i < 2 ? at / cols == row : at == col); },
          what + " " + std::to_string(i));
  });
}

TEST(ModelsReference, NonFiniteGradientsOfElements) {
  constexpr std::int64_t rows = 5, cols = 37, row = 3, col = 35;
  for_all_spoils([](const Setting& s, Memory& memory, float value, const std::string& what) {
    const auto expect = [&](const std::string& name, const std::function<Tensor(float)>& run,
                            const std::function<bool(std::int64_t)>& reached) {
      expect_reach(
          values_of(run(0.5f)), values_of(run(value)),
          [&](std::int64_t i) { return only_if(reached(i)); }, what + " " + name);
    };
    expect(
        "swiglu",
        [&](float at) {
          const Tensor gate_up = filled(memory, s.dtype, rows, 2 * cols, 1, 3);
          const Tensor dh = gradient_with(memory, s.dtype, rows, cols, row, col, at);
          Tensor dgate_up = tensor(memory, s.dtype, rows, 2 * cols);
          swiglu_backward(s.context.state(), gate_up.any(), dh.any(), dgate_up.any());
          return dgate_up;
        },
        [](std::int64_t i) { return i / (2 * cols) == row && i % (2 * cols) % cols == col; });
    // RoPE rotates pairs of elements, such as 4 and 10 of a head of 12: both are affected.
    expect(
        "rope",
        [&](float at) {
          const Tensor angles = of_values(memory, DType::f32, rows, 6,
                                          [](std::int64_t i) { return i % 2 == 0 ? 0.6 : 0.8; });
          Tensor g = gradient_with(memory, s.dtype, rows, 3 * 2 * 12, row, 12 + 10, at);
          rope(s.context.state(), {2, 12, rows, angles.floats(), angles.floats()}, g.any(), true);
          return g;
        },
        [](std::int64_t i) { return i / 72 == row && (i % 72 == 12 + 4 || i % 72 == 12 + 10); });
    expect(
        "sum",
        [&](float at) {
          Tensor to = filled(memory, s.dtype, rows, cols, 1);
          add(s.context.state(), gradient_with(memory, s.dtype, rows, cols, row, col, at).any(),
              to.any());
          return to;
        },
        [](std::int64_t i) { return i == row * cols + col; });
    // The gradient of a dropped element is 0, whatever dy is there.
    const auto kept = [](std::int64_t i) { return philox::element_bits(5, 6, i) >= (1u << 31); };
    for (const std::int64_t at_col : {col, col - 1, col - 2, col - 3})
      expect(
          "dropout",
          [&](float at) {
            Tensor g = gradient_with(memory, s.dtype, rows, cols, row, at_col, at);
            dropout(s.context.state(), {.p = 0.5f, .key = 5, .stream = 6}, g.any());
            return g;
          },
          [&](std::int64_t i) { return i == row * cols + at_col && kept(i); });
    // The gradient of a token's embedding, if the token also occurs before and after the row; then
    // that of its position.
    const DeviceTokens tokens = {2, 1, 0, 1, 1};
    const auto embedding = [&](bool positions) {
      return [&, positions](float at) {
        const Tensor dy = gradient_with(memory, s.dtype, rows, cols, row, col, at);
        Tensor dtable = tensor(memory, DType::f32, 4, cols);
        Tensor dpositions = tensor(memory, DType::f32, 2, cols);
        embed_backward(s.context.state(), tokens, dy.any(), {dtable.floats().data(), 4, cols},
                       {dpositions.floats().data(), 2, cols}, false);
        return positions ? std::move(dpositions) : std::move(dtable);
      };
    };
    // Row 1 of each table is affected: that of token 1 and of position 1.
    const auto of_row_one = [](std::int64_t i) { return i == cols + col; };
    expect("embedding", embedding(false), of_row_one);
    expect("positions", embedding(true), of_row_one);
  });
}

// A non-finite gradient of the output of query t of a head reaches the query's own gradient, and
// those of the keys and values that it sees. It reaches no other head, sequence or query. Later
// keys of the same tile may be affected: their weights are zero, but they are in the same products.
// The gradients of keys after this tile do not change.
TEST(ModelsReference, NonFiniteGradientsOfAttention) {
  constexpr std::int64_t length = 150, heads = 2, dim = 8, width = heads * dim, query = 30;
  constexpr std::int64_t tile = 64;
  for_all_spoils([](const Setting& s, Memory& memory, float value, const std::string& what) {
    const AttentionShape shape{.batch = 2, .length = length, .heads = heads, .head_dim = dim};
    const auto run = [&](float at) {
      const Tensor qkv = filled(memory, s.dtype, shape.rows(), 3 * width, 1);
      const Tensor out = tensor(memory, s.dtype, shape.rows(), width);
      const Tensor lse = tensor(memory, DType::f32, 1, shape.rows() * heads);
      attention(s.context.state(), shape, qkv.any(), out.any(), lse.floats());
      const Tensor dout = gradient_with(memory, s.dtype, shape.rows(), width, query, dim + 3, at);
      const Tensor dqkv = tensor(memory, s.dtype, shape.rows(), 3 * width);
      attention_backward(s.context.state(), shape, qkv.any(), out.any(), lse.floats(), dout.any(),
                         dqkv.any());
      return values_of(dqkv);
    };
    expect_reach(
        run(0.5f), run(value),
        [](std::int64_t i) {
          const std::int64_t row = i / (3 * width), part = i / width % 3, head = i / dim % heads;
          if (row >= length || head != 1) return Reach::nothing;
          if (part == 0) return only_if(row == query);
          if (row > query) return row < tile ? Reach::unsaid : Reach::nothing;
          return only_if(part == 1 || i % dim == 3);
        },
        what);
  });
}

}  // namespace
}  // namespace switchback::test
