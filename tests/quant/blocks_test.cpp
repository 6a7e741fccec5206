// SPDX-License-Identifier: Apache-2.0
// Codes that quantization passes on block by block equal the codes of a request for each matrix.
#include "quant/blocks.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <string>
#include <vector>

#include "quant/backends.hpp"
#include "quant/reference.hpp"
#include "support/generators.hpp"
#include "support/matrix.hpp"

namespace switchback::test {
namespace {

using quant::Scales;

// A sink that writes the blocks of codes that it gets to where codes belong: `height` and `width`
// are those of each matrix in x.
class Collector final : public core::CodeSink {
 public:
  Collector(MatrixView<std::int8_t> codes, std::int64_t height, std::int64_t width, bool transposed)
      : codes_(codes),
        height_(height),
        width_(width),
        transposed_(transposed),
        taken_(static_cast<std::size_t>(codes.rows * codes.cols)) {}

  void take(const core::CodeBlock& block) const noexcept override {
    const auto fits = [](std::int64_t begin, std::int64_t size, std::int64_t step,
                         std::int64_t whole) {
      return begin % step == 0 && size > 0 && (size % step == 0 || begin + size == whole);
    };
    if (!fits(block.row, block.codes.rows, core::CodeBlock::row_step, height_) ||
        !fits(block.col, block.codes.cols, core::CodeBlock::col_step, width_)) {
      ++misfits_;
      return;
    }
    for (std::int64_t r = 0; r < block.codes.rows; ++r)
      for (std::int64_t c = 0; c < block.codes.cols; ++c) {
        const std::int64_t row = block.row + r;
        const std::int64_t col = block.col + c;
        const std::int64_t at = transposed_ ? (block.matrix * width_ + col) * height_ + row
                                            : (block.matrix * height_ + row) * width_ + col;
        taken_[static_cast<std::size_t>(at)]++;
        codes_.data[at] = block.codes.data[r * block.codes.stride + c];
      }
  }
  [[nodiscard]] bool has_each_once() const {
    return misfits_ == 0 && std::all_of(taken_.begin(), taken_.end(),
                                        [](const std::atomic<int>& times) { return times == 1; });
  }

 private:
  MatrixView<std::int8_t> codes_;
  std::int64_t height_, width_;
  bool transposed_;
  mutable std::atomic<int> misfits_ = 0;
  mutable std::vector<std::atomic<int>> taken_;
};

struct Wish {
  Scales q, q_t;
};
constexpr Wish wishes[] = {
    {Scales::per_row, Scales::none},    {Scales::per_row, Scales::per_column},
    {Scales::none, Scales::per_column}, {Scales::global, Scales::none},
    {Scales::global, Scales::global},   {Scales::none, Scales::global}};

// Quantizes each matrix by itself with the reference. It has one result per request: the reference
// does not compute two results that share their scale.
template <class T>
void quantize_one_by_one(const Matrix<T>& x, std::int64_t matrices, const quant::CodesOut& q,
                         const quant::CodesOut& q_t) {
  const std::int64_t rows = x.rows() / matrices;
  for (const quant::CodesOut* all : {&q, &q_t})
    for (std::int64_t i = 0; i < matrices && all->scales != Scales::none; ++i) {
      quant::Request one;
      one.x = MatrixView<const T>(x.data() + i * rows * x.stride(), rows, x.cols(), x.stride());
      quant::CodesOut& out = all == &q ? one.q : one.q_t;
      const std::int64_t height = all->codes.rows / matrices;
      const std::size_t scales = all->absmax.size() / static_cast<std::size_t>(matrices);
      out = {all->scales,
             {all->codes.data + i * height * all->codes.stride, height, all->codes.cols},
             all->absmax.subspan(static_cast<std::size_t>(i) * scales, scales)};
      quant::reference::run(one);
    }
}

template <class T>
void expect_codes_of_reference(const Matrix<T>& x, std::int64_t matrices) {
  const std::int64_t rows = x.rows() / matrices;
  const std::int64_t cols = x.cols();
  for (const Wish& wish : wishes) {
    const std::string what = text_of(x) + " of " + std::to_string(matrices) + " matrices, q " +
                             std::to_string(static_cast<int>(wish.q)) + " q_t " +
                             std::to_string(static_cast<int>(wish.q_t));
    expect_bits_of_reference(what, {}, [&](Context& context, Outputs& out) {
      const auto absmax = [&](const char* name, Scales scales) {
        return out.floats(name, matrices * quant::scale_count(scales, rows, cols));
      };
      const quant::CodesOut q = {wish.q, out.codes("q", rows * matrices, cols),
                                 absmax("absmax of q", wish.q)};
      const quant::CodesOut q_t = {wish.q_t, out.codes("q_t", cols * matrices, rows),
                                   absmax("absmax of q_t", wish.q_t)};
      if (!quant::has_blocks(context.state())) return quantize_one_by_one(x, matrices, q, q_t);
      const Collector by_row(q.codes, rows, cols, false);
      const Collector by_column(q_t.codes, rows, cols, true);
      quant::BlocksRequest request{.x = x.view(), .matrices = matrices};
      if (wish.q != Scales::none) request.q = {wish.q, q.absmax, &by_row};
      if (wish.q_t != Scales::none) request.q_t = {wish.q_t, q_t.absmax, &by_column};
      quant::quantize_blocks(context.state(), request);
      EXPECT_TRUE(wish.q == Scales::none || by_row.has_each_once());
      EXPECT_TRUE(wish.q_t == Scales::none || by_column.has_each_once());
    });
  }
}

template <class T>
class Blocks : public ::testing::Test {};
TYPED_TEST_SUITE(Blocks, FloatTypes);

TYPED_TEST(Blocks, EdgesOfTilesAndOfVectors) {
  for (const std::int64_t rows : {1, 15, 16, 17, 31, 32, 33, 65})
    for (const std::int64_t cols : {1, 7, 63, 64, 65, 255, 256, 257})
      expect_codes_of_reference(normal_of_size<TypeParam>(rows, cols), 1);
}

TYPED_TEST(Blocks, ManyMatricesAndFew) {
  for (const std::int64_t matrices : {2, 5, 13})
    expect_codes_of_reference(normal_of_size<TypeParam>(matrices * 35, 70, {3, 1}), matrices);
}

// Matrices that are large enough for every way to divide the work, and for prefetching.
TYPED_TEST(Blocks, LargeMatrices) {
  for (const auto& [rows, cols] : {Size{521, 1025}, {70, 5000}})
    expect_codes_of_reference(normal_of_size<TypeParam>(rows, cols, {5, 0}), 1);
}

TYPED_TEST(Blocks, SpecialValues) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Matrix<TypeParam> x = normal_of_size<TypeParam>(3 * 40, 300);
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
