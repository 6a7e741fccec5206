// SPDX-License-Identifier: Apache-2.0
// Bench: `verify` of the quantize operations, their inverse and the cast, all exact.
#include <fmt/format.h>

#include <cmath>

#include "bench/verify/suite.hpp"
#include "quant/rotate.hpp"
#include "switchback/rounding.hpp"

namespace switchback::bench {

namespace {

constexpr std::string_view codes_rule =
    "equal to the f64-defined oracle: round_half_even(127 · (x / absmax)), each step rounded to "
    "f32";
constexpr std::string_view absmax_rule = "equal: the largest |x| of the group; NaN, then Inf, wins";
constexpr std::string_view sums_rule =
    "equal: f32 sums of 128-row blocks in row order, then of the blocks in order";
constexpr std::string_view rotation_rule =
    "equal: log4(g) stages of additions and products, each rounded to f32, then once to the output";
constexpr std::string_view stochastic_rule =
    "equal: floor((round_half_even(65536 · (127 · (x / absmax))) + r) / 65536), r of Philox4x32-10";
constexpr StochasticRounding rounding = {.seed = 3, .stream = 5, .step = 7, .row0 = 11};

// Codes and scales as outputs of an operation. Filled with values that no operation may leave
// there.
struct Written {
  measure::Matrix q, scales;
  Written(const Suite& suite, std::int64_t rows, std::int64_t cols, std::int64_t groups)
      : q(suite.filled(rows, cols, std::int8_t{-128})),
        scales(suite.filled(1, groups, unwritten_float)) {}
  [[nodiscard]] MatrixView<std::int8_t> view() const { return q.view<std::int8_t>(); }
  [[nodiscard]] std::span<float> absmax() const { return scales.floats(); }
};

// One shape, dtype and kind of data: x is [batch, dim_in], w is [dim_out, dim_in].
class QuantizeChecks {
 public:
  QuantizeChecks(Suite& suite, const VerifyShape& shape, DType dtype, Data data)
      : suite_(suite),
        shape_(shape),
        dtype_(dtype),
        data_(data),
        x_(suite.matrix(dtype, shape.batch, shape.dim_in)),
        w_(suite.matrix(dtype, shape.dim_out, shape.dim_in)) {
    const std::uint64_t seed = suite.options().seed;
    fill(suite.context(), x_.any(), data, seed);
    fill(suite.context(), w_.any(), data, seed + 1);
  }

  void all() {
    rowwise();
    sums();
    transposed();
    both_layouts();
    blocks();
    rotations();
    stochastic();
    dequantize();
    cast();
  }

 private:
  [[nodiscard]] Check check(const char* op, std::string part) const {
    return suite_.check(op, std::move(part), dtype_, data_, shape_);
  }
  void compare(const char* op, const char* part, const measure::Matrix& got,
               const oracle::Codes& want, std::string_view rule = codes_rule) {
    suite_.exact(check(op, part), got.any(), want.view(), rule);
  }
  void compare(const char* op, const char* part, const measure::Matrix& got,
               const std::vector<float>& want, std::string_view rule = absmax_rule) {
    suite_.exact(check(op, part), got.any(), as_row(want), rule);
  }
  void compare(const char* op, const Written& got, const oracle::Codes& want,
               std::string_view rule = codes_rule) {
    compare(op, "codes", got.q, want, rule);
    compare(op, "absmax", got.scales, want.absmax);
  }
  bool attempt(const char* op, const std::function<void()>& operation) {
    return suite_.attempt(check(op, "call"), operation);
  }

  void rowwise() {
    Context& context = suite_.context();
    const oracle::Codes want = oracle::quantize(x_.any(), Group::row);
    const Written got(suite_, x_.rows(), x_.cols(), x_.rows());
    if (attempt("quantize_rowwise",
                [&] { quantize_rowwise(context, x_.any(), got.view(), got.absmax()); }))
      compare("quantize_rowwise", got, want);

    const Written with_sums(suite_, x_.rows(), x_.cols(), x_.rows());
    const measure::Matrix column = suite_.filled(1, x_.cols(), unwritten_float);
    const char* op = "quantize_rowwise_column_sums";
    if (attempt(op, [&] {
          quantize_rowwise_column_sums(context, x_.any(), with_sums.view(), with_sums.absmax(),
                                       column.floats());
        })) {
      compare(op, with_sums, want);
      compare(op, "sums", column, oracle::column_sums(x_.any()), sums_rule);
    }
  }

  void sums() {
    const std::vector<float> want = oracle::column_sums(x_.any());
    measure::Matrix got = suite_.filled(1, x_.cols(), unwritten_float);
    if (!attempt("column_sums", [&] { column_sums(suite_.context(), x_.any(), got.floats()); }))
      return;
    compare("column_sums", "sums", got, want, sums_rule);
    // What it held, which the check above found to be `want`, plus the same again: one f32
    // addition.
    got = suite_.copied(1, x_.cols(), want);
    if (!attempt("column_sums",
                 [&] { column_sums(suite_.context(), x_.any(), got.floats(), true); }))
      return;
    std::vector<float> twice;
    for (const float sum : want)
      twice.push_back(static_cast<float>(2.0 * static_cast<double>(sum)));
    compare("column_sums", "accumulated", got, twice, sums_rule);
  }

  void transposed() {
    Context& context = suite_.context();
    const Written columns(suite_, w_.cols(), w_.rows(), w_.cols());
    if (attempt("quantize_columnwise_transpose", [&] {
          quantize_columnwise_transpose(context, w_.any(), columns.view(), columns.absmax());
        }))
      compare("quantize_columnwise_transpose", columns,
              oracle::quantize(w_.any(), Group::column).transposed());

    const oracle::Codes want = oracle::quantize(w_.any(), Group::matrix);
    const Written global(suite_, w_.rows(), w_.cols(), 1);
    if (attempt("quantize_global",
                [&] { quantize_global(context, w_.any(), global.view(), global.absmax()); }))
      compare("quantize_global", global, want);

    const Written global_t(suite_, w_.cols(), w_.rows(), 1);
    if (attempt("quantize_global_transpose", [&] {
          quantize_global_transpose(context, w_.any(), global_t.view(), global_t.absmax());
        }))
      compare("quantize_global_transpose", global_t, want.transposed());
  }

  void both_layouts() {
    Context& context = suite_.context();
    const Written q(suite_, w_.rows(), w_.cols(), w_.rows());
    const Written t(suite_, w_.cols(), w_.rows(), w_.cols());
    const char* op = "quantize_rowwise_and_columnwise_transpose";
    if (attempt(op, [&] {
          quantize_rowwise_and_columnwise_transpose(context, w_.any(), q.view(), q.absmax(),
                                                    t.view(), t.absmax());
        })) {
      compare(op, q, oracle::quantize(w_.any(), Group::row));
      const oracle::Codes want = oracle::quantize(w_.any(), Group::column).transposed();
      compare(op, "transposed codes", t.q, want);
      compare(op, "column absmax", t.scales, want.absmax);
    }
    const Written global(suite_, w_.rows(), w_.cols(), 1);
    const Written global_t(suite_, w_.cols(), w_.rows(), 1);
    op = "quantize_global_and_transpose";
    if (attempt(op, [&] {
          quantize_global_and_transpose(context, w_.any(), global.view(), global_t.view(),
                                        global.absmax());
        })) {
      const oracle::Codes want = oracle::quantize(w_.any(), Group::matrix);
      compare(op, global, want);
      compare(op, "transposed codes", global_t.q, want.transposed());
    }
  }

  void blocks() {
    Context& context = suite_.context();
    const oracle::Codes want = oracle::quantize_blocks(x_.any(), verified_block_rows);
    const auto scales = static_cast<std::int64_t>(want.absmax.size());
    const Written alone(suite_, want.rows, want.cols, scales);
    const char* op = "quantize_blockwise_transpose";
    if (attempt(op, [&] {
          quantize_blockwise_transpose(context, x_.any(), verified_block_rows, alone.view(),
                                       alone.absmax());
        }))
      compare(op, alone, want);

    const Written rows(suite_, x_.rows(), x_.cols(), x_.rows());
    const Written blocks(suite_, want.rows, want.cols, scales);
    const measure::Matrix sums = suite_.filled(1, x_.cols(), unwritten_float);
    op = "quantize_rowwise_and_blockwise_transpose";
    if (attempt(op, [&] {
          quantize_rowwise_and_blockwise_transpose(context, x_.any(), rows.view(), rows.absmax(),
                                                   verified_block_rows, blocks.view(),
                                                   blocks.absmax(), sums.floats());
        })) {
      compare(op, rows, oracle::quantize(x_.any(), Group::row));
      compare(op, "transposed codes", blocks.q, want);
      compare(op, "block absmax", blocks.scales, want.absmax);
      compare(op, "sums", sums, oracle::column_sums(x_.any()), sums_rule);
    }

    const Written random(suite_, want.rows, want.cols, scales);
    op = "quantize_blockwise_transpose_stochastic";
    if (attempt(op, [&] {
          quantize_blockwise_transpose_stochastic(context, x_.any(), rounding, verified_block_rows,
                                                  random.view(), random.absmax());
        }))
      compare(op, random, oracle::quantize_blocks(x_.any(), verified_block_rows, &rounding),
              stochastic_rule);
  }

  void rotations() {
    for (const Rotation rotation : quant::rotations)
      if (x_.cols() % quant::group_of(rotation) == 0) rotated(rotation);
  }

  void rotated(Rotation rotation) {
    Context& context = suite_.context();
    const std::int64_t group = quant::group_of(rotation);
    const std::vector<float> want = oracle::rotate(x_.any(), group);
    for (const DType to : {DType::f32, dtype_}) {
      const measure::Matrix got = suite_.unwritten(to, x_.rows(), x_.cols());
      if (!attempt("rotate", [&] { rotate(context, x_.any(), rotation, got.any()); })) continue;
      const measure::Matrix values = in_dtype(oracle::rounded(want, to), x_.cols(), to);
      suite_.exact(check("rotate", fmt::format("groups of {}", group)), got.any(), values.any(),
                   rotation_rule);
      if (dtype_ == DType::f32) break;
    }
    const Written got(suite_, x_.rows(), x_.cols(), x_.rows());
    if (attempt("rotate_quantize",
                [&] { rotate_quantize(context, x_.any(), rotation, got.view(), got.absmax()); }))
      compare("rotate_quantize", got, oracle::quantize(as_matrix(want, x_.cols()), Group::row));
  }

  void stochastic() {
    const Written got(suite_, x_.rows(), x_.cols(), x_.rows());
    const char* op = "quantize_rowwise_stochastic";
    if (attempt(op, [&] {
          quantize_rowwise_stochastic(suite_.context(), x_.any(), rounding, got.view(),
                                      got.absmax());
        }))
      compare(op, got, oracle::quantize(x_.any(), Group::row, &rounding), stochastic_rule);
  }

  void dequantize() {
    const oracle::Codes codes = oracle::quantize(x_.any(), Group::row);
    const measure::Matrix q = suite_.copied(x_.rows(), x_.cols(), codes.q);
    const measure::Matrix absmax = suite_.copied(1, x_.rows(), codes.absmax);
    for (const DType to : {DType::f32, dtype_}) {
      const measure::Matrix got = suite_.unwritten(to, x_.rows(), x_.cols());
      if (!attempt("dequantize_rowwise", [&] {
            dequantize_rowwise(suite_.context(), q.view<const std::int8_t>(), absmax.floats(),
                               got.any());
          }))
        continue;
      const measure::Matrix want = in_dtype(oracle::dequantize(codes, to), x_.cols(), to);
      suite_.exact(check("dequantize_rowwise", "values"), got.any(), want.any(),
                   "equal: absmax · (q / 127), each step rounded to f32, then once to the output");
      if (to == DType::f32) near_the_original(got);
      if (dtype_ == DType::f32) break;
    }
  }

  // |x̂ − x| is at most half a code, absmax/254, and three roundings to f32 (quotient, product, and
  // the quantizer's own) of values up to absmax.
  void near_the_original(const measure::Matrix& dequantized) {
    Reference reference;
    reference.cols = x_.cols();
    for (std::int64_t r = 0; r < x_.rows(); ++r) {
      double absmax = 0;
      for (std::int64_t c = 0; c < x_.cols(); ++c) {
        const double x = std::abs(element(x_.any(), r, c));
        absmax = std::isnan(absmax) || x <= absmax ? absmax : x;
      }
      for (std::int64_t c = 0; c < x_.cols(); ++c) {
        // Every element of a row that is not finite becomes NaN.
        reference.values.push_back(std::isfinite(absmax) ? element(x_.any(), r, c) : not_measured);
        reference.bounds.push_back(
            std::isfinite(absmax) ? absmax * (1.0 / 254 + 4 * 0x1p-24) + 0x1p-149 : 0.0);
      }
    }
    suite_.bounded(check("dequantize_rowwise", "distance from x"), dequantized.any(),
                   all_rows(x_.rows()), reference,
                   "absmax/254 (half a code) plus four roundings to f32 of absmax");
  }

  void cast() {
    const measure::Matrix got = suite_.filled(x_.rows(), x_.cols(), std::int8_t{1});
    if (!attempt("cast_to_int8",
                 [&] { cast_to_int8(suite_.context(), x_.any(), got.view<std::int8_t>()); }))
      return;
    const std::vector<std::int8_t> want = oracle::cast(x_.any());
    suite_.exact(check("cast_to_int8", "codes"), got.any(), as_matrix(want, x_.cols()),
                 "equal: truncated, clamped to [-128, 127], NaN to 0");
  }

  Suite& suite_;
  VerifyShape shape_;
  DType dtype_;
  Data data_;
  measure::Matrix x_;
  measure::Matrix w_;
};

}  // namespace

void verify_quantize(Suite& suite, const VerifyShape& shape) {
  for (const DType dtype : suite.options().dtypes)
    for (const Data data : all_data())
      if (suite.wants(data, shape)) QuantizeChecks(suite, shape, dtype, data).all();
}

}  // namespace switchback::bench
