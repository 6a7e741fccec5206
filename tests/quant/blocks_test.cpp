// SPDX-License-Identifier: Apache-2.0
// Codes that quantization passes on block by block equal the codes of a request for each matrix.
#include "quant/blocks.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "quant/backends.hpp"
#include "quant/every_op.hpp"
#include "quant/reference.hpp"
#include "support/generators.hpp"
#include "support/matrix.hpp"

namespace switchback::test {
namespace {

using quant::Scales;

// A sink that joins the blocks of codes that it gets to matrices.
class Collector final : public core::CodeSink {
 public:
  Collector(std::int64_t rows, std::int64_t cols, std::int64_t matrices)
      : rows_(rows),
        cols_(cols),
        codes(rows * matrices, cols),
        taken_(count(rows, cols, matrices)) {}

  void take(const core::CodeBlock& block) const noexcept override {
    const auto fits = [](std::int64_t begin, std::int64_t size, std::int64_t step,
                         std::int64_t whole) {
      return begin % step == 0 && size > 0 && (size % step == 0 || begin + size == whole);
    };
    if (!fits(block.row, block.codes.rows, core::CodeBlock::row_step, rows_) ||
        !fits(block.col, block.codes.cols, core::CodeBlock::col_step, cols_)) {
      ++misfits;
      return;
    }
    for (std::int64_t r = 0; r < block.codes.rows; ++r)
      for (std::int64_t c = 0; c < block.codes.cols; ++c) {
        const std::int64_t row = block.matrix * rows_ + block.row + r;
        taken_[static_cast<std::size_t>(row * cols_ + block.col + c)]++;
        codes.view().data[row * codes.view().stride + block.col + c] =
            block.codes.data[r * block.codes.stride + c];
      }
  }
  [[nodiscard]] bool has_each_once() const {
    bool once = misfits == 0;
    for (const std::atomic<int>& times : taken_)
      once = once && times == 1;
    return once;
  }

 private:
  static std::size_t count(std::int64_t rows, std::int64_t cols, std::int64_t matrices) {
    return static_cast<std::size_t>(rows * cols * matrices);
  }
  std::int64_t rows_, cols_;

 public:
  mutable std::atomic<int> misfits = 0;
  mutable Matrix<std::int8_t> codes;

 private:
  mutable std::vector<std::atomic<int>> taken_;
};

struct Wish {
  Scales q, q_t;
};
constexpr Wish wishes[] = {
    {Scales::per_row, Scales::none},    {Scales::per_row, Scales::per_column},
    {Scales::none, Scales::per_column}, {Scales::global, Scales::none},
    {Scales::global, Scales::global},   {Scales::none, Scales::global}};

template <class T>
void expect_codes_of_reference(Matrix<T>& x, std::int64_t matrices) {
  const std::int64_t rows = x.rows() / matrices;
  const std::int64_t cols = x.cols();
  for (const Wish& wish : wishes) {
    const auto scales = [&](Scales kind) {
      return static_cast<std::size_t>(quant::scale_count(kind, rows, cols));
    };
    Matrix<std::int8_t> q(rows * matrices, cols);
    Matrix<std::int8_t> q_t(cols * matrices, rows);
    std::vector<float> absmax(scales(wish.q) * static_cast<std::size_t>(matrices));
    std::vector<float> absmax_t(scales(wish.q_t) * static_cast<std::size_t>(matrices));
    for (std::int64_t i = 0; i < matrices; ++i) {
      const auto at = static_cast<std::size_t>(i);
      quant::Request one;
      one.x = ConstAnyMatrix(x.view().data + i * rows * x.view().stride, dtype_of<T>, rows, cols,
                             x.view().stride);
      const auto part = [&](Matrix<std::int8_t>& codes, std::int64_t height, std::int64_t width) {
        const MatrixView<std::int8_t> all = codes.view();
        return MatrixView<std::int8_t>(all.data + i * height * all.stride, height, width,
                                       all.stride);
      };
      // One result per request: the reference does not compute two results that share their scale.
      if (wish.q != Scales::none) {
        one.q = {wish.q, part(q, rows, cols),
                 std::span(absmax).subspan(at * scales(wish.q), scales(wish.q))};
        quant::reference::run(one);
        one.q = {};
      }
      if (wish.q_t == Scales::none) continue;
      one.q_t = {wish.q_t, part(q_t, cols, rows),
                 std::span(absmax_t).subspan(at * scales(wish.q_t), scales(wish.q_t))};
      quant::reference::run(one);
    }
    for (auto& [name, context] : contexts()) {
      if (!quant::has_blocks(context.state())) continue;
      SCOPED_TRACE(name + " q " + std::to_string(static_cast<int>(wish.q)) + " q_t " +
                   std::to_string(static_cast<int>(wish.q_t)) + " " + std::to_string(matrices) +
                   " of " + std::to_string(rows) + "x" + std::to_string(cols));
      const Collector by_row(rows, cols, matrices);
      const Collector by_column(rows, cols, matrices);
      std::vector<float> got(absmax.size(), -1.0f);
      std::vector<float> got_t(absmax_t.size(), -1.0f);
      quant::BlocksRequest request{.x = x.view(), .matrices = matrices};
      if (wish.q != Scales::none) request.q = {wish.q, got, &by_row};
      if (wish.q_t != Scales::none) request.q_t = {wish.q_t, got_t, &by_column};
      quant::quantize_blocks(context.state(), request);
      const auto same_bits = [](const std::vector<float>& a, const std::vector<float>& b) {
        return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](float v, float w) {
          return std::bit_cast<std::uint32_t>(v) == std::bit_cast<std::uint32_t>(w);
        });
      };
      EXPECT_TRUE(same_bits(got, absmax));
      EXPECT_TRUE(same_bits(got_t, absmax_t));
      if (wish.q != Scales::none) {
        EXPECT_TRUE(by_row.has_each_once());
        EXPECT_TRUE(by_row.codes == q);
      }
      if (wish.q_t == Scales::none) continue;
      EXPECT_TRUE(by_column.has_each_once());
      std::int64_t differences = 0;
      for (std::int64_t i = 0; i < matrices; ++i)
        for (std::int64_t r = 0; r < rows; ++r)
          for (std::int64_t c = 0; c < cols; ++c)
            differences += by_column.codes.get(i * rows + r, c) != q_t.get(i * cols + c, r);
      EXPECT_EQ(differences, 0);
    }
  }
}

template <class T>
Matrix<T> normal_blocks(std::int64_t rows, std::int64_t cols, Layout layout = {}) {
  Matrix<T> x(rows, cols, layout);
  Random random(static_cast<std::uint64_t>(rows * 1000 + cols));
  fill_normal(x, random);
  return x;
}

template <class T>
class Blocks : public ::testing::Test {};
using Types = ::testing::Types<float, half, bfloat16>;
TYPED_TEST_SUITE(Blocks, Types);

TYPED_TEST(Blocks, EdgesOfTilesAndOfVectors) {
  for (const std::int64_t rows : {1, 15, 16, 17, 31, 32, 33, 65})
    for (const std::int64_t cols : {1, 7, 63, 64, 65, 255, 256, 257}) {
      Matrix<TypeParam> x = normal_blocks<TypeParam>(rows, cols);
      expect_codes_of_reference(x, 1);
    }
}

TYPED_TEST(Blocks, ManyMatricesAndFew) {
  for (const std::int64_t matrices : {2, 5, 13}) {
    Matrix<TypeParam> x = normal_blocks<TypeParam>(matrices * 35, 70, {3, 1});
    expect_codes_of_reference(x, matrices);
  }
}

// Matrices that are large enough for every way to divide the work, and for prefetching.
TYPED_TEST(Blocks, LargeMatrices) {
  for (const auto& [rows, cols] : {std::pair{521, 1025}, {70, 5000}}) {
    Matrix<TypeParam> x = normal_blocks<TypeParam>(rows, cols, {5, 0});
    expect_codes_of_reference(x, 1);
  }
}

TYPED_TEST(Blocks, SpecialValues) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Matrix<TypeParam> x = normal_blocks<TypeParam>(3 * 40, 300);
  x.set(3, 5, TypeParam(nan));
  x.set(3, 17, TypeParam(inf));
  x.set(18, 299, TypeParam(-inf));
  for (std::int64_t c = 0; c < 300; ++c) {
    x.set(20, c, TypeParam(0.0f));
    x.set(21, c, TypeParam(1e-7f * static_cast<float>(c % 3)));
    x.set(50, c, TypeParam(static_cast<float>(c % 255 - 127) / 2));  // ties
  }
  for (std::int64_t r = 80; r < 120; ++r) {
    x.set(r, 64, TypeParam(0.0f));
    x.set(r, 200, TypeParam(std::numeric_limits<float>::denorm_min()));
  }
  expect_codes_of_reference(x, 3);
}

}  // namespace
}  // namespace switchback::test
