// SPDX-License-Identifier: Apache-2.0
// Tests of arguments that the entry points of quantization refuse: the messages, and that nothing
// is written.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "quant/backends.hpp"
#include "switchback/quant.hpp"

namespace switchback {
namespace {

using test::refusal;

// Valid operands of a [2,3] matrix; each test makes some of them invalid.
class Validation : public ::testing::Test {
 protected:
  Context context;
  std::array<float, 6> x{1, 2, 3, 4, 5, 6};
  std::array<std::int8_t, 6> q{9, 9, 9, 9, 9, 9};
  std::array<std::int8_t, 6> q_t{9, 9, 9, 9, 9, 9};
  std::array<float, 2> rows{9, 9};
  std::array<float, 3> cols{9, 9, 9};
  std::array<float, 1> one{9};
  MatrixView<const float> in{x.data(), 2, 3};
  MatrixView<std::int8_t> out{q.data(), 2, 3};
  MatrixView<std::int8_t> out_t{q_t.data(), 3, 2};

  void TearDown() override {
    EXPECT_EQ(q, (std::array<std::int8_t, 6>{9, 9, 9, 9, 9, 9}));
    EXPECT_EQ(q_t, (std::array<std::int8_t, 6>{9, 9, 9, 9, 9, 9}));
    EXPECT_EQ(rows, (std::array<float, 2>{9, 9}));
    EXPECT_EQ(cols, (std::array<float, 3>{9, 9, 9}));
    EXPECT_EQ(one, (std::array<float, 1>{9}));
  }
};

TEST_F(Validation, Dtype) {
  std::array<std::int32_t, 6> s32{};
  EXPECT_EQ(refusal([&] {
              quantize_rowwise(context, MatrixView<const std::int32_t>(s32.data(), 2, 3), out,
                               rows);
            }),
            "quantize_rowwise: x has dtype s32; it must be f32, f16 or bf16");
  EXPECT_EQ(refusal([&] {
              quantize_global(context, ConstAnyMatrix(x.data(), static_cast<DType>(7), 2, 3, 3),
                              out, one);
            }),
            "quantize_global: w has dtype 7; it must be one of f32 (0), f16 (1), bf16 (2), s8 (3), "
            "s32 (4)");
  EXPECT_EQ(refusal([&] {
              dequantize_rowwise(context, out, rows, MatrixView<std::int8_t>(q_t.data(), 2, 3));
            }),
            "dequantize_rowwise: x has dtype s8; it must be f32, f16 or bf16");
}

TEST_F(Validation, Blocks) {
  EXPECT_EQ(refusal([&] { quantize_blockwise_transpose(context, in, 64, out_t, cols); }),
            "quantize_blockwise_transpose: block_rows = 64; it must be 128, 256, 512 or 1024");
  EXPECT_EQ(refusal([&] { quantize_blockwise_transpose(context, in, 128, out_t, cols); }),
            "quantize_blockwise_transpose: q_t is [3,2]; it must be [K,M rounded up to whole "
            "blocks] = [3,128]");
  std::array<std::int8_t, 384> blocks{};
  const MatrixView<std::int8_t> whole(blocks.data(), 3, 128);
  EXPECT_EQ(refusal([&] { quantize_blockwise_transpose(context, in, 128, whole, rows); }),
            "quantize_blockwise_transpose: absmax holds 2 floats; it must hold blocks * K = 3");
}

TEST_F(Validation, SizesStridesAndPointers) {
  EXPECT_EQ(refusal([&] {
              quantize_rowwise(context, MatrixView<const float>(x.data(), -1, 3), out, rows);
            }),
            "quantize_rowwise: x has rows = -1; it must not be negative");
  EXPECT_EQ(refusal([&] {
              quantize_columnwise_transpose(context, MatrixView<const float>(x.data(), 2, 3, 2),
                                            out_t, cols);
            }),
            "quantize_columnwise_transpose: w has stride = 2; it must be at least cols = 3");
  EXPECT_EQ(refusal([&] {
              quantize_global_transpose(context, MatrixView<const float>(nullptr, 2, 3), out_t,
                                        one);
            }),
            "quantize_global_transpose: w [2,3] stride 3 f32 has a null pointer; only an empty "
            "matrix may have one");
  EXPECT_EQ(
      refusal([&] { quantize_rowwise(context, in, MatrixView<std::int8_t>(nullptr, 2, 3), rows); }),
      "quantize_rowwise: q [2,3] stride 3 s8 has a null pointer; only an empty matrix may have "
      "one");
}

TEST_F(Validation, Shapes) {
  EXPECT_EQ(refusal([&] { quantize_rowwise(context, in, out_t, rows); }),
            "quantize_rowwise: q is [3,2]; it must be [M,K] = [2,3]");
  EXPECT_EQ(refusal([&] { quantize_columnwise_transpose(context, in, out, cols); }),
            "quantize_columnwise_transpose: q_t is [2,3]; it must be [K,N] = [3,2]");
  EXPECT_EQ(refusal([&] {
              quantize_rowwise_and_columnwise_transpose(context, in, out, rows, out, cols);
            }),
            "quantize_rowwise_and_columnwise_transpose: q_t is [2,3]; it must be [K,N] = [3,2]");
  EXPECT_EQ(refusal([&] {
              std::array<float, 6> y{};
              dequantize_rowwise(context, out, rows, MatrixView<float>(y.data(), 3, 2));
            }),
            "dequantize_rowwise: x is [3,2]; it must be [M,K] = [2,3]");
}

TEST_F(Validation, Spans) {
  EXPECT_EQ(refusal([&] { quantize_rowwise(context, in, out, cols); }),
            "quantize_rowwise: absmax holds 3 floats; it must hold M = 2");
  EXPECT_EQ(refusal([&] { quantize_rowwise_column_sums(context, in, out, rows, rows); }),
            "quantize_rowwise_column_sums: column_sums holds 2 floats; it must hold N = 3");
  EXPECT_EQ(refusal([&] { quantize_columnwise_transpose(context, in, out_t, rows); }),
            "quantize_columnwise_transpose: absmax holds 2 floats; it must hold K = 3");
  EXPECT_EQ(refusal([&] { quantize_global_and_transpose(context, in, out, out_t, rows); }),
            "quantize_global_and_transpose: absmax holds 2 floats; it must hold one scale = 1");
  EXPECT_EQ(refusal([&] {
              quantize_rowwise_and_columnwise_transpose(context, in, out, cols, out_t, cols);
            }),
            "quantize_rowwise_and_columnwise_transpose: absmax_rows holds 3 floats; it must hold N "
            "= 2");
}

TEST_F(Validation, Overlap) {
  auto* const bytes = reinterpret_cast<std::int8_t*>(x.data());
  EXPECT_EQ(
      refusal([&] { quantize_rowwise(context, in, MatrixView<std::int8_t>(bytes, 2, 3), rows); }),
      "quantize_rowwise: output q overlaps input x; they must not share memory");
  EXPECT_EQ(refusal([&] { quantize_rowwise(context, in, out, std::span(x).first(2)); }),
            "quantize_rowwise: output absmax overlaps input x; they must not share memory");
  EXPECT_EQ(refusal([&] {
              quantize_global_and_transpose(context, in, out,
                                            MatrixView<std::int8_t>(q.data() + 5, 3, 2), one);
            }),
            "quantize_global_and_transpose: outputs q and q_t overlap; they must not share memory");
  EXPECT_EQ(refusal([&] {
              dequantize_rowwise(context, MatrixView<const std::int8_t>(bytes, 2, 3), rows,
                                 MatrixView<float>(x.data(), 2, 3));
            }),
            "dequantize_rowwise: output x overlaps input q; they must not share memory");
  EXPECT_EQ(x, (std::array<float, 6>{1, 2, 3, 4, 5, 6}));
}

}  // namespace
}  // namespace switchback
