// SPDX-License-Identifier: Apache-2.0
// Test support: runs every quantize operation on one input, and compares two such runs bit for bit.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "support/matrix.hpp"
#include "switchback/quant.hpp"

namespace switchback::test {

/// An array of floats at any address, with guards around it.
struct Floats {
  Matrix<float> values;
  explicit Floats(std::int64_t count, std::int64_t misalignment_bytes = 0)
      : values(1, count, {0, misalignment_bytes}) {}
  std::span<float> span() { return {values.data(), static_cast<std::size_t>(values.cols())}; }
};

/// The results that the operations have written, with their names.
struct Outputs {
  std::vector<std::pair<std::string, Matrix<std::int8_t>>> codes;
  std::vector<std::pair<std::string, Matrix<float>>> floats;
};

/// Runs every quantize operation that reads floats. `layout` is that of the codes; arrays of floats
/// have the same misalignment.
template <class T>
Outputs run_every_op(Context& context, const Matrix<T>& x, Layout layout = {}) {
  const std::int64_t rows = x.rows();
  const std::int64_t cols = x.cols();
  const ConstAnyMatrix input = x.view();
  Outputs out;
  const auto codes = [&](const char* name, std::int64_t r, std::int64_t c) {
    Matrix<std::int8_t> q(r, c, layout);
    for (std::int64_t i = 0; i < r; ++i)
      for (std::int64_t j = 0; j < c; ++j)
        q.set(i, j, 85);  // no operation may rely on zeros in its output
    return std::pair<std::string, Matrix<std::int8_t>>(name, std::move(q));
  };
  const auto floats = [&](std::int64_t count) {
    Floats f(count, layout.misalignment_bytes);
    for (std::int64_t i = 0; i < count; ++i)
      f.values.set(0, i, 85.0f);
    return f;
  };
  const auto keep = [&](const char* name, Floats& f) {
    EXPECT_TRUE(f.values.guards_intact()) << name;
    out.floats.emplace_back(name, std::move(f.values));
  };
  const auto keep_codes = [&](std::pair<std::string, Matrix<std::int8_t>>& q) {
    EXPECT_TRUE(q.second.guards_intact()) << q.first;
    out.codes.push_back(std::move(q));
  };
  {
    auto q = codes("rowwise", rows, cols);
    Floats absmax = floats(rows);
    quantize_rowwise(context, input, q.second.view(), absmax.span());
    keep_codes(q);
    keep("rowwise absmax", absmax);
  }
  for (const bool accumulate : {false, true}) {
    auto q = codes("rowwise of rowwise_column_sums", rows, cols);
    Floats absmax = floats(rows);
    Floats sums = floats(cols);
    quantize_rowwise_column_sums(context, input, q.second.view(), absmax.span(), sums.span(),
                                 accumulate);
    keep_codes(q);
    keep("absmax of rowwise_column_sums", absmax);
    keep(accumulate ? "fused column sums, accumulated" : "fused column sums", sums);
    Floats alone = floats(cols);
    column_sums(context, input, alone.span(), accumulate);
    keep(accumulate ? "column sums, accumulated" : "column sums", alone);
  }
  {
    auto q_t = codes("columnwise_transpose", cols, rows);
    Floats absmax = floats(cols);
    quantize_columnwise_transpose(context, input, q_t.second.view(), absmax.span());
    keep_codes(q_t);
    keep("columnwise_transpose absmax", absmax);
  }
  {
    auto q = codes("global", rows, cols);
    Floats absmax = floats(1);
    quantize_global(context, input, q.second.view(), absmax.span());
    keep_codes(q);
    keep("global absmax", absmax);
  }
  {
    auto q_t = codes("global_transpose", cols, rows);
    Floats absmax = floats(1);
    quantize_global_transpose(context, input, q_t.second.view(), absmax.span());
    keep_codes(q_t);
    keep("global_transpose absmax", absmax);
  }
  {
    auto q = codes("rowwise of both layouts", rows, cols);
    auto q_t = codes("columnwise of both layouts", cols, rows);
    Floats absmax_rows = floats(rows);
    Floats absmax_cols = floats(cols);
    quantize_rowwise_and_columnwise_transpose(context, input, q.second.view(), absmax_rows.span(),
                                              q_t.second.view(), absmax_cols.span());
    keep_codes(q);
    keep_codes(q_t);
    keep("absmax_rows of both layouts", absmax_rows);
    keep("absmax_cols of both layouts", absmax_cols);
  }
  {
    auto q = codes("global of both layouts", rows, cols);
    auto q_t = codes("transposed global of both layouts", cols, rows);
    Floats absmax = floats(1);
    quantize_global_and_transpose(context, input, q.second.view(), q_t.second.view(),
                                  absmax.span());
    keep_codes(q);
    keep_codes(q_t);
    keep("global absmax of both layouts", absmax);
  }
  for (const std::int64_t block_rows : {128, 256}) {
    if (block_rows > 128 && rows <= 128) continue;  // up to 128 rows are one block in both cases
    const std::int64_t padded = whole_block_rows(rows, block_rows);
    const std::int64_t scales = padded / block_rows * cols;
    auto q_t = codes("blockwise_transpose", cols, padded);
    Floats absmax = floats(scales);
    quantize_blockwise_transpose(context, input, block_rows, q_t.second.view(), absmax.span());
    keep_codes(q_t);
    keep("blockwise_transpose absmax", absmax);
    const bool sums_too = block_rows == 128;
    auto q = codes("rowwise beside blocks", rows, cols);
    auto q_t_too = codes("blocks beside rowwise", cols, padded);
    Floats absmax_rows = floats(rows);
    Floats absmax_blocks = floats(scales);
    Floats sums = floats(sums_too ? cols : 0);
    quantize_rowwise_and_blockwise_transpose(
        context, input, q.second.view(), absmax_rows.span(), block_rows, q_t_too.second.view(),
        absmax_blocks.span(), sums_too ? sums.span() : std::span<float>(), true);
    keep_codes(q);
    keep_codes(q_t_too);
    keep("absmax of rows beside blocks", absmax_rows);
    keep("absmax of blocks beside rowwise", absmax_blocks);
    keep("column sums beside blocks", sums);
  }
  {
    auto q = codes("cast_to_int8", rows, cols);
    cast_to_int8(context, input, q.second.view());
    keep_codes(q);
  }
  // The scales of an empty matrix are set by a memset, not by a kernel, so the host must wait for
  // them.
  context.synchronize();
  return out;
}

inline ::testing::AssertionResult same_codes(const Matrix<std::int8_t>& got,
                                             const Matrix<std::int8_t>& want) {
  if (got == want) return ::testing::AssertionSuccess();
  for (std::int64_t r = 0; r < want.rows(); ++r)
    for (std::int64_t c = 0; c < want.cols(); ++c)
      if (got.get(r, c) != want.get(r, c))
        return ::testing::AssertionFailure()
               << "code (" << r << "," << c << ") of [" << want.rows() << "," << want.cols()
               << "] is " << int{got.get(r, c)} << ", want " << int{want.get(r, c)};
  return ::testing::AssertionFailure() << "shapes differ";
}

inline ::testing::AssertionResult same_bits(const Matrix<float>& got, const Matrix<float>& want) {
  for (std::int64_t c = 0; c < want.cols(); ++c)
    if (std::bit_cast<std::uint32_t>(got.get(0, c)) != std::bit_cast<std::uint32_t>(want.get(0, c)))
      return ::testing::AssertionFailure() << "float " << c << " of " << want.cols() << " is "
                                           << got.get(0, c) << ", want " << want.get(0, c);
  return ::testing::AssertionSuccess();
}

inline void expect_same(const Outputs& got, const Outputs& want) {
  ASSERT_EQ(got.codes.size(), want.codes.size());
  ASSERT_EQ(got.floats.size(), want.floats.size());
  for (std::size_t i = 0; i < want.codes.size(); ++i)
    EXPECT_TRUE(same_codes(got.codes[i].second, want.codes[i].second)) << want.codes[i].first;
  for (std::size_t i = 0; i < want.floats.size(); ++i)
    EXPECT_TRUE(same_bits(got.floats[i].second, want.floats[i].second)) << want.floats[i].first;
}

}  // namespace switchback::test
