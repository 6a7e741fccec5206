// SPDX-License-Identifier: Apache-2.0
// Bench: `verify` of the fragmented layer (each row selects some fragments of its columns): its
// soft and its hard forward in the int8 modes.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "bench/verify/suite.hpp"
#include "core/modes.hpp"
#include "measure/data.hpp"
#include "quant/gelu.hpp"
#include "switchback/fragmented_linear.hpp"

namespace switchback::bench {

namespace {

using oracle::Codes;

// An f32 sum of 32 lanes: element i is added to lane i mod 32, and then the lanes are added by
// repeated halving.
template <class Term>
float lane_sum(std::int64_t count, const Term& term) {
  std::array<float, 32> lanes{};
  for (std::int64_t i = 0; i < count; ++i)
    lanes[static_cast<std::size_t>(i % 32)] += term(i);
  for (std::size_t half = 16; half > 0; half /= 2)
    for (std::size_t l = 0; l < half; ++l)
      lanes[l] += lanes[l + half];
  return lanes[0];
}

class FragmentedChecks {
 public:
  FragmentedChecks(Suite& suite, const VerifyShape& shape, std::int64_t fragments, DType dtype,
                   Data data)
      : suite_(suite),
        shape_(shape),
        fragments_(fragments),
        each_(shape.dim_in / fragments),
        dtype_(dtype),
        data_(data),
        rows_(suite.rows_for(shape.batch, shape.dim_out, shape.dim_in)),
        x_(suite.matrix(dtype, shape.batch, shape.dim_in)),
        w_(suite.matrix(dtype, shape.dim_out, shape.dim_in)),
        selector_(suite.matrix(dtype, fragments, each_)),
        down_(suite.matrix(dtype, rank, shape.dim_in)),
        up_(suite.matrix(dtype, shape.dim_out, rank)) {
    Context& context = suite.context();
    const std::uint64_t seed = suite.options().seed;
    fill(context, x_.any(), data, seed + 23);
    measure::fill_normal(context, w_.any(), seed + 24);
    measure::fill_normal(context, selector_.any(), seed + 25, 0.3f);
    measure::fill_normal(context, down_.any(), seed + 26);
    measure::fill_normal(context, up_.any(), seed + 27);
  }

  void in_mode(Mode mode) {
    mode_ = mode;
    const measure::Matrix soft = suite_.unwritten(dtype_, shape_.batch, shape_.dim_out);
    const measure::Matrix hard = suite_.unwritten(dtype_, shape_.batch, shape_.dim_out);
    if (!suite_.attempt(check("call"), [&] {
          FragmentedLinear layer(suite_.context(), {.in_features = shape_.dim_in,
                                                    .out_features = shape_.dim_out,
                                                    .fragments = fragments_,
                                                    .rank = rank,
                                                    .mode = mode,
                                                    .dtype = dtype_});
          layer.set_weights({w_.any(), selector_.any(), down_.any(), up_.any()});
          layer.forward(x_.any(), soft.any());
          layer.forward_hard(x_.any(), hard.any());
        }))
      return;
    std::vector<float> weights;
    for (std::int64_t row = 0; row < shape_.batch; ++row)
      for (const float p : softmax(logits(row)))
        weights.push_back(p);
    const auto weight_of = [&](std::int64_t row, std::int64_t c) {
      return weights[static_cast<std::size_t>(row * fragments_ + c / each_)];
    };
    const measure::Matrix selected = scaled(weight_of);
    const measure::Matrix rest =
        scaled([&](std::int64_t row, std::int64_t c) { return 1.0f - weight_of(row, c); });
    compare("soft forward", soft, product(selected.any(), w_.any(), DType::f32), rest);

    const measure::Matrix others = scaled(
        [&](std::int64_t row, std::int64_t c) { return c / each_ == chosen(row) ? 0.0f : 1.0f; });
    compare("hard forward", hard, product_of_chosen(), others);
  }

 private:
  static constexpr std::int64_t rank = 3;

  [[nodiscard]] Check check(const char* part) const {
    Check c = suite_.check("fragmented", part, dtype_, data_, shape_);
    c.mode = std::string(mode_name(mode_));
    return c;
  }
  [[nodiscard]] float x(std::int64_t row, std::int64_t c) const {
    return static_cast<float>(element(x_.any(), row, c));
  }

  [[nodiscard]] std::vector<float> logits(std::int64_t row) const {
    std::vector<float> values;
    for (std::int64_t f = 0; f < fragments_; ++f)
      values.push_back(lane_sum(each_, [&](std::int64_t i) {
        return x(row, f * each_ + i) * static_cast<float>(element(selector_.any(), f, i));
      }));
    return values;
  }
  static std::vector<float> softmax(std::vector<float> p) {
    const float largest = *std::max_element(p.begin(), p.end());
    for (float& v : p)
      v = quant::gelu::exponential(std::max(v - largest, -120.0f), 0.0f);
    const float sum = lane_sum(static_cast<std::int64_t>(p.size()),
                               [&](std::int64_t f) { return p[static_cast<std::size_t>(f)]; });
    for (float& v : p)
      v /= sum;
    return p;
  }
  [[nodiscard]] std::int64_t chosen(std::int64_t row) const {
    const std::vector<float> values = logits(row);
    return std::max_element(values.begin(), values.end()) - values.begin();
  }

  // x with each element multiplied by a factor and rounded to the layer's type.
  template <class Factor>
  [[nodiscard]] measure::Matrix scaled(const Factor& factor) const {
    std::vector<float> values;
    for (std::int64_t row = 0; row < shape_.batch; ++row)
      for (std::int64_t c = 0; c < shape_.dim_in; ++c)
        values.push_back(factor(row, c) * x(row, c));
    return in_dtype(oracle::rounded(std::move(values), dtype_), shape_.dim_in, dtype_);
  }

  // The expected int8 product a · bᵀ of some rows of a, with shape [rows.size(), b.rows].
  [[nodiscard]] std::vector<float> product(ConstAnyMatrix a, ConstAnyMatrix b, DType dtype,
                                           const Rows& rows) const {
    const Codes q_a = oracle::quantize(a, Group::row);
    const Codes q_b =
        oracle::quantize(b, traits_of(mode_).weight.of_rows() ? Group::row : Group::matrix);
    const auto sums = measure::integer_product(suite_.context(), q_a.view(), q_b.view(), rows);
    return oracle::epilogue(sums, rows, q_a.absmax, q_b.absmax, {}, b.rows, dtype);
  }
  [[nodiscard]] std::vector<float> product(ConstAnyMatrix a, ConstAnyMatrix b, DType dtype) const {
    return product(a, b, dtype, rows_);
  }

  // For each row, the expected product of its chosen fragment with the same columns of the weight.
  [[nodiscard]] std::vector<float> product_of_chosen() const {
    std::vector<float> values;
    for (const std::int64_t row : rows_) {
      const auto fragment_of = [&](const measure::Matrix& m) {
        ConstAnyMatrix part = m.any();
        part.data = static_cast<const std::byte*>(part.data) +
                    chosen(row) * each_ * static_cast<std::int64_t>(dtype_size_bytes(dtype_));
        part.cols = each_;
        return part;
      };
      const std::vector<float> one = product(fragment_of(x_), fragment_of(w_), DType::f32, {row});
      values.insert(values.end(), one.begin(), one.end());
    }
    return values;
  }

  // Adds the expected low-rank product of `rest` to `values`, and compares the sum with a result of
  // the layer.
  void compare(const char* part, const measure::Matrix& got, std::vector<float> values,
               const measure::Matrix& rest) {
    const measure::Matrix narrow =
        in_dtype(product(rest.any(), down_.any(), dtype_, all_rows(shape_.batch)), rank, dtype_);
    const std::vector<float> more = product(narrow.any(), up_.any(), DType::f32);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] += more[i];
    const measure::Matrix want =
        in_dtype(oracle::rounded(std::move(values), dtype_), shape_.dim_out, dtype_);
    suite_.exact(check(part), got.any(), rows_, want.any(),
                 "equal: two int8 products of the oracle, added in f32 and rounded once");
  }

  Suite& suite_;
  VerifyShape shape_;
  std::int64_t fragments_, each_;
  DType dtype_;
  Data data_;
  Mode mode_ = Mode::rowwise;
  Rows rows_;
  measure::Matrix x_, w_, selector_, down_, up_;
};

}  // namespace

void verify_fragmented(Suite& suite, const VerifyShape& shape) {
  if (!suite.options().engine.empty()) return;
  std::int64_t fragments = 8;
  while (shape.dim_in % fragments != 0)
    --fragments;
  for (const DType dtype : suite.options().dtypes)
    for (const Data data : {Data::normal, Data::outliers}) {
      if (!suite.wants(data, shape)) continue;
      FragmentedChecks checks(suite, shape, fragments, dtype, data);
      for (const Mode mode : {Mode::rowwise, Mode::global})
        checks.in_mode(mode);
    }
}

}  // namespace switchback::bench
