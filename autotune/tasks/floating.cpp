// SPDX-License-Identifier: Apache-2.0
// Tuner: floating point products, compared with sums in f64.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "autotune/tasks/tasks.hpp"
#include "core/context_state.hpp"
#include "core/matrix_rows.hpp"
#include "gemm/floating/engine.hpp"
#include "measure/caches.hpp"
#include "measure/data.hpp"
#include "measure/matrix.hpp"
#include "measure/oracle.hpp"

namespace switchback::autotune {

namespace {

using floating::Config;
using floating::Problem;
using measure::element;

// An element of d in row `row` of those that are looked at.
struct Sample {
  std::size_t row;
  std::int64_t col;
  double want, bound;
};
// As many rows as columns, so that a check fetches few rows of d.
constexpr int sampled_lines = 20;

class StandardTask final : public Task {
 public:
  StandardTask(Context& context, const Problem& p, Purpose purpose)
      : context_(context), problem_(p) {
    a_ = measure::Matrix(context, p.input, p.transpose_a ? p.k : p.m, p.transpose_a ? p.m : p.k,
                         p.lda, p.alignment);
    b_ = measure::Matrix(context, p.input, p.transpose_b ? p.n : p.k, p.transpose_b ? p.k : p.n,
                         p.ldb, p.alignment);
    d_ = measure::Matrix(context, p.output, p.m, p.n, p.ldd, p.alignment);
    measure::fill_random(context, a_.any(), 1);
    measure::fill_random(context, b_.any(), 2);
    operands_.a = a_.data();
    operands_.b = b_.data();
    operands_.d = d_.data();
    if (p.bias) {
      bias_ = measure::Matrix(context, DType::f32, 1, p.n);
      measure::fill_random(context, bias_.any(), 3);
      operands_.bias = bias_.any();
    }
    const double bytes = (static_cast<double>(p.m) * static_cast<double>(p.k) +
                          static_cast<double>(p.n) * static_cast<double>(p.k)) *
                             static_cast<double>(dtype_size_bytes(p.input)) +
                         static_cast<double>(p.m) * static_cast<double>(p.n) *
                             static_cast<double>(dtype_size_bytes(p.output));
    if (purpose == Purpose::timing) further_.resize(measure::rotation(context, bytes) - 1);
    for (Further& set : further_) {
      set.a = measure::copy_of(context, a_);
      set.b = measure::copy_of(context, b_);
      set.d = measure::Matrix(context, p.output, p.m, p.n, p.ldd, p.alignment);
      if (p.accumulate) measure::fill_random(context, set.d.any(), 4);
    }
  }

  std::vector<ConfigChoice> candidates() override {
    return choices_of(floating::candidates(problem_, context_.state()));
  }
  std::vector<ConfigChoice> all_candidates() override {
    return choices_of(floating::all_candidates(problem_, context_.state()));
  }

  std::string check(const ConfigChoice& choice) override {
    Config config;
    if (!floating::from_choice(choice, config)) return "the numbers are no configuration";
    const std::string reason = floating::check_config(problem_, config, context_.state());
    if (!reason.empty()) return reason;
    if (samples_.empty()) sample();
    if (problem_.accumulate)
      measure::fill_random(context_, d_.any(), 4);
    else
      measure::poison(context_, d_.any());
    floating::run(context_, problem_, config, operands_);
    const measure::Matrix d = sampled_rows();
    for (const Sample& s : samples_) {
      const double got = element(d.any(), static_cast<std::int64_t>(s.row), s.col);
      // False for a NaN too.
      if (!(std::abs(got - s.want) <= s.bound))
        return fmt::format("element ({},{}) is {:g}, not {:g} within {:g}", rows_[s.row], s.col,
                           got, s.want, s.bound);
    }
    return {};
  }

  void run(const ConfigChoice& choice) override {
    Config config;
    if (!floating::from_choice(choice, config)) return;
    const std::size_t set = next_++ % (further_.size() + 1);
    floating::Operands o = operands_;
    if (set > 0) {
      const Further& other = further_[set - 1];
      o.a = other.a.data();
      o.b = other.b.data();
      o.d = other.d.data();
    }
    floating::run(context_, problem_, config, o);
  }

  std::int64_t scratch_bytes(const ConfigChoice& choice) override {
    Config config;
    if (!floating::from_choice(choice, config)) return 0;
    const floating::Engine* engine = engine_of(config);
    return engine == nullptr ? 0 : engine->scratch_bytes(problem_, config);
  }
  bool is_risky(const ConfigChoice& choice) override {
    Config config;
    return floating::from_choice(choice, config) && floating::is_risky(config);
  }
  std::string provenance(const ConfigChoice& choice) override {
    Config config;
    if (!floating::from_choice(choice, config)) return {};
    return floating::provenance(problem_, config, context_.state());
  }

 private:
  std::vector<ConfigChoice> choices_of(const std::vector<Config>& configs) const {
    std::vector<ConfigChoice> choices;
    for (const Config& config : configs) {
      // The reference is for tests: it competes only if nothing else does.
      if (engine_of(config)->is_oracle && config != configs.front()) continue;
      choices.push_back(floating::to_choice(config));
    }
    return choices;
  }
  // Null for a number that is no engine's.
  [[nodiscard]] const floating::Engine* engine_of(const Config& config) const {
    return floating::find_engine(problem_.device, config.engine);
  }

  // What some elements must be. Every sum in f32 of K products, in whatever order, is off by a
  // multiple of 2^-24 · Σ|a · b|: at worst K times, of random signs about √K times. The bound is
  // four times that with room for short sums; an error in indexing is off by √K times |a · b|
  // itself, which is hundreds of times more.
  void sample() {
    const Problem& p = problem_;
    if (p.accumulate) measure::fill_random(context_, d_.any(), 4);
    const measure::Matrix a = measure::to_host(context_, a_);
    const measure::Matrix b = measure::to_host(context_, b_);
    rows_ = lines(p.m, 11);
    const std::vector<std::int64_t> cols = lines(p.n, 12);
    const measure::Matrix d = sampled_rows();
    const measure::Matrix bias = measure::to_host(context_, bias_);
    const double sum_error = (64 + 4 * std::sqrt(static_cast<double>(p.k))) * 0x1p-24;
    for (std::size_t row = 0; row < rows_.size(); ++row)
      for (const std::int64_t col : cols) {
        Sample s{row, col, 0, 0};
        const measure::InnerProduct sum =
            measure::inner_product(measure::row_of(a.any(), p.transpose_a, rows_[row]),
                                   measure::row_of(b.any(), !p.transpose_b, col));
        s.want = sum.value;
        if (p.bias) s.want += element(bias.any(), 0, col);
        if (p.accumulate) s.want += element(d.any(), static_cast<std::int64_t>(row), col);
        s.bound = sum_error * (sum.magnitude + std::abs(s.want) + 8) +
                  2 * measure::rounding_error(p.output, std::abs(s.want) + 8);
        samples_.push_back(s);
      }
  }

  // The first, the last and random ones of `size` rows or columns.
  static std::vector<std::int64_t> lines(std::int64_t size, std::uint64_t salt) {
    std::vector<std::int64_t> some = {0, size - 1};
    for (std::uint64_t i = 2; i < sampled_lines; ++i)
      some.push_back(static_cast<std::int64_t>(measure::random_bits(salt, i) %
                                               static_cast<std::uint64_t>(size)));
    return some;
  }

  // Those rows of d, on the host.
  [[nodiscard]] measure::Matrix sampled_rows() const {
    measure::Matrix some(problem_.output, static_cast<std::int64_t>(rows_.size()), problem_.n);
    for (std::size_t i = 0; i < rows_.size(); ++i)
      measure::copy(context_, core::rows_of(d_.any(), rows_[i], 1),
                    core::rows_of(some.any(), static_cast<std::int64_t>(i), 1));
    return some;
  }

  Context& context_;
  Problem problem_;
  measure::Matrix a_, b_, d_, bias_;
  floating::Operands operands_;
  // Operands elsewhere in memory, for runs to take turns with.
  struct Further {
    measure::Matrix a, b, d;
  };
  std::vector<Further> further_;
  std::size_t next_ = 0;
  std::vector<Sample> samples_;
  std::vector<std::int64_t> rows_;  ///< those that the samples are in
};

}  // namespace

std::unique_ptr<Task> make_floating_task(Context& context, const Problem& problem,
                                         Purpose purpose) {
  return std::make_unique<StandardTask>(context, problem, purpose);
}

}  // namespace switchback::autotune
