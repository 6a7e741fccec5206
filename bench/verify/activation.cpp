// SPDX-License-Identifier: Apache-2.0
// Bench: `verify` of the activations: values against f64, and codes against codes of the values.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "bench/verify/suite.hpp"
#include "switchback/activation.hpp"

namespace switchback::bench {

namespace {

using measure::rounding_error;

constexpr double library_bound = 0x1p-22;  // of activation.hpp

double exact_value(Activation activation, double x) {
  if (activation == Activation::gelu_erf) return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
  const double u = std::sqrt(2.0 / std::numbers::pi) * (x + 0.044715 * x * x * x);
  return x / (1.0 + std::exp(-2.0 * u));
}

double exact_derivative(Activation activation, double x) {
  if (!std::isfinite(x)) return not_measured;
  if (activation == Activation::gelu_erf)
    return 0.5 * std::erfc(-x / std::numbers::sqrt2) +
           x * std::exp(-0.5 * x * x) / std::sqrt(2.0 * std::numbers::pi);
  const double root = std::sqrt(2.0 / std::numbers::pi);
  const double s = 1.0 / (1.0 + std::exp(-2.0 * root * (x + 0.044715 * x * x * x)));
  return s + x * 2.0 * root * (1.0 + 3.0 * 0.044715 * x * x) * (s * (1.0 - s));
}

class ActivationChecks {
 public:
  ActivationChecks(Suite& suite, const VerifyShape& shape, DType dtype, Data data,
                   Activation activation)
      : suite_(suite),
        shape_(shape),
        dtype_(dtype),
        data_(data),
        activation_(activation),
        name_(activation_name(activation)),
        x_(suite.matrix(dtype, shape.batch, shape.dim_in)),
        g_(suite.matrix(dtype, shape.batch, shape.dim_in)) {
    const std::uint64_t seed = suite.options().seed;
    fill(suite.context(), x_.any(), data, seed + 10);
    fill(suite.context(), g_.any(), data, seed + 11);
  }

  void all() {
    forward();
    backward();
  }

 private:
  [[nodiscard]] Check check(const char* op, const char* part) const {
    return suite_.check(op, name_ + " " + part, dtype_, data_, shape_);
  }
  [[nodiscard]] measure::Matrix output() const {
    return suite_.unwritten(dtype_, x_.rows(), x_.cols());
  }

  void forward() {
    const measure::Matrix y = output();
    if (!suite_.attempt(check("activation_forward", "call"), [&] {
          activation_forward(suite_.context(), x_.any(), activation_, y.any());
        }))
      return;
    Reference reference;
    reference.cols = x_.cols();
    for (std::int64_t r = 0; r < x_.rows(); ++r)
      for (std::int64_t c = 0; c < x_.cols(); ++c) {
        const double x = element(x_.any(), r, c);
        const double value = exact_value(activation_, x);
        const double bound =
            library_bound * std::max(1.0, std::abs(x)) + rounding_error(dtype_, value);
        reference.values.push_back(value);
        reference.bounds.push_back(std::isfinite(bound) ? bound : 0.0);
      }
    suite_.bounded(check("activation_forward", "values"), y.any(), all_rows(x_.rows()), reference,
                   "2^-22 · max(1, |x|) of f64, plus one rounding to the dtype");

    const char* op = "activation_forward_quantize";
    const measure::Matrix beside = output();
    const Codes got(*this);
    if (!suite_.attempt(check(op, "call"), [&] {
          activation_forward_quantize(suite_.context(), x_.any(), activation_, got.view(),
                                      got.absmax(), beside.any());
        }))
      return;
    same(op, beside, y);
    same(op, got, y);
  }

  void backward() {
    const measure::Matrix dx = output();
    if (!suite_.attempt(check("activation_backward", "call"), [&] {
          activation_backward(suite_.context(), g_.any(), x_.any(), activation_, dx.any());
        }))
      return;
    Reference reference;
    reference.cols = x_.cols();
    for (std::int64_t r = 0; r < x_.rows(); ++r)
      for (std::int64_t c = 0; c < x_.cols(); ++c) {
        const double g = element(g_.any(), r, c);
        const double value = g * exact_derivative(activation_, element(x_.any(), r, c));
        // The derivative's error, and the product's rounding to f32.
        const double bound =
            std::abs(g) * library_bound + 0x1p-24 * std::abs(value) + rounding_error(dtype_, value);
        reference.values.push_back(value);
        reference.bounds.push_back(std::isfinite(bound) ? bound : 0.0);
      }
    suite_.bounded(check("activation_backward", "values"), dx.any(), all_rows(x_.rows()), reference,
                   "2^-22 · |g| of f64, plus the product's rounding and one to the dtype");

    const char* op = "activation_backward_quantize";
    const measure::Matrix beside = output();
    const Codes got(*this);
    const measure::Matrix sums = suite_.filled(1, x_.cols(), unwritten_float);
    if (!suite_.attempt(check(op, "call"), [&] {
          activation_backward_quantize(suite_.context(), g_.any(), x_.any(), activation_,
                                       beside.any(), got.view(), got.absmax(), sums.floats());
        }))
      return;
    same(op, beside, dx);
    same(op, got, dx);
    const std::vector<float> want = oracle::column_sums(dx.any());
    suite_.exact(check(op, "sums"), sums.any(), as_row(want),
                 "equal: the column sums of activation_backward");
  }

  struct Codes {
    measure::Matrix q, scales;
    explicit Codes(const ActivationChecks& checks)
        : q(checks.suite_.filled(checks.x_.rows(), checks.x_.cols(), std::int8_t{-128})),
          scales(checks.suite_.filled(1, checks.x_.rows(), unwritten_float)) {}
    [[nodiscard]] MatrixView<std::int8_t> view() const { return q.view<std::int8_t>(); }
    [[nodiscard]] std::span<float> absmax() const { return scales.floats(); }
  };

  void same(const char* op, const measure::Matrix& got, const measure::Matrix& want) {
    suite_.exact(check(op, "values"), got.any(), want.any(),
                 "equal to the operation that does not quantize");
  }
  void same(const char* op, const Codes& got, const measure::Matrix& values) {
    const oracle::Codes want = oracle::quantize(values.any(), Group::row);
    suite_.exact(check(op, "codes"), got.q.any(), want.view(),
                 "equal: quantize_rowwise of the values");
    suite_.exact(check(op, "absmax"), got.scales.any(), as_row(want.absmax),
                 "equal: quantize_rowwise of the values");
  }

  Suite& suite_;
  VerifyShape shape_;
  DType dtype_;
  Data data_;
  Activation activation_;
  std::string name_;
  measure::Matrix x_;
  measure::Matrix g_;
};

}  // namespace

void verify_activation(Suite& suite, const VerifyShape& shape) {
  for (const DType dtype : suite.options().dtypes)
    for (const Data data : all_data())
      for (const Activation activation : {Activation::gelu_tanh, Activation::gelu_erf})
        if (suite.wants(data, shape)) ActivationChecks(suite, shape, dtype, data, activation).all();
}

}  // namespace switchback::bench
