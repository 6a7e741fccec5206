// SPDX-License-Identifier: Apache-2.0
#include "quant/reference.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <utility>

#include "core/unaligned.hpp"
#include "quant/gelu.hpp"
#include "quant/rotate.hpp"
#include "quant/scalar.hpp"
#include "quant/stochastic.hpp"
#include "switchback/quant.hpp"

namespace switchback::quant::reference {

namespace {

float at(ConstAnyMatrix m, std::int64_t row, std::int64_t col) {
  return core::load_float(m.data, m.dtype, row * m.stride + col);
}

float rounded_to(DType dtype, float value) {
  std::array<std::byte, sizeof(float)> element;
  core::store_float(element.data(), dtype, 0, value);
  return core::load_float(element.data(), dtype, 0);
}

// Computes codes, scales and sums of a matrix v, which is given as a function: v(r, c) is an
// element.
template <class V>
class Results {
 public:
  Results(const Request& request, const V& v)
      : r_(request), v_(v), rows_(request.x.rows), cols_(request.x.cols) {}

  void make_codes() const {
    codes_of_rows();
    codes(r_.q_t, [](std::int64_t r, std::int64_t c) { return std::pair(c, r); });
  }

  void codes_of_rows() const {
    codes(r_.q, [](std::int64_t r, std::int64_t c) { return std::pair(r, c); });
  }

  void column_sums() const {
    if (r_.column_sums.empty()) return;
    float* const sums = r_.column_sums.data();
    for (std::int64_t c = 0; c < cols_; ++c) {
      float sum = 0.0f;
      for (std::int64_t begin = 0; begin < rows_; begin += column_sum_block_rows) {
        const std::int64_t end = std::min(begin + column_sum_block_rows, rows_);
        float block = 0.0f;
        for (std::int64_t r = begin; r < end; ++r)
          block += v_(r, c);
        sum += block;
      }
      if (r_.accumulate) sum = core::load(sums, c) + sum;
      core::store(sums, c, canonical(sum));
    }
  }

 private:
  [[nodiscard]] float absmax_of(std::int64_t row, std::int64_t rows, std::int64_t col,
                                std::int64_t cols) const {
    float absmax = 0.0f;
    for (std::int64_t r = row; r < row + rows; ++r)
      for (std::int64_t c = col; c < col + cols; ++c)
        absmax = larger_magnitude(absmax, v_(r, c));
    return absmax;
  }

  // Computes the codes of v. place(r, c) is the row and column where the code of v(r, c) is stored.
  template <class Place>
  void codes(const CodesOut& out, const Place& place) const {
    const auto put = [&](std::int64_t r, std::int64_t c, std::int8_t value) {
      const auto [row, col] = place(r, c);
      core::store(out.codes.data, row * out.codes.stride + col, value);
    };
    const auto group = [&](std::int64_t scale, std::int64_t row, std::int64_t rows,
                           std::int64_t col, std::int64_t cols) {
      const float absmax = absmax_of(row, rows, col, cols);
      core::store(out.absmax.data(), scale, absmax);
      for (std::int64_t r = row; r < row + rows; ++r)
        for (std::int64_t c = col; c < col + cols; ++c)
          put(r, c,
              r_.stochastic ? stochastic_code(v_(r, c), absmax, random_bits(*r_.stochastic, r, c))
                            : code(v_(r, c), absmax));
    };
    switch (out.scales) {
      case Scales::none:
        return;
      case Scales::unscaled:
        for (std::int64_t r = 0; r < rows_; ++r)
          for (std::int64_t c = 0; c < cols_; ++c)
            put(r, c, truncate(v_(r, c)));
        return;
      case Scales::per_row:
        for (std::int64_t r = 0; r < rows_; ++r)
          group(r, r, 1, 0, cols_);
        return;
      case Scales::per_column:
        for (std::int64_t c = 0; c < cols_; ++c)
          group(c, 0, rows_, c, 1);
        return;
      case Scales::global:
        return group(0, 0, rows_, 0, cols_);
      case Scales::per_block:
        for (std::int64_t row = 0; row < rows_; row += out.block_rows)
          for (std::int64_t c = 0; c < cols_; ++c)
            group(row / out.block_rows * cols_ + c, row, std::min(out.block_rows, rows_ - row), c,
                  1);
        for (std::int64_t r = rows_; r < whole_block_rows(rows_, out.block_rows); ++r)
          for (std::int64_t c = 0; c < cols_; ++c)
            put(r, c, 0);
    }
  }

  const Request& r_;
  const V& v_;
  std::int64_t rows_, cols_;
};

// The elements of rotate(v), computed a group at a time.
template <class V>
class Rotated {
 public:
  Rotated(const Request& request, const V& v) : group_(group_of(request.rotation)), v_(v) {}

  float operator()(std::int64_t row, std::int64_t col) const {
    const std::int64_t first = col / group_ * group_;
    if (row != row_ || first != first_) {
      for (std::int64_t i = 0; i < group_; ++i)
        elements_[static_cast<std::size_t>(i)] = v_(row, first + i);
      rotate_group(elements_.data(), group_);
      row_ = row;
      first_ = first;
    }
    return elements_[static_cast<std::size_t>(col - first)];
  }

 private:
  std::int64_t group_;
  const V& v_;
  mutable std::array<float, largest_rotation> elements_{};
  mutable std::int64_t row_ = -1, first_ = -1;
};

template <class V>
void make_from(Request o, const V& v) {
  const Results<V> results(o, v);
  results.column_sums();
  if (!o.column_scales.empty()) {
    const auto scaled = [&](std::int64_t r, std::int64_t c) {
      return v(r, c) * core::load(o.column_scales.data(), c);
    };
    Results(o, scaled).codes_of_rows();
    o.q = {};
  }
  if (o.rotation == Rotation::none) return results.make_codes();
  const Rotated<V> rotated(o, v);
  Results<Rotated<V>>(o, rotated).make_codes();
  if (is_given(o.rotated))
    for (std::int64_t r = 0; r < o.x.rows; ++r)
      for (std::int64_t c = 0; c < o.x.cols; ++c)
        core::store_float(o.rotated.data, o.rotated.dtype, r * o.rotated.stride + c,
                          canonical(rotated(r, c)));
}

// Computes all results of a request. v(r, c), which is rounded already, is an element of v. If v
// itself is wanted, the other results are computed from the stored elements.
template <class V>
void make_results(const Request& o, const V& v) {
  if (!is_given(o.value)) return make_from(o, v);
  for (std::int64_t r = 0; r < o.x.rows; ++r)
    for (std::int64_t c = 0; c < o.x.cols; ++c)
      core::store_float(o.value.data, o.value.dtype, r * o.value.stride + c, canonical(v(r, c)));
  const auto stored = [&](std::int64_t r, std::int64_t c) { return at(o.value, r, c); };
  make_from(o, stored);
}

}  // namespace

void run(const Request& o) noexcept {
  switch (source_of(o)) {
    case Source::floats:
      return make_results(o, [&](std::int64_t r, std::int64_t c) { return at(o.x, r, c); });
    case Source::activation:
      return make_results(o, [&](std::int64_t r, std::int64_t c) {
        return rounded_to(o.x.dtype, gelu::value(o.activation, at(o.x, r, c)));
      });
    case Source::gradient:
      return make_results(o, [&](std::int64_t r, std::int64_t c) {
        return rounded_to(o.g.dtype, at(o.g, r, c) * gelu::derivative(o.activation, at(o.x, r, c)));
      });
    case Source::codes:
      return make_results(o, [&](std::int64_t r, std::int64_t c) {
        const auto* const codes = static_cast<const std::int8_t*>(o.x.data);
        return rounded_to(o.value.dtype, value(core::load(codes, r * o.x.stride + c),
                                               core::load(o.absmax_x.data(), r)));
      });
  }
}

}  // namespace switchback::quant::reference
