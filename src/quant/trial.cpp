// SPDX-License-Identifier: Apache-2.0
#include "quant/trial.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <utility>

#include "core/context_state.hpp"
#include "core/unaligned.hpp"
#include "measure/caches.hpp"
#include "measure/data.hpp"
#include "measure/expected.hpp"
#include "measure/oracle.hpp"
#include "quant/config.hpp"
#include "quant/gelu.hpp"
#include "quant/rotate.hpp"
#include "switchback/activation.hpp"

namespace switchback::quant {

namespace {

using measure::element;
using measure::Group;
using measure::Matrix;
using measure::oracle::Codes;

constexpr std::string_view codes_rule =
    "equal: round_half_even(127 · (x / absmax)), each step rounded to f32, by an oracle in f64";
constexpr std::string_view stochastic_rule =
    "equal: floor((round_half_even(65536 · (127 · (x / absmax))) + r) / 65536), r of Philox4x32-10";
constexpr std::string_view cast_rule = "equal: truncated, clamped to [-128, 127], NaN to 0";
constexpr std::string_view absmax_rule = "equal: the largest |x| of the group; NaN, then Inf, wins";
constexpr std::string_view sums_rule =
    "equal: f32 sums of 128-row blocks in row order, then of the blocks in order";
constexpr std::string_view rotation_rule =
    "equal: log4(g) stages of additions and products, each rounded to f32, then once to the output";
constexpr std::string_view dequantized_rule =
    "equal: absmax · (q / 127), each step rounded to f32, then once to the output";
constexpr std::string_view activation_rule =
    "equal: GELU or its derivative by the f32 operations of the specification, then rounded once "
    "to the output";

constexpr StochasticRounding rounding = {.seed = 3, .stream = 5, .step = 7, .row0 = 11};

// The arguments of an operation in addition to its matrix; a trial checks several values of each.
struct Variant {
  Rotation rotation = Rotation::none;
  Activation activation = Activation::none;
  DType rotated = DType::f32;  ///< the type of a rotated matrix
  bool scaled = false;         ///< with scales of columns
  bool accumulate = false;

  [[nodiscard]] std::string text() const {
    std::string text;
    if (activation != Activation::none) text += fmt::format(", {}", activation_name(activation));
    if (rotation != Rotation::none) text += fmt::format(", groups of {}", group_of(rotation));
    if (scaled) text += ", columns scaled";
    if (accumulate) text += ", accumulated";
    return text;
  }
};

bool takes_activation(const OpParts& parts) {
  return parts.source == Source::activation || parts.source == Source::gradient;
}

// Repeats each of the variants with each of these values of one member.
template <class T, class Values>
void cross(std::vector<Variant>& variants, T Variant::*member, const Values& values) {
  std::vector<Variant> all;
  for (const Variant& variant : variants)
    for (const auto& value : values) {
      all.push_back(variant);
      all.back().*member = value;
    }
  variants = std::move(all);
}

// The variants of a problem that a trial checks. There are none if the operation rotates and no
// rotation's group divides the columns.
std::vector<Variant> variants_of(const Problem& p) {
  const OpParts& parts = parts_of(p.op);
  std::vector<Variant> variants(1);
  if (takes_activation(parts))
    cross(variants, &Variant::activation, std::array{Activation::gelu_tanh, Activation::gelu_erf});
  if (parts.rotates || parts.rotated == Makes::yes) {
    std::vector<Rotation> fitting;
    for (const Rotation rotation : rotations)
      if (p.cols % group_of(rotation) == 0) fitting.push_back(rotation);
    cross(variants, &Variant::rotation, fitting);
  }
  if (parts.rotated == Makes::yes && p.dtype != DType::f32)
    cross(variants, &Variant::rotated, std::array{DType::f32, p.dtype});
  if (parts.scaled == Makes::yes) cross(variants, &Variant::scaled, std::array{true});
  if (parts.scaled == Makes::if_wanted) cross(variants, &Variant::scaled, std::array{false, true});
  if (p.op == Op::column_sums) cross(variants, &Variant::accumulate, std::array{false, true});
  return variants;
}

// The matrices that the operation of one problem needs, on its Context's device.
class Operands {
 public:
  Operands(Context& context, const Problem& p, const Variant& variant,
           const measure::TrialOptions& options, std::uint64_t seed)
      : context_(context), parts_(parts_of(p.op)), problem_(p), variant_(variant) {
    if (parts_.source == Source::codes)
      fill_codes(options, seed);
    else
      fill_floats(x_, options, seed);
    if (parts_.source == Source::gradient) fill_floats(g_, options, seed + 1);
    if (variant.scaled) {
      column_scales_ = Matrix(context, DType::f32, 1, p.cols);
      measure::fill_scales(context, column_scales_.floats(), seed + 2);
    }
    const std::int64_t padded = p.block_rows > 0 ? whole_block_rows(p.rows, p.block_rows) : p.rows;
    take(parts_.q != Scales::none, q_, DType::s8, p.rows, p.cols);
    take(parts_.transposes(), q_t_, DType::s8, p.cols, padded);
    take_scales(absmax_, parts_.q);
    // If both layouts of codes have one scale for the matrix, it is the same scale.
    if (parts_.q_t != parts_.q) take_scales(absmax_t_, parts_.q_t);
    take(parts_.sums != Makes::no, sums_, DType::f32, 1, p.cols);
    if (variant.accumulate) {
      before_ = Matrix(context, DType::f32, 1, p.cols);
      measure::fill_normal(context, before_.any(), seed + 3);
    }
    take(parts_.value != Makes::no, value_, p.dtype, p.rows, p.cols, p.alignment);
    take(parts_.rotated == Makes::yes, rotated_, variant.rotated, p.rows, p.cols, p.alignment);
  }
  // Not copyable, because results_ points to members.
  Operands(const Operands&) = delete;
  Operands& operator=(const Operands&) = delete;

  void run(const Config& config) const {
    if (!before_.empty()) measure::copy(context_, before_.any(), sums_.any());
    quant::run(context_.state(), problem_, config, request());
  }
  void run_on_poison(const Config& config) const {
    for (const Matrix* result : results_)
      measure::poison(context_, result->any());
    run(config);
  }

  // Copies of the results of a problem that is too large for the reference. On a device these are
  // some rows from the whole matrix.
  [[nodiscard]] std::vector<Matrix> images() const {
    std::vector<Matrix> all;
    for (const Matrix* result : results_)
      all.push_back(measure::host_copy(context_, compared(result->any())));
    return all;
  }
  [[nodiscard]] std::string difference_to(const std::vector<Matrix>& want) const {
    for (std::size_t i = 0; i < results_.size(); ++i) {
      std::string where =
          measure::difference(context_, compared(results_[i]->any()), want[i].any());
      if (!where.empty()) return fmt::format("{} of result {}", where, i);
    }
    return {};
  }

 private:
  friend class Expected;

  void fill_floats(Matrix& m, const measure::TrialOptions& options, std::uint64_t seed) {
    m = Matrix(context_, problem_.dtype, problem_.rows, problem_.cols, 0, problem_.alignment);
    measure::fill(context_, m.any(), options.data, seed);
  }
  void fill_codes(const measure::TrialOptions& options, std::uint64_t seed) {
    x_ = Matrix(context_, DType::s8, problem_.rows, problem_.cols, 0, problem_.alignment);
    absmax_x_ = Matrix(context_, DType::f32, 1, problem_.rows);
    if (options.data == measure::Data::normal) {
      measure::fill_random(context_, x_.any(), seed);
      measure::fill_scales(context_, absmax_x_.floats(), seed + 1);
      return;
    }
    const Matrix floats(context_, DType::f32, problem_.rows, problem_.cols);
    measure::fill(context_, floats.any(), options.data, seed);
    const Codes codes =
        measure::oracle::quantize(measure::to_host(context_, floats).any(), Group::row);
    measure::copy(context_, ConstAnyMatrix(codes.view()), x_.any());
    measure::copy(context_, {codes.absmax.data(), DType::f32, 1, problem_.rows, problem_.rows},
                  absmax_x_.any());
  }
  void take(bool wanted, Matrix& operand, DType dtype, std::int64_t rows, std::int64_t cols,
            std::int64_t alignment = 0) {
    if (!wanted) return;
    operand = Matrix(context_, dtype, rows, cols, 0, alignment);
    results_.push_back(&operand);
  }
  void take_scales(Matrix& operand, Scales scales) {
    const std::int64_t count =
        scale_count(scales, problem_.rows, problem_.cols, problem_.block_rows);
    take(count > 0, operand, DType::f32, 1, count);
  }
  [[nodiscard]] AnyMatrix compared(AnyMatrix result) const {
    const DeviceKind device = context_.state().device.kind;
    if (device == DeviceKind::cpu) return result;
    return measure::spread_rows(result, measure::rows_to_keep(device, result.rows, result.cols));
  }

  [[nodiscard]] Request request() const {
    const auto codes = [](const Matrix& of) {
      return of.empty() ? MatrixView<std::int8_t>() : of.view<std::int8_t>();
    };
    Request r;
    r.x = x_.any();
    if (!g_.empty()) r.g = g_.any();
    r.activation = variant_.activation;
    r.absmax_x = absmax_x_.floats();
    r.q = {parts_.q, codes(q_), absmax_.floats()};
    r.q_t = {parts_.q_t, codes(q_t_), (parts_.q_t == parts_.q ? absmax_ : absmax_t_).floats(),
             problem_.block_rows};
    r.column_sums = sums_.floats();
    r.accumulate = variant_.accumulate;
    if (!value_.empty()) r.value = value_.any();
    r.rotation = variant_.rotation;
    if (!rotated_.empty()) r.rotated = rotated_.any();
    r.column_scales = column_scales_.floats();
    if (parts_.stochastic) r.stochastic = rounding;
    return r;
  }

  Context& context_;
  const OpParts& parts_;
  Problem problem_;
  Variant variant_;
  Matrix x_, g_, absmax_x_, column_scales_, before_;
  Matrix q_, q_t_, absmax_, absmax_t_, sums_, value_, rotated_;
  std::vector<const Matrix*> results_;
};

float f32(double value) {
  return static_cast<float>(value);
}

// The largest error of an activation and its derivative compared with f64, before rounding to their
// type: see activation.hpp.
constexpr double activation_bound = 0x1p-22;

double exact_value(Activation activation, double x) {
  if (activation == Activation::gelu_erf) return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
  const double u = std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x);
  return x / (1.0 + std::exp(-2.0 * u));
}

double exact_derivative(Activation activation, double x) {
  if (!std::isfinite(x)) return measure::not_measured;
  if (activation == Activation::gelu_erf)
    return 0.5 * std::erfc(-x / std::numbers::sqrt2) +
           x * std::exp(-0.5 * x * x) / std::sqrt(2.0 * std::numbers::pi);
  const double root = std::sqrt(2.0 / std::numbers::pi);
  const double s = 1.0 / (1.0 + std::exp(-2.0 * root * (x + 0.044715 * x * x * x)));
  return s + x * 2.0 * root * (1.0 + 3.0 * 0.044715 * x * x) * (s * (1.0 - s));
}

// The results that the operands must give, computed by the reference on the host.
class Expected {
 public:
  explicit Expected(const Operands& o)
      : operands_(o), parts_(o.parts_), variant_(o.variant_), problem_(o.problem_) {
    v_ = values(measure::to_host(o.context_, o.x_), measure::to_host(o.context_, o.g_));
    const StochasticRounding* const random = parts_.stochastic ? &rounding : nullptr;
    if (parts_.q == Scales::unscaled) {
      q_ = {v_.rows(), v_.cols(), measure::oracle::cast(v_.any()), {}};
    } else if (parts_.q != Scales::none) {
      const Matrix other = instead_of_v();
      q_ = measure::oracle::quantize(other.empty() ? v_.any() : other.any(),
                                     group_of_scales(parts_.q), random);
    }
    if (parts_.q_t == Scales::per_block)
      q_t_ = measure::oracle::quantize_blocks(v_.any(), problem_.block_rows, random);
    else if (parts_.transposes())
      q_t_ = measure::oracle::quantize(v_.any(), group_of_scales(parts_.q_t)).transposed();
    if (parts_.sums != Makes::no) sums_ = measure::oracle::column_sums(v_.any());
    if (variant_.accumulate) {
      const Matrix before = measure::to_host(o.context_, o.before_);
      for (std::size_t i = 0; i < sums_.size(); ++i)
        sums_[i] = f32(static_cast<double>(before.floats()[i]) + static_cast<double>(sums_[i]));
    }
    if (parts_.rotated == Makes::yes)
      rotated_ = measure::in_dtype(
          measure::oracle::rounded(measure::oracle::rotate(v_.any(), group_of(variant_.rotation)),
                                   variant_.rotated),
          problem_.cols, variant_.rotated);
  }

  void compare(measure::Checker& checker) const {
    const std::string_view op = parts_.name;
    const std::string suffix = variant_.text();
    const auto codes = [&](const char* part, const Matrix& got, const Codes& want,
                           std::string_view rule) {
      if (!got.empty()) checker.exact(op, part + suffix, got.any(), want.view(), rule);
    };
    const auto floats = [&](const char* part, const Matrix& got, const std::vector<float>& want,
                            std::string_view rule) {
      const auto count = static_cast<std::int64_t>(want.size());
      if (!got.empty())
        checker.exact(op, part + suffix, got.any(), {want.data(), DType::f32, 1, count, count},
                      rule);
    };
    const Operands& o = operands_;
    codes("codes", o.q_, q_,
          parts_.q == Scales::unscaled ? cast_rule
          : parts_.stochastic          ? stochastic_rule
                                       : codes_rule);
    floats("absmax", o.absmax_, q_.absmax, absmax_rule);
    codes("transposed codes", o.q_t_, q_t_, parts_.stochastic ? stochastic_rule : codes_rule);
    floats("transposed absmax", o.absmax_t_, q_t_.absmax, absmax_rule);
    floats("sums", o.sums_, sums_, sums_rule);
    if (!o.rotated_.empty())
      checker.exact(op, "values" + suffix, o.rotated_.any(), rotated_.any(), rotation_rule);
    if (o.value_.empty()) return;
    checker.exact(op, "values" + suffix, o.value_.any(), v_.any(),
                  parts_.source == Source::codes ? dequantized_rule : activation_rule);
    if (takes_activation(parts_))
      checker.bounded(op, "values" + suffix + ", against f64", o.value_.any(),
                      {measure::all_rows(problem_.rows), measure::all_rows(problem_.cols)}, exact_,
                      parts_.source == Source::activation
                          ? "2^-22 · max(1, |x|) of f64, plus one rounding to the type"
                          : "2^-22 · |g| of f64, plus the product's rounding and one to the type");
  }

 private:
  static Group group_of_scales(Scales scales) {
    return scales == Scales::per_row      ? Group::row
           : scales == Scales::per_column ? Group::column
                                          : Group::matrix;
  }

  // Computes v, the matrix from which the results of a Request are computed.
  Matrix values(Matrix x, const Matrix& g) {
    if (parts_.source == Source::floats) return x;
    if (parts_.source == Source::codes) {
      const Matrix absmax = measure::to_host(operands_.context_, operands_.absmax_x_);
      const auto* codes = x.view<const std::int8_t>().data;
      return measure::in_dtype(
          measure::oracle::dequantize({x.rows(),
                                       x.cols(),
                                       {codes, codes + x.rows() * x.cols()},
                                       {absmax.floats().begin(), absmax.floats().end()}},
                                      problem_.dtype),
          x.cols(), problem_.dtype);
    }
    std::vector<float> v;
    exact_.cols = x.cols();
    const Activation activation = variant_.activation;
    for (std::int64_t r = 0; r < x.rows(); ++r)
      for (std::int64_t c = 0; c < x.cols(); ++c) {
        const double at = element(x.any(), r, c);
        const bool is_value = parts_.source == Source::activation;
        const double factor = is_value ? 1 : element(g.any(), r, c);
        const float f = is_value ? gelu::value(activation, f32(at))
                                 : f32(factor) * gelu::derivative(activation, f32(at));
        v.push_back(measure::round_to(problem_.dtype, static_cast<double>(f)));
        const double exact =
            is_value ? exact_value(activation, at) : factor * exact_derivative(activation, at);
        double bound = measure::rounding_error(problem_.dtype, exact);
        // For a gradient: the error of the derivative, and of rounding the product to f32.
        bound += is_value ? activation_bound * std::max(1.0, std::abs(at))
                          : std::abs(factor) * activation_bound + 0x1p-24 * std::abs(exact);
        exact_.values.push_back(exact);
        exact_.bounds.push_back(std::isfinite(bound) ? bound : 0.0);
      }
    return measure::in_dtype(v, x.cols(), problem_.dtype);
  }

  // The matrix that is quantized by rows, if it is not v but v rotated or with scaled columns; else
  // empty.
  [[nodiscard]] Matrix instead_of_v() const {
    if (parts_.rotates)
      return measure::in_dtype(measure::oracle::rotate(v_.any(), group_of(variant_.rotation)),
                               problem_.cols, DType::f32);
    if (!variant_.scaled) return {};
    const Matrix scales = measure::to_host(operands_.context_, operands_.column_scales_);
    std::vector<float> scaled;
    for (std::int64_t r = 0; r < v_.rows(); ++r)
      for (std::int64_t c = 0; c < v_.cols(); ++c)
        scaled.push_back(f32(element(v_.any(), r, c) * element(scales.any(), 0, c)));
    return measure::in_dtype(scaled, problem_.cols, DType::f32);
  }

  const Operands& operands_;
  const OpParts& parts_;
  const Variant& variant_;
  const Problem& problem_;
  Matrix v_, rotated_;
  Codes q_, q_t_;
  std::vector<float> sums_;
  measure::Reference exact_;  ///< of an activation: f64 results and error bounds
};

class QuantizeTrial final : public measure::TrialOf<Config> {
 public:
  QuantizeTrial(Context& context, const Problem& problem, const measure::TrialOptions& options)
      : TrialOf(context, options, op_name(problem.op), problem.dtype),
        problem_(problem),
        compared_(compared(problem)) {
    for (const Variant& variant : variants_of(problem))
      cases_.emplace_back(std::make_unique<Case>(context, compared_, variant, options));
    if (compared_ == problem && !options.takes_turns) return;
    const double bytes = static_cast<double>(problem.rows) * static_cast<double>(problem.cols) *
                         static_cast<double>(dtype_size_bytes(problem.dtype) + 1);
    const std::size_t sets = options.takes_turns ? measure::rotation(context, bytes) : 1;
    for (std::size_t i = 0; i < sets; ++i)
      sets_.push_back(
          std::make_unique<Operands>(context, problem, Variant(), options, options.seed + 10 + i));
  }

 private:
  std::vector<Config> configs() override {
    const ContextState& state = context_.state();
    return is_tuned(problem_.op) ? quant::candidates(problem_, state)
                                 : std::vector<Config>{default_config(problem_, state)};
  }
  std::vector<Config> engine_configs() override {
    std::vector<Config> all = {default_config(problem_, context_.state())};
    if (context_.state().on_cpu()) all.push_back({.engine = Engine::reference});
    return all;
  }
  std::string refusal(const Config& config) override {
    return check_config(problem_, config, context_.state());
  }

  void compare(measure::Checker& checker, const Config& config) override {
    for (const std::unique_ptr<Case>& one : cases_) {
      one->operands.run_on_poison(config);
      if (!one->expected) one->expected.emplace(one->operands);
      one->expected->compare(checker);
    }
    if (compared_ == problem_ || !checker.passes()) return;
    const Operands& whole = *sets_.front();
    whole.run_on_poison(config);
    if (images_.empty())
      images_ = whole.images();
    else
      checker.add(op_, "the whole matrix", output_, problem_.rows * problem_.cols,
                  "equal to that of the first configuration", whole.difference_to(images_));
  }

  void run_config(const Config& config) override {
    if (sets_.empty()) return cases_.front()->operands.run(config);
    sets_[next_++ % sets_.size()]->run(config);
  }

  // One variant of the operation, on a problem that is small enough for the reference.
  struct Case {
    Operands operands;
    std::optional<Expected> expected;
    Case(Context& context, const Problem& problem, const Variant& variant,
         const measure::TrialOptions& options)
        : operands(context, problem, variant, options, options.seed) {}
  };

  [[nodiscard]] Problem compared(Problem p) const {
    if (static_cast<double>(p.rows) * static_cast<double>(p.cols) > options_.most_reference_work) {
      p.rows = std::min<std::int64_t>(p.rows, 197);
      p.cols = std::min<std::int64_t>(p.cols, 1091);
    }
    return p;
  }

  Problem problem_;
  Problem compared_;
  std::vector<std::unique_ptr<Case>> cases_;
  /// Operands of the whole problem; runs alternate between them.
  std::vector<std::unique_ptr<Operands>> sets_;
  std::size_t next_ = 0;
  std::vector<Matrix> images_;  ///< copies of the results of the first configuration
};

}  // namespace

std::unique_ptr<measure::Trial> make_trial(Context& context, const Problem& problem,
                                           const measure::TrialOptions& options) {
  return std::make_unique<QuantizeTrial>(context, problem, options);
}

std::vector<Problem> trial_problems(const ContextState& state, const measure::TrialShape& shape,
                                    DType dtype) {
  std::vector<Problem> problems;
  for (const OpParts& parts : all_ops) {
    const bool of_blocks = parts.q_t == Scales::per_block;
    // Weights are quantized as a whole and transposed, X and G by rows.
    const bool of_weight = !of_blocks && (parts.transposes() || parts.q == Scales::global);
    Problem p;
    p.op = parts.op;
    p.dtype = dtype;
    p.rows = of_weight ? shape.n : shape.m;
    p.cols = shape.k;
    p.block_rows = of_blocks ? 128 : 0;
    p.device = state.device.kind;
    const auto element = static_cast<std::int64_t>(dtype_size_bytes(dtype));
    if (!state.on_cpu()) p.alignment = p.cols * element % 16 == 0 ? 16 : 1;
    if (state.on_cpu()) {
      p.threads = state.threads.count();
      p.isa = state.features.level();
    }
    if (!variants_of(p).empty()) problems.push_back(p);
  }
  return problems;
}

}  // namespace switchback::quant
