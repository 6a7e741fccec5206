// SPDX-License-Identifier: Apache-2.0
// Studies: adds the value 0.01 a thousand times, in each accumulator type that products can have.
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <functional>
#include <optional>

#include "bench/workload/session.hpp"
#include "bench/workload/statistic.hpp"
#include "bench/workload/workload.hpp"
#include "core/check.hpp"
#include "core/context_state.hpp"
#include "measure/rounds.hpp"
#include "studies/published/published.hpp"
#include "switchback/gemm.hpp"
#include "switchback/quant.hpp"

namespace switchback::bench {

namespace {

constexpr int terms = 1000;
constexpr float term = 0.01f;

template <class T, class Sum>
double sum_in() {
  Sum sum = Sum(0.0f);
  for (int i = 0; i < terms; ++i)
    sum = Sum(static_cast<float>(sum) + static_cast<float>(T(term)));
  return static_cast<double>(static_cast<float>(sum));
}

// The sum of a thousand times 0.01 by the int8 product: a row of int8 codes of 0.01 times codes of
// ones, with int32 sums.
double sum_of_codes(Context& context) {
  const std::vector<float> x(terms, term), one(terms, 1.0f);
  std::vector<std::int8_t> codes(terms), ones(terms);
  float absmax = 0, absmax_of_ones = 0, sum = 0;
  quantize_rowwise(context, MatrixView<const float>(x.data(), 1, terms), {codes.data(), 1, terms},
                   {&absmax, 1});
  quantize_rowwise(context, MatrixView<const float>(one.data(), 1, terms), {ones.data(), 1, terms},
                   {&absmax_of_ones, 1});
  gemm(context, {.a = MatrixView<const std::int8_t>(codes.data(), 1, terms),
                 .b = MatrixView<const std::int8_t>(ones.data(), 1, terms),
                 .d = MatrixView<float>(&sum, 1, 1),
                 .absmax_a = {&absmax, 1},
                 .absmax_b = {&absmax_of_ones, 1}});
  return static_cast<double>(sum);
}

struct Accumulator {
  std::string_view dtype, into;
  std::function<double(Context&)> sum;
};

const std::array<Accumulator, 6>& accumulators() {
  static const std::array<Accumulator, 6> all = {{
      {"f32", "f32", [](Context&) { return sum_in<float, float>(); }},
      {"f16", "f16", [](Context&) { return sum_in<half, half>(); }},
      {"f16", "f32", [](Context&) { return sum_in<half, float>(); }},
      {"bf16", "bf16", [](Context&) { return sum_in<bfloat16, bfloat16>(); }},
      {"bf16", "f32", [](Context&) { return sum_in<bfloat16, float>(); }},
      {"s8", "s32", [](Context& context) { return sum_of_codes(context); }},
  }};
  return all;
}

// The published sum from data/reference/accumulators.csv; empty for int8 codes, whose sum is exact.
std::optional<double> published_sum(const Accumulator& a) {
  const PublishedTable table("accumulators");
  for (std::size_t row = 0; row < table.rows(); ++row)
    if (table.text(row, "dtype") == a.dtype && table.text(row, "into") == a.into)
      return table.number(row, "sum");
  return std::nullopt;
}

class Accumulators : public Workload {
 public:
  [[nodiscard]] std::string_view name() const override { return "accum"; }
  [[nodiscard]] std::string_view command() const override { return "accumulators"; }
  [[nodiscard]] std::string_view about() const override {
    return "Add 0.01 a thousand times in every accumulator type, to show what rounding does to a "
           "sum";
  }
  [[nodiscard]] std::string footer() const override {
    return "Each row adds 0.01, rounded to a type, a thousand times to an accumulator that is "
           "rounded after\n"
           "every addition. int8 codes are summed in int32 by the int8 product and scaled once.";
  }
  void open(Session& session) override {
    core::require(session.on_cpu(), "accumulators: device {}: it adds on the CPU; use --device cpu",
                  session.context().state().device);
  }
  [[nodiscard]] std::vector<Column> columns() const override {
    return {{.name = "dtype", .meaning = "type of the terms", .is_text = true},
            {.name = "into", .meaning = "type of the accumulator", .is_text = true},
            {.name = "terms", .meaning = "number of terms", .in_table = false},
            {.name = "sum", .meaning = "sum of the terms"},
            {.name = "error", .meaning = "error of the sum, relative to 10"},
            {.name = "published", .meaning = "published sum"},
            {.name = "host_ms", .meaning = "time of one sum", .unit = "ms", .in_table = false},
            {.name = "synced_ms", .meaning = "time of one sum", .unit = "ms", .in_table = false},
            {.name = "checks", .meaning = "which identities hold", .in_table = false}};
  }
  std::vector<CasePlan> plan(Session&) override {
    std::vector<CasePlan> plans;
    for (const Accumulator& a : accumulators())
      plans.push_back({.id = fmt::format("{} into {}", a.dtype, a.into), .repeat = repeat});
    return plans;
  }
  CaseOutcome measure(Session& session, std::size_t i, const Sink& sink) override {
    const Accumulator& a = accumulators()[i];
    double sum = 0;
    const std::vector<std::function<void()>> calls = {[&] { sum = a.sum(session.context()); }};
    const Json time = statistic(measure::times_of({.repeat = repeat}, calls).front());
    const std::optional<double> published = published_sum(a);
    const double expected = published.value_or(terms * 0.01);
    // Published sums have four digits after the point.
    const bool as_expected = std::fabs(sum - expected) < 0.0001;
    sink(row(fmt::format("{} into {}", a.dtype, a.into),
             {{"dtype", a.dtype},
              {"into", a.into},
              {"terms", terms},
              {"sum", sum},
              {"error", sum / 10 - 1},
              {"published", published ? Json(*published) : Json(nullptr)},
              {"host_ms", time},
              {"synced_ms", time},
              {"checks", {{published ? "as_published" : "exact", as_expected}}}}));
    CaseOutcome outcome;
    outcome.summary = fmt::format("{:.4f}", sum);
    if (!as_expected)
      outcome = {.status = CaseStatus::wrong,
                 .why = fmt::format("the sum is {:.6f}, not {:.4f}", sum, expected)};
    return outcome;
  }
  // Prints the sums with four digits after the point, like the published ones.
  void print_report(Session& /*session*/, const Table& /*table*/, const std::string& /*doubt*/,
                    std::FILE* to) const override {
    Table table({"dtype", "into", "sum", "published"}, {"into"});
    for (const Json& record : records()) {
      const auto digits = [&](const char* key) {
        return record[key].is_null() ? "-" : fmt::format("{:.4f}", record[key].get<double>());
      };
      table.add({record["dtype"].get<std::string>(), record["into"].get<std::string>(),
                 digits("sum"), digits("published")});
    }
    fmt::print(to, "\n{}", table.text_for(to));
  }

 private:
  static constexpr int repeat = 10;
};

}  // namespace

std::shared_ptr<Workload> make_accumulators() {
  return std::make_shared<Accumulators>();
}

}  // namespace switchback::bench
