// SPDX-License-Identifier: Apache-2.0
// Bench: `verify` of the linear layer: forward, dX, dW, db and their accumulation, in every mode.
#include <algorithm>
#include <cstddef>

#include "bench/verify/suite.hpp"
#include "core/context_state.hpp"
#include "core/modes.hpp"
#include "gemm/floating/engine.hpp"
#include "measure/data.hpp"
#include "quant/rotate.hpp"
#include "switchback/gemm.hpp"
#include "switchback/linear.hpp"
#include "switchback/rounding.hpp"

namespace switchback::bench {

namespace {

using oracle::Codes;
using oracle::SumBound;

// Limits for the error of int8 on random data. It comes from rounding both operands to codes: the
// rounding of a code has the standard deviation absmax/127/√12. docs/numerics.md states the limits.
// Below some thousand elements, or some tens of products per element, the results vary too much,
// and only equality is checked.
constexpr double relative_error_row_row = 0.014;
constexpr double relative_error_row_global = 0.017;
constexpr double smallest_cosine = 0.9998;
constexpr std::int64_t enough_elements = 4096;
constexpr std::int64_t enough_products = 32;

constexpr std::string_view int8_rule =
    "equal: quantize, integer product and dequantize of the oracle";

// The optional features of an int8 layer: rotation, dW from codes, stochastic rounding of G's
// codes.
struct Options {
  Rotation rotation = Rotation::none;
  bool int8_dw = false;
  bool stochastic = false;
  [[nodiscard]] std::string text() const {
    std::string text;
    if (rotation != Rotation::none)
      text += ", rotated by " + std::to_string(quant::group_of(rotation));
    if (int8_dw) text += ", dw int8";
    if (stochastic) text += ", stochastic";
    return text;
  }
};
constexpr StochasticRounding random_rounding = {.seed = 2, .stream = 3, .step = 4};

class LayerChecks {
 public:
  LayerChecks(Suite& suite, const VerifyShape& shape, DType dtype, Data data)
      : suite_(suite),
        shape_(shape),
        dtype_(dtype),
        data_(data),
        x_(suite.matrix(dtype, shape.batch, shape.dim_in)),
        w_(suite.matrix(dtype, shape.dim_out, shape.dim_in)),
        g_(suite.matrix(dtype, shape.batch, shape.dim_out)),
        bias_(suite.matrix(DType::f32, 1, shape.dim_out)),
        y_rows_(suite.rows_for(shape.batch, shape.dim_out, shape.dim_in)),
        dx_rows_(suite.rows_for(shape.batch, shape.dim_in, shape.dim_out)),
        dw_rows_(suite.rows_for(shape.dim_out, shape.dim_in, shape.batch)) {
    Context& context = suite.context();
    const std::uint64_t seed = suite.options().seed;
    fill(context, x_.any(), data, seed + 11);
    // W is always finite: if a weight were not finite, a layer with one scale for all of W would
    // have no finite result to compare.
    fill(context, w_.any(), data == Data::nonfinite ? Data::normal : data, seed + 12);
    fill(context, g_.any(), data, seed + 13);
    measure::fill_normal(context, bias_.any(), seed + 14);
    y_product_ = measure::product(context, x_.any(), false, w_.any(), true, y_rows_);
    dx_product_ = measure::product(context, g_.any(), false, w_.any(), false, dx_rows_);
    dw_product_ = measure::product(context, g_.any(), true, x_.any(), false, dw_rows_);
  }

  void in_mode(Mode mode, const std::string& engine, const Options& wanted = {}) {
    mode_ = mode;
    engine_ = engine;
    options_ = wanted;
    const measure::Matrix y = suite_.unwritten(dtype_, shape_.batch, shape_.dim_out);
    const measure::Matrix y_eval = suite_.unwritten(dtype_, shape_.batch, shape_.dim_out);
    const measure::Matrix dx = suite_.unwritten(dtype_, shape_.batch, shape_.dim_in);
    const measure::Matrix dw = suite_.unwritten(DType::f32, shape_.dim_out, shape_.dim_in);
    const measure::Matrix dw_twice = suite_.unwritten(DType::f32, shape_.dim_out, shape_.dim_in);
    const measure::Matrix db = suite_.filled(1, bias_.cols(), unwritten_float);
    const measure::Matrix db_twice = suite_.matrix(DType::f32, 1, bias_.cols());
    const bool ran = suite_.attempt(check("call"), [&] {
      LinearOptions options;
      options.in_features = shape_.dim_in;
      options.out_features = shape_.dim_out;
      options.mode = mode;
      options.dtype = dtype_;
      options.engine = engine;
      options.rotation = options_.rotation;
      if (options_.int8_dw) options.dw = WeightGradient::int8_block;
      options.dw_block_rows = verified_block_rows;
      SwitchbackLinear layer(suite_.context(), options);
      layer.set_weight(w_.any(), bias_.any());
      layer.forward(x_.any(), y.any(), Save::copy);
      LinearGrads grads;
      grads.g = g_.any();
      grads.dx = dx.any();
      grads.dw = dw.any();
      grads.db = db.any();
      if (options_.stochastic) grads.rounding = random_rounding;
      layer.backward(grads);
      measure::copy(suite_.context(), dw.any(), dw_twice.any());
      measure::copy(suite_.context(), db.any(), db_twice.any());
      grads.dx = {};
      grads.dw = dw_twice.any();
      grads.db = db_twice.any();
      grads.accumulate = true;
      layer.backward(grads);
      layer.prepare_for_eval();
      layer.forward(x_.any(), y_eval.any());
    });
    if (!ran) return;
    const std::vector<float> dw_before = rows_as_floats(dw.any(), dw_rows_);
    const std::vector<float> db_before = as_floats(db.any());
    forward("forward", y);
    forward("forward, eval", y_eval);
    input_gradient(dx);
    weight_gradient("dw", dw, {});
    weight_gradient("dw, accumulated", dw_twice, dw_before);
    bias_gradient(db, db_twice, db_before);
  }

 private:
  [[nodiscard]] const ModeTraits& mode() const { return traits_of(mode_); }
  [[nodiscard]] bool standard() const { return mode().is_floating(); }
  [[nodiscard]] bool rowwise() const { return mode().weight.of_rows(); }

  [[nodiscard]] Check check(const char* part) const {
    Check c = suite_.check("layer", part + options_.text(), dtype_, data_, shape_);
    c.mode = std::string(mode().name);
    if (!engine_.empty()) c.engine = engine_;
    return c;
  }

  [[nodiscard]] bool rotates() const { return options_.rotation != Rotation::none; }
  // The matrix rotated by the layer's Hadamard rotation, in f32.
  [[nodiscard]] std::vector<float> rotated(ConstAnyMatrix m) const {
    return oracle::rotate(m, quant::group_of(options_.rotation));
  }
  // The codes of X or W. If the layer rotates, they are the codes of the rotated matrix.
  [[nodiscard]] Codes codes_of(const measure::Matrix& m, Group group) const {
    if (!rotates()) return oracle::quantize(m.any(), group);
    return oracle::quantize(as_matrix(rotated(m.any()), m.cols()), group);
  }
  [[nodiscard]] const StochasticRounding* rounding() const {
    return options_.stochastic ? &random_rounding : nullptr;
  }

  [[nodiscard]] SumBound sum_bound() const {
    return data_ == Data::normal ? SumBound::random_data : SumBound::any_data;
  }
  // Checks an output of the layer that is a floating point product.
  void float_output(const char* part, const measure::Matrix& got, const Rows& rows, DType dtype,
                    std::span<const float> bias, std::span<const float> before,
                    const measure::Product& product) {
    const double factor_error =
        floating::factor_error(suite_.context().state().device.kind, engine_);
    suite_.bounded(check(part), got.any(), rows,
                   oracle::reference_of(product, sum_bound(), dtype, bias, before, factor_error),
                   oracle::sum_rule(sum_bound(), factor_error));
  }

  // Checks an output of the layer that is an int8 product a · bᵀ of codes. `rows`: the rows of the
  // output to compare. `back`: the product is rotated in f32 before it is rounded once to the
  // output's type.
  void int8_output(const char* part, const measure::Matrix& got, const Rows& rows, const Codes& a,
                   const Codes& b, std::span<const float> bias, const measure::Product& product,
                   bool back = false) {
    const auto sums = measure::integer_product(suite_.context(), a.view(), b.view(), rows);
    std::vector<float> values = oracle::epilogue(sums, rows, a.absmax, b.absmax, bias, b.rows,
                                                 back ? DType::f32 : got.dtype());
    if (back) values = oracle::rounded(rotated(as_matrix(values, b.rows)), got.dtype());
    const measure::Matrix want = in_dtype(values, b.rows, got.dtype());
    const Reference f64 = oracle::reference_of(product, SumBound::any_data, got.dtype(), bias, {});
    Accuracy accuracy;
    accuracy.reference = &f64;
    const auto compared = static_cast<std::int64_t>(values.size());
    if (data_ == Data::normal && compared >= enough_elements && product.inner >= enough_products &&
        !options_.stochastic) {
      accuracy.largest_relative_error =
          rowwise() ? relative_error_row_row : relative_error_row_global;
      accuracy.smallest_cosine = smallest_cosine;
    }
    suite_.exact(check(part), got.any(), rows, want.any(), int8_rule, accuracy);
  }

  void forward(const char* part, const measure::Matrix& y) {
    if (standard()) return float_output(part, y, y_rows_, dtype_, bias_.floats(), {}, y_product_);
    int8_output(part, y, y_rows_, codes_of(x_, Group::row),
                codes_of(w_, rowwise() ? Group::row : Group::matrix), bias_.floats(), y_product_);
  }

  void input_gradient(const measure::Matrix& dx) {
    if (standard()) return float_output("dx", dx, dx_rows_, dtype_, {}, {}, dx_product_);
    if (mode().weight.scales_gradient()) return input_gradient_of_row_codes(dx);
    const Codes q_w = codes_of(w_, rowwise() ? Group::column : Group::matrix).transposed();
    int8_output("dx", dx, dx_rows_, oracle::quantize(g_.any(), Group::row, rounding()), q_w, {},
                dx_product_, rotates());
  }

  // Checks dX in a mode whose dX reads the codes of W's rows. The scales of W's rows are multiplied
  // into the columns of G before G is quantized.
  void input_gradient_of_row_codes(const measure::Matrix& dx) {
    Codes q_w = codes_of(w_, Group::row);
    std::vector<float> scaled;
    for (std::int64_t row = 0; row < shape_.batch; ++row)
      for (std::int64_t n = 0; n < shape_.dim_out; ++n)
        scaled.push_back(static_cast<float>(element(g_.any(), row, n)) *
                         q_w.absmax[static_cast<std::size_t>(n)]);
    const measure::Matrix v = in_dtype(scaled, shape_.dim_out, DType::f32);
    q_w = q_w.transposed();
    q_w.absmax = {1.0f};
    int8_output("dx", dx, dx_rows_, oracle::quantize(v.any(), Group::row, rounding()), q_w, {},
                dx_product_, rotates());
  }

  void weight_gradient(const char* part, const measure::Matrix& dw,
                       const std::vector<float>& before) {
    const auto compare = [&](const measure::Product& product) {
      float_output(part, dw, dw_rows_, DType::f32, {}, before, product);
    };
    if (options_.int8_dw) return int8_weight_gradient(part, dw, before);
    if (!mode().keeps_codes) return compare(dw_product_);
    // A layer that keeps X's codes instead of X computes dW from the codes dequantized to its
    // dtype.
    std::vector<float> kept =
        oracle::dequantize(codes_of(x_, Group::row), rotates() ? DType::f32 : dtype_);
    if (rotates()) kept = oracle::rounded(rotated(as_matrix(kept, shape_.dim_in)), dtype_);
    const measure::Matrix x = in_dtype(kept, shape_.dim_in, dtype_);
    compare(measure::product(suite_.context(), g_.any(), true, x.any(), false, dw_rows_));
  }

  void int8_weight_gradient(const char* part, const measure::Matrix& dw,
                            const std::vector<float>& before) {
    const std::vector<float> values = oracle::blockwise_product(
        oracle::quantize_blocks(g_.any(), verified_block_rows, rounding()),
        oracle::quantize_blocks(x_.any(), verified_block_rows), verified_block_rows, dw_rows_,
        before, DType::f32);
    suite_.exact(check(part), dw.any(), dw_rows_, as_matrix(values, shape_.dim_in),
                 "equal: the blockwise product of codes of the oracle");
  }

  void bias_gradient(const measure::Matrix& db, const measure::Matrix& db_twice,
                     const std::vector<float>& before) {
    std::vector<float> want = oracle::column_sums(g_.any());
    constexpr std::string_view rule = "equal: f32 sums of 128-row blocks, then of the blocks";
    suite_.exact(check("db"), db.any(), as_row(want), rule);
    std::vector<float> twice;
    for (std::size_t i = 0; i < want.size(); ++i)
      twice.push_back(
          static_cast<float>(static_cast<double>(before[i]) + static_cast<double>(want[i])));
    suite_.exact(check("db, accumulated"), db_twice.any(), as_row(twice), rule);
  }

  Suite& suite_;
  VerifyShape shape_;
  DType dtype_;
  Data data_;
  Mode mode_ = Mode::standard;
  std::string engine_;
  Options options_;
  measure::Matrix x_;
  measure::Matrix w_;
  measure::Matrix g_;
  measure::Matrix bias_;
  Rows y_rows_;
  Rows dx_rows_;
  Rows dw_rows_;
  measure::Product y_product_;
  measure::Product dx_product_;
  measure::Product dw_product_;
};

// The largest rotation whose group of columns divides the number of columns; `none` if no
// rotation's does.
Rotation rotation_for(std::int64_t cols) {
  Rotation found = Rotation::none;
  for (const Rotation rotation : quant::rotations)
    if (cols % quant::group_of(rotation) == 0) found = rotation;
  return found;
}

}  // namespace

void verify_layer(Suite& suite, const VerifyShape& shape) {
  const std::vector<std::string> int8_engines = suite.engines(gemm_engines(suite.context()));
  const std::vector<std::string> standard_engines =
      suite.engines(gemm_standard_engines(suite.context()));
  for (const DType dtype : suite.options().dtypes)
    for (const Data data : measure::all_data()) {
      if (!suite.wants(data, shape)) continue;
      LayerChecks checks(suite, shape, dtype, data);
      for (const Mode mode : suite.options().modes) {
        if (suite.options().engine.empty()) {
          checks.in_mode(mode, {});
          if (traits_of(mode).is_int8())
            checks.in_mode(mode, {},
                           {.rotation = rotation_for(shape.dim_in),
                            .int8_dw = traits_of(mode).has_int8_dw(),
                            .stochastic = true});
        }
        // Layers with a named engine are checked on normal data only. The engines alone were
        // checked on all kinds of data.
        if (data != Data::normal) continue;
        for (const std::string& engine :
             traits_of(mode).is_int8() ? int8_engines : standard_engines)
          checks.in_mode(mode, engine);
      }
    }
}

}  // namespace switchback::bench
