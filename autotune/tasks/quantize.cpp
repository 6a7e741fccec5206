// SPDX-License-Identifier: Apache-2.0
// Tuner: quantize operations: codes, scales and sums equal to the reference's, bit for bit.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "autotune/tasks/tasks.hpp"
#include "core/context_state.hpp"
#include "measure/caches.hpp"
#include "measure/data.hpp"
#include "measure/matrix.hpp"
#include "quant/config.hpp"
#include "quant/reference.hpp"

namespace switchback::autotune {

namespace {

// The matrices of one problem, those that its operation has.
class QuantizeOperands {
 public:
  QuantizeOperands(Context& context, const quant::Problem& p, std::uint64_t seed) : op_(p.op) {
    using quant::Op;
    const std::int64_t rows = p.rows;
    const std::int64_t cols = p.cols;
    if (op_ == Op::dequantize_rowwise) {
      codes_ = measure::Matrix(context, DType::s8, rows, cols, 0, p.alignment);
      scales_ = measure::Matrix(context, DType::f32, 1, rows);
      y_ = measure::Matrix(context, p.dtype, rows, cols, 0, p.alignment);
      measure::fill_random(context, codes_.any(), seed);
      measure::fill_scales(context, scales_.floats(), seed + 1);
      results_ = {&y_};
      return;
    }
    x_ = measure::Matrix(context, p.dtype, rows, cols, 0, p.alignment);
    measure::fill_random(context, x_.any(), seed);
    const bool by_row = op_ == Op::rowwise || op_ == Op::rowwise_column_sums ||
                        op_ == Op::rowwise_and_columnwise_transpose;
    const bool by_column =
        op_ == Op::columnwise_transpose || op_ == Op::rowwise_and_columnwise_transpose;
    const bool whole =
        op_ == Op::global || op_ == Op::global_transpose || op_ == Op::global_and_transpose;
    const bool sums = op_ == Op::rowwise_column_sums || op_ == Op::column_sums;
    const bool untransposed =
        by_row || op_ == Op::global || op_ == Op::global_and_transpose || op_ == Op::cast_to_int8;
    const bool transposed =
        by_column || op_ == Op::global_transpose || op_ == Op::global_and_transpose;
    const auto take = [&](bool wanted, measure::Matrix& operand, DType dtype, std::int64_t r,
                          std::int64_t c) {
      if (!wanted) return;
      operand = measure::Matrix(context, dtype, r, c);
      results_.push_back(&operand);
    };
    take(untransposed, q_, DType::s8, rows, cols);
    take(transposed, q_t_, DType::s8, cols, rows);
    take(by_row, absmax_, DType::f32, 1, rows);
    take(whole, absmax_, DType::f32, 1, 1);
    take(by_column, absmax_cols_, DType::f32, 1, cols);
    take(sums, sums_, DType::f32, 1, cols);
  }
  // The results point at members.
  QuantizeOperands(const QuantizeOperands&) = delete;
  QuantizeOperands& operator=(const QuantizeOperands&) = delete;

  [[nodiscard]] quant::Operands operands() const {
    quant::Operands o;
    if (op_ == quant::Op::dequantize_rowwise) {
      o.codes = codes_.view<const std::int8_t>();
      o.scales = scales_.floats().data();
      o.y = y_.any();
      return o;
    }
    o.x = x_.any();
    if (!q_.empty()) o.q = q_.view<std::int8_t>();
    if (!q_t_.empty()) o.q_t = q_t_.view<std::int8_t>();
    o.absmax = absmax_.floats().data();
    o.absmax_cols = absmax_cols_.floats().data();
    o.column_sums = sums_.floats().data();
    return o;
  }

  void poison_results(Context& context) const {
    for (const measure::Matrix* result : results_)
      measure::poison(context, result->any());
  }
  [[nodiscard]] std::vector<measure::Matrix> images(Context& context) const {
    std::vector<measure::Matrix> all;
    for (const measure::Matrix* result : results_)
      all.push_back(measure::host_copy(context, result->any()));
    return all;
  }
  [[nodiscard]] std::string difference_to(Context& context,
                                          const std::vector<measure::Matrix>& want) const {
    for (std::size_t i = 0; i < results_.size(); ++i) {
      std::string where = measure::difference(context, results_[i]->any(), want[i].any());
      if (!where.empty()) return fmt::format("{} of result {}", where, i);
    }
    return {};
  }

 private:
  quant::Op op_;
  measure::Matrix x_, q_, q_t_, absmax_, absmax_cols_, sums_, codes_, scales_, y_;
  std::vector<const measure::Matrix*> results_;
};

class QuantizeTask final : public Task {
 public:
  QuantizeTask(Context& context, const quant::Problem& problem)
      : context_(context),
        problem_(problem),
        small_problem_(smaller(problem)),
        small_(context, small_problem_, 2) {
    const double bytes = static_cast<double>(problem.rows) * static_cast<double>(problem.cols) *
                         static_cast<double>(dtype_size_bytes(problem.dtype) + 1);
    const std::size_t sets = measure::rotation(context, bytes);
    for (std::size_t i = 0; i < sets; ++i)
      sets_.push_back(std::make_unique<QuantizeOperands>(context, problem, 3 + i));
    // The reference on the smaller one: on the CPU, whatever the device.
    ContextOptions options;
    options.device = "cpu";
    Context host(options);
    const QuantizeOperands same(host, small_problem_, 2);
    const quant::Operands operands = same.operands();
    host.state().threads.for_each(
        1, [&](std::int64_t, int) { quant::reference::run(problem.op, operands); });
    small_want_ = same.images(host);
  }

  std::vector<ConfigChoice> candidates() override {
    std::vector<ConfigChoice> choices;
    for (const quant::Config& config : quant::candidates(problem_, context_.state()))
      choices.push_back(quant::to_choice(config));
    return choices;
  }

  // A problem of the same kind is compared with the reference, which would take too long for a
  // large one; that is compared with what the first configuration made of it.
  std::string check(const ConfigChoice& choice) override {
    quant::Config config;
    if (!quant::from_choice(choice, config)) return "the numbers are no configuration";
    std::string refused = quant::check_config(problem_, config, context_.state());
    if (!refused.empty()) return refused;
    small_.poison_results(context_);
    quant::run(context_.state(), small_problem_, config, small_.operands());
    std::string where = small_.difference_to(context_, small_want_);
    if (!where.empty())
      return fmt::format("[{},{}]: {}", small_problem_.rows, small_problem_.cols, where);
    first().poison_results(context_);
    quant::run(context_.state(), problem_, config, first().operands());
    if (want_.empty()) {
      want_ = first().images(context_);
      return {};
    }
    return first().difference_to(context_, want_);
  }

  void run(const ConfigChoice& choice) override {
    quant::Config config;
    if (quant::from_choice(choice, config))
      quant::run(context_.state(), problem_, config, sets_[next_++ % sets_.size()]->operands());
  }

 private:
  [[nodiscard]] const QuantizeOperands& first() const { return *sets_.front(); }

  static quant::Problem smaller(quant::Problem p) {
    p.rows = std::min<std::int64_t>(p.rows, 197);
    p.cols = std::min<std::int64_t>(p.cols, 1091);
    return p;
  }

  Context& context_;
  quant::Problem problem_;
  quant::Problem small_problem_;
  QuantizeOperands small_;
  std::vector<std::unique_ptr<QuantizeOperands>> sets_;
  std::size_t next_ = 0;
  std::vector<measure::Matrix> small_want_;
  std::vector<measure::Matrix> want_;
};

}  // namespace

std::unique_ptr<Task> make_quantize_task(Context& context, const quant::Problem& problem) {
  return std::make_unique<QuantizeTask>(context, problem);
}

}  // namespace switchback::autotune
