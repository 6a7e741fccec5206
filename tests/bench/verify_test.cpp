// SPDX-License-Identifier: Apache-2.0
// Tests that the verifier finds errors: comparators on results that are wrong by one code, one unit
// in the last place or one NaN, and every check of the suite with one element of its output
// changed.
#include "bench/verify/verify.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "bench/verify/suite.hpp"
#include "core/unaligned.hpp"
#include "support/matrix.hpp"
#include "switchback/error.hpp"

namespace switchback::bench {
namespace {

using namespace measure;

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

Context cpu_context(int threads = 2) {
  return Context({.device = "cpu", .threads = threads, .isa = {}});
}

TEST(CompareExact, NaNEqualsNaNAndZerosDiffer) {
  test::Matrix<float> want(1, 2);
  test::Matrix<float> got(1, 2);
  want.set(0, 0, nan);
  got.set(0, 0, -nan);
  EXPECT_TRUE(compare_exact(got.view(), all_rows(1), want.view()).pass());
  for (const float finite : {0.0f, 1.0f, infinity}) {
    got.set(0, 0, finite);
    EXPECT_EQ(compare_exact(got.view(), all_rows(1), want.view()).wrong, 1) << finite;
  }
  got.set(0, 0, nan);
  for (const float other : {nan, -0.0f}) {  // for 0
    got.set(0, 1, other);
    EXPECT_EQ(compare_exact(got.view(), all_rows(1), want.view()).wrong, 1) << other;
  }
}

TEST(CompareExact, LooksAtTheSampledRowsAlone) {
  test::Matrix<std::int32_t> got(10, 2);
  test::Matrix<std::int32_t> want(2, 2);
  got.set(4, 0, 7);  // not compared
  EXPECT_TRUE(compare_exact(got.view(), {0, 9}, want.view()).pass());
  got.set(9, 1, 7);
  const Comparison c = compare_exact(got.view(), {0, 9}, want.view());
  EXPECT_EQ(c.wrong, 1);
  EXPECT_EQ(c.compared, 4);
  EXPECT_EQ(c.worst.row, 9);
  EXPECT_EQ(c.worst.col, 1);
  EXPECT_EQ(c.worst.got, 7);
  EXPECT_EQ(c.worst.want, 0);
}

Comparison bounded(float got, double want, double bound) {
  test::Matrix<float> m(1, 1);
  m.set(0, 0, got);
  return compare_bounded(m.view(), all_rows(1), {1, {want}, {bound}});
}

TEST(CompareBounded, HoldsTheBound) {
  EXPECT_TRUE(bounded(1.25f, 1.0, 0.25).pass());
  EXPECT_FALSE(bounded(1.25f, 1.0, 0.2499).pass());
  EXPECT_DOUBLE_EQ(bounded(1.25f, 1.0, 0.125).worst_share, 2.0);
  EXPECT_TRUE(bounded(1.0f, 1.0, 0).pass());
  EXPECT_FALSE(bounded(std::nextafter(1.0f, 2.0f), 1.0, 0).pass());
}

TEST(CompareBounded, NonFiniteNeverTurnsFinite) {
  EXPECT_TRUE(bounded(nan, nan, 0).pass());
  EXPECT_FALSE(bounded(0.0f, nan, 1e9).pass());
  EXPECT_FALSE(bounded(infinity, nan, 1e9).pass());
  EXPECT_TRUE(bounded(infinity, infinity, 0).pass());
  EXPECT_FALSE(bounded(-infinity, infinity, 0).pass());
  EXPECT_FALSE(bounded(nan, infinity, 0).pass());
  EXPECT_FALSE(bounded(3e38f, infinity, 1e300).pass());
}

TEST(CompareBounded, FiniteNeverTurnsNonFinite) {
  EXPECT_FALSE(bounded(nan, 1.0, 1e9).pass());
  EXPECT_FALSE(bounded(infinity, 1.0, 1e9).pass());
  EXPECT_FALSE(bounded(2.0f, 1.0, not_measured).pass());
  // Where rounding to the type may overflow, an infinity of the right sign is accepted.
  test::Matrix<half> m(1, 1);
  m.set(0, 0, half(infinity));
  EXPECT_TRUE(compare_bounded(m.view(), all_rows(1), {1, {65519.0}, {32.0}}).pass());
  EXPECT_FALSE(compare_bounded(m.view(), all_rows(1), {1, {60000.0}, {32.0}}).pass());
  m.set(0, 0, half(-infinity));
  EXPECT_FALSE(compare_bounded(m.view(), all_rows(1), {1, {65519.0}, {32.0}}).pass());
}

TEST(Accuracy, KnownNumbers) {
  test::Matrix<float> m(1, 2);
  m.set(0, 0, 3.3f);
  m.set(0, 1, 4.0f);
  Comparison c;
  add_accuracy(c, m.view(), all_rows(1), {2, {3.0, 4.0}, {}});
  EXPECT_NEAR(c.relative_error, 0.3 / 5, 1e-7);
  EXPECT_NEAR(c.snr_db, 20 * std::log10(5 / 0.3), 1e-5);
  EXPECT_NEAR(c.cosine, (9.9 + 16) / (5 * std::sqrt(3.3 * 3.3 + 16)), 1e-7);
}

TEST(SampleRows, FirstLastSpreadAndSeeded) {
  const Rows rows = sample_rows(1000, 20, 7);
  EXPECT_EQ(rows.front(), 0);
  EXPECT_EQ(rows.back(), 999);
  EXPECT_LE(rows.size(), 20u);
  EXPECT_GE(rows.size(), 19u);
  for (std::size_t i = 1; i < rows.size(); ++i) {
    EXPECT_GT(rows[i], rows[i - 1]);
    // The rows between the first and the last are divided into 18 stretches with a sample in each.
    EXPECT_LT(rows[i] - rows[i - 1], 2 * 1000 / 18 + 2);
  }
  EXPECT_EQ(rows, sample_rows(1000, 20, 7));
  EXPECT_NE(rows, sample_rows(1000, 20, 8));
  EXPECT_EQ(sample_rows(5, 20, 1), all_rows(5));
  EXPECT_TRUE(sample_rows(0, 20, 1).empty());
}

VerifyOptions tiny(const ContextOptions& context = {.device = "cpu", .threads = 2, .isa = {}}) {
  VerifyOptions options;
  options.context = context;
  options.shapes = {{9, 40, 6}};
  return options;
}

std::string name(const Check& c) {
  return c.op + "/" + c.part + "/" + c.mode + "/" + c.dtype + "/" + c.output + "/" + c.engine +
         "/" + c.isa + "/" + std::string(data_name(c.data));
}

TEST(Suite, PassesAndCoversEveryOperationAndMode) {
  std::set<std::string> ops;
  std::set<std::string> modes;
  std::set<std::string> options_of_layers;
  const VerifySummary summary = run_verify(tiny(), [&](const Check& c) {
    EXPECT_NE(c.outcome, Check::Outcome::fail)
        << name(c) << " " << c.reason << " [" << c.comparison.worst.row << ","
        << c.comparison.worst.col << "] " << c.comparison.worst.got << " for "
        << c.comparison.worst.want;
    if (c.outcome != Check::Outcome::pass) return;
    EXPECT_GT(c.comparison.compared, 0) << name(c);
    EXPECT_FALSE(c.bound.empty()) << name(c);
    ops.insert(c.op);
    modes.insert(c.mode);
    if (c.op == "layer" && c.part.starts_with("dw,")) options_of_layers.insert(c.part);
  });
  EXPECT_EQ(summary.failed, 0);
  EXPECT_GT(summary.passed, 1000);
  EXPECT_EQ(fmt::format("{}", fmt::join(ops, " ")),
            "activation_backward activation_backward_quantize activation_forward "
            "activation_forward_quantize cast_to_int8 column_sums combine dequantize_rowwise "
            "fragmented gemm gemm_blockwise gemm_s8s8s32 gemm_standard grouped_gemm "
            "grouped_gemm_standard grouped_quantize_rowwise layer quantize_blockwise_transpose "
            "quantize_blockwise_transpose_stochastic quantize_columnwise_transpose quantize_global "
            "quantize_global_and_transpose quantize_global_transpose quantize_rowwise "
            "quantize_rowwise_and_blockwise_transpose quantize_rowwise_and_columnwise_transpose "
            "quantize_rowwise_column_sums quantize_rowwise_scaled quantize_rowwise_stochastic "
            "rotate rotate_quantize");
  // One layer in an int8 mode is verified with each of its additional options.
  EXPECT_EQ(options_of_layers,
            (std::set<std::string>{"dw, accumulated", "dw, rotated by 4, stochastic",
                                   "dw, accumulated, rotated by 4, stochastic",
                                   "dw, rotated by 4, dw int8, stochastic",
                                   "dw, accumulated, rotated by 4, dw int8, stochastic"}));
  std::set<std::string> every_mode = {""};
  for (const ModeTraits& mode : mode_table)
    if (mode.mode != Mode::automatic) every_mode.emplace(mode.name);
  EXPECT_EQ(modes, every_mode);
}

// Changes the last element of a result. A code or sum changes by one. A float becomes the next
// number of its type if the comparison is exact; otherwise it changes by a hundredth of the matrix'
// norm, which no bound of a sum allows. A NaN becomes finite.
void tamper(const Check& check, AnyMatrix m) {
  const std::int64_t at = (m.rows - 1) * m.stride + m.cols - 1;
  switch (m.dtype) {
    case DType::s8: {
      auto* q = static_cast<std::int8_t*>(m.data) + at;
      *q = static_cast<std::int8_t>(*q > 0 ? *q - 1 : *q + 1);
      return;
    }
    case DType::s32:
      static_cast<std::int32_t*>(m.data)[at] += 1;
      return;
    default:
      break;
  }
  const float value = core::load_float(m.data, m.dtype, at);
  if (!std::isfinite(value)) return core::store_float(m.data, m.dtype, at, 1.0f);
  if (!check.bound.starts_with("equal")) {
    float largest = 1e-3f;
    for (std::int64_t r = 0; r < m.rows; ++r)
      for (std::int64_t c = 0; c < m.cols; ++c) {
        const float x = std::abs(core::load_float(m.data, m.dtype, r * m.stride + c));
        if (std::isfinite(x)) largest = std::max(largest, x);
      }
    const float moved = value + (value > 0 ? -1.0f : 1.0f) * 0.2f * largest;
    return core::store_float(m.data, m.dtype, at, moved);
  }
  if (m.dtype == DType::f32)
    return core::store(static_cast<float*>(m.data), at, std::nextafter(value, infinity));
  auto* bits = static_cast<std::uint16_t*>(m.data) + at;
  core::store(bits, 0, static_cast<std::uint16_t>(core::load(bits, 0) ^ 1u));
}

TEST(Suite, EveryCheckFailsWhenOneElementIsWrong) {
  VerifyOptions options = tiny();
  options.tamper = tamper;
  const VerifySummary summary = run_verify(
      options, [&](const Check& c) { EXPECT_NE(c.outcome, Check::Outcome::pass) << name(c); });
  EXPECT_EQ(summary.passed, 0);
  EXPECT_GT(summary.failed, 1000);
}

TEST(Suite, AnInaccurateLayerFailsByItsErrorAlone) {
  // The limit of a layer's error is a separate check. The comparison for equality passes here,
  // because it expects the same 2 % of noise.
  Context context = cpu_context();
  VerifyOptions options = tiny();
  VerifySummary summary;
  Check last;
  const std::function<void(const Check&)> sink = [&](const Check& c) { last = c; };
  Suite suite(context, options, sink, summary);
  std::vector<float> written(100);
  Reference reference{10, {}, {}};
  for (std::size_t i = 0; i < written.size(); ++i) {
    reference.values.push_back(1.0 + static_cast<double>(i % 7));
    written[i] = static_cast<float>(reference.values[i] * (i % 2 == 0 ? 1.02 : 0.98));
  }
  std::vector<float> same = written;
  const Accuracy limits{&reference, 0.017, 0.9998};
  suite.exact(suite.check("layer", "forward", DType::f32, Data::normal, {10, 10, 10}),
              AnyMatrix(written.data(), DType::f32, 10, 10, 10), all_rows(10), as_matrix(same, 10),
              "equal", limits);
  EXPECT_EQ(last.outcome, Check::Outcome::fail);
  EXPECT_EQ(last.comparison.wrong, 0);
  EXPECT_EQ(summary.failed, 1);
}

TEST(Suite, SamplesTheRowsOfALargeProduct) {
  VerifyOptions options = tiny();
  options.shapes = {{300, 32, 16}};
  options.reference_macs = 32 * 16 * 40;
  options.ops = {"gemm_int8"};
  std::int64_t checks = 0;
  const VerifySummary summary = run_verify(options, [&](const Check& c) {
    // Skips the checks of all 300·16 elements: a product with a random vector checks all sums, and
    // all outputs must equal those of the first engine.
    if (c.outcome != Check::Outcome::pass || c.comparison.compared == 300 * 16) return;
    ++checks;
    EXPECT_LE(c.comparison.compared, 40 * 16);
    EXPECT_GE(c.comparison.compared, 38 * 16);
  });
  EXPECT_EQ(summary.failed, 0);
  EXPECT_GT(checks, 0);
}

TEST(Suite, RunsTheEngineThatIsAskedFor) {
  VerifyOptions options = tiny();
  options.ops = {"gemm_int8"};
  options.engine = "reference";
  const VerifySummary summary =
      run_verify(options, [](const Check& c) { EXPECT_EQ(c.engine, "reference"); });
  EXPECT_GT(summary.passed, 0);
}

TEST(Suite, JsonIsCompleteAndParses) {
  VerifyOptions options = tiny();
  options.ops = {"quantize"};
  options.dtypes = {DType::f32};
  options.tamper = tamper;
  run_verify(options, [](const Check& c) {
    const auto json = nlohmann::ordered_json::parse(to_json(c).dump());
    EXPECT_EQ(json["type"], "check");
    EXPECT_EQ(json["outcome"], "fail");
    EXPECT_EQ(json["wrong"], 1);
    EXPECT_TRUE(json["worst"]["row"].is_number());
    EXPECT_TRUE(json["mode"].is_null());
  });
}

TEST(VerifyShape, Parses) {
  for (const char* text : {"3, 5,7", "3x5x7"}) {
    const VerifyShape s = parse_verify_shape(text);
    EXPECT_EQ(s.batch, 3);
    EXPECT_EQ(s.dim_in, 5);
    EXPECT_EQ(s.dim_out, 7);
  }
  for (const char* bad :
       {"", "1,2", "1,2,3,4", "0,1,1", "-1,2,3", "1x2,3", "1,2,3e3", "9999999999999,1,1"})
    EXPECT_THROW(parse_verify_shape(bad), Error) << bad;
}

}  // namespace
}  // namespace switchback::bench
