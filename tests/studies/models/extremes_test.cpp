// SPDX-License-Identifier: Apache-2.0
// Tests of losses and norms at the edges of their numbers: logits whose exponentials overflow, or
// that are NaN or Inf, and sums with terms that are much larger than the rest.
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
      const auto expect = [&](const std::string& name,
                              const std::function<double(std::int64_t)>& f) {
        expect_loss(s, vocabulary, 11, f, name);
      };
      for (const double middle : {1e4, -1e4, 88.0, -88.0})
        expect(fmt::format("around {}", middle), [&](std::int64_t i) { return middle + noise(i); });
      expect("88 and -88", [&](std::int64_t i) { return i % 2 == 0 ? 88.0 : -88.0; });
      expect("equal", [](std::int64_t) { return 7.25; });
      // Whole chunks of classes may be masked.
      expect("masked", [&](std::int64_t i) { return i < 1500 && i != 11 ? -infinity : noise(i); });
      for (const std::int64_t at : {std::int64_t{11}, std::int64_t{0}, vocabulary - 1})
        expect(fmt::format("one above, at {}", at),
               [&](std::int64_t i) { return i == at ? 1e4 : noise(i); });
      // Steps upward: several times, a logit is far above all earlier ones.
      for (const double lowest : {0.0, -900.0})
        expect(fmt::format("steps from {}", lowest), [&](std::int64_t i) {
          return 300.0 * static_cast<double>(i / 600) + lowest + noise(i);
        });
      for (const double lower : {-88.0, -45.0, -30.0, 30.0})
        for (const double step : {50.0, 98.0})
          expect(fmt::format("from {} to {}", lower, lower + step),
                 [&](std::int64_t i) { return (i < 1300 ? lower : lower + step) + noise(i); });
      expect("the last above",
             [&](std::int64_t i) { return i < vocabulary - 2 ? noise(i) : 30.0 + noise(i); });
      for (const std::int64_t at : {std::int64_t{11}, vocabulary - 1})
        expect(fmt::format("one that is not -Inf, at {}", at),
               [&](std::int64_t i) { return i == at ? -700.0 : -infinity; });
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

// One class has a large logit. The term of any other class is less than half a unit of the largest
// term: if they were added to it one after the other they would be lost, and the loss would be
// 2.7e-3 too small.
TEST(ModelsReference, LossOfManyClassesBesideALargeOne) {
  for_all_settings([](const Setting& s) {
    expect_loss(
        s, 65536, 0, [](std::int64_t i) { return i == 0 ? 17.0 : 0.0; }, "many below one");
  });
}

// With a mean of 2^12, the squares leave no room in an f32 for a deviation of 1. The mean errs by
// one of its units in each step of its sum, and so do the deviations: by a tenth at most.
TEST(ModelsReference, LayerNormBesideALargeMean) {
  for_all_settings([](const Setting& s) {
    constexpr std::int64_t cols = 512;
    const double deviation = s.dtype == DType::f32 ? 1 : 32;
    Memory memory(visible_memory(s.context));
    Norm norm(memory, NormKind::layer_norm, s.dtype, 2, cols);
    norm.add.reset();
    norm.x = of_values(memory, s.dtype, 2, cols, [&](std::int64_t i) {
      return 4096 + (i * 7 % 4 < 2 ? deviation : -deviation);
    });
    norm.forward(s.context.state());
    const double error = 4096 * unit * steps_of_row(s, cols) / deviation;
    expect_near(
        values_of(norm.y),
        reference::layer_norm(values_of(norm.x), cols, values_of(norm.gain), values_of(norm.bias)),
        (s.dtype == DType::f32 ? 1e-5 : 0.005) + 2 * error, s.name);
  });
}

}  // namespace
}  // namespace switchback::test
