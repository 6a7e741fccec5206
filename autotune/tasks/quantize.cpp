// SPDX-License-Identifier: Apache-2.0
// Tuner: quantize operations: codes, scales and sums equal to the reference's, bit for bit.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "autotune/tasks/expected_rows.hpp"
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
  QuantizeOperands(Context& context, const quant::Problem& p, std::uint64_t seed)
      : parts_(quant::parts_of(p.op)) {
    const bool from_codes = parts_.source == quant::Source::codes;
    x_ = measure::Matrix(context, from_codes ? DType::s8 : p.dtype, p.rows, p.cols, 0, p.alignment);
    measure::fill_random(context, x_.any(), seed);
    if (from_codes) {
      absmax_x_ = measure::Matrix(context, DType::f32, 1, p.rows);
      measure::fill_scales(context, absmax_x_.floats(), seed + 1);
    }
    const auto take = [&](bool wanted, measure::Matrix& operand, DType dtype, std::int64_t rows,
                          std::int64_t cols, std::int64_t alignment = 0) {
      if (!wanted) return;
      operand = measure::Matrix(context, dtype, rows, cols, 0, alignment);
      results_.push_back(&operand);
    };
    const auto take_scales = [&](measure::Matrix& operand, quant::Scales scales) {
      const std::int64_t count = quant::scale_count(scales, p.rows, p.cols);
      take(count > 0, operand, DType::f32, 1, count);
    };
    take(parts_.q != quant::Scales::none, q_, DType::s8, p.rows, p.cols);
    take(parts_.transposes(), q_t_, DType::s8, p.cols, p.rows);
    take_scales(absmax_, parts_.q);
    // A global scale is one, whatever layouts the codes have.
    if (parts_.q_t != parts_.q) take_scales(absmax_t_, parts_.q_t);
    take(parts_.sums == quant::Makes::yes, sums_, DType::f32, 1, p.cols);
    take(parts_.value == quant::Makes::yes, value_, p.dtype, p.rows, p.cols, p.alignment);
  }
  // The results point at members.
  QuantizeOperands(const QuantizeOperands&) = delete;
  QuantizeOperands& operator=(const QuantizeOperands&) = delete;

  [[nodiscard]] quant::Request request() const {
    const auto codes = [](const measure::Matrix& of) {
      return of.empty() ? MatrixView<std::int8_t>() : of.view<std::int8_t>();
    };
    quant::Request r;
    r.x = x_.any();
    r.absmax_x = absmax_x_.floats();
    r.q = {parts_.q, codes(q_), absmax_.floats()};
    r.q_t = {parts_.q_t, codes(q_t_), (parts_.q_t == parts_.q ? absmax_ : absmax_t_).floats()};
    r.column_sums = sums_.floats();
    if (!value_.empty()) r.value = value_.any();
    return r;
  }

  void poison_results(Context& context) const {
    for (const measure::Matrix* result : results_)
      measure::poison(context, result->any());
  }
  [[nodiscard]] std::vector<measure::Matrix> images(Context& context) const {
    std::vector<measure::Matrix> all;
    for (const measure::Matrix* result : results_)
      all.push_back(measure::host_copy(context, compared(context, result->any())));
    return all;
  }
  [[nodiscard]] std::string difference_to(Context& context,
                                          const std::vector<measure::Matrix>& want) const {
    for (std::size_t i = 0; i < results_.size(); ++i) {
      std::string where =
          measure::difference(context, compared(context, results_[i]->any()), want[i].any());
      if (!where.empty()) return fmt::format("{} of result {}", where, i);
    }
    return {};
  }

 private:
  // What the host looks at: all that a CPU made, and rows from all over a large result of a device.
  static AnyMatrix compared(const Context& context, AnyMatrix result) {
    const DeviceKind device = context.state().device.kind;
    if (device == DeviceKind::cpu) return result;
    return spread_rows(result, rows_to_keep(device, result.rows, result.cols));
  }

  const quant::OpParts& parts_;
  measure::Matrix x_, absmax_x_, q_, q_t_, absmax_, absmax_t_, sums_, value_;
  std::vector<const measure::Matrix*> results_;
};

class QuantizeTask final : public Task {
 public:
  QuantizeTask(Context& context, const quant::Problem& problem, Purpose purpose)
      : context_(context),
        problem_(problem),
        small_problem_(smaller(problem)),
        small_(context, small_problem_, 2) {
    const double bytes = static_cast<double>(problem.rows) * static_cast<double>(problem.cols) *
                         static_cast<double>(dtype_size_bytes(problem.dtype) + 1);
    const std::size_t sets = purpose == Purpose::timing ? measure::rotation(context, bytes) : 1;
    for (std::size_t i = 0; i < sets; ++i)
      sets_.push_back(std::make_unique<QuantizeOperands>(context, problem, 3 + i));
    // The reference on the smaller one: on the CPU, whatever the device.
    ContextOptions options;
    options.device = "cpu";
    Context host(options);
    host.set_config_source(nullptr);
    const QuantizeOperands same(host, small_problem_, 2);
    const quant::Request request = same.request();
    host.state().threads.for_each(1, [&](std::int64_t, int) { quant::reference::run(request); });
    small_want_ = same.images(host);
  }

  std::vector<ConfigChoice> candidates() override {
    std::vector<ConfigChoice> choices;
    for (const quant::Config& config : quant::candidates(problem_, context_.state()))
      choices.push_back(quant::to_choice(config));
    return choices;
  }

  // A small problem of the same kind is compared with the reference, which would take too long for
  // a large one; that is compared with what the first configuration made of it.
  std::string check(const ConfigChoice& choice) override {
    quant::Config config;
    if (!quant::from_choice(choice, config)) return "the numbers are no configuration";
    std::string refused = quant::check_config(problem_, config, context_.state());
    if (!refused.empty()) return refused;
    small_.poison_results(context_);
    quant::run(context_.state(), small_problem_, config, small_.request());
    std::string where = small_.difference_to(context_, small_want_);
    if (!where.empty())
      return fmt::format("[{},{}]: {}", small_problem_.rows, small_problem_.cols, where);
    first().poison_results(context_);
    quant::run(context_.state(), problem_, config, first().request());
    if (want_.empty()) {
      want_ = first().images(context_);
      return {};
    }
    return first().difference_to(context_, want_);
  }

  void run(const ConfigChoice& choice) override {
    quant::Config config;
    if (quant::from_choice(choice, config))
      quant::run(context_.state(), problem_, config, sets_[next_++ % sets_.size()]->request());
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

std::unique_ptr<Task> make_quantize_task(Context& context, const quant::Problem& problem,
                                         Purpose purpose) {
  return std::make_unique<QuantizeTask>(context, problem, purpose);
}

}  // namespace switchback::autotune
