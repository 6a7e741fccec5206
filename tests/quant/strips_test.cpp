// SPDX-License-Identifier: Apache-2.0
// Tests of the codes of columns in blocks of rows, written with ordinary and with non-temporal
// stores, at addresses that are multiples of cache lines and at others: they equal the reference
// bit for bit.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "quant/backends.hpp"
#include "quant/config.hpp"
#include "quant/reference.hpp"
#include "support/generators.hpp"
#include "support/matrix.hpp"
#include "switchback/quant.hpp"

namespace switchback::test {
namespace {

// The codes [cols, whole blocks] at an address `offset` bytes after a multiple of 64, the bytes
// around them, and the scales of blocks. All of these are compared with the reference.
struct StripOutputs {
  static constexpr std::int8_t untouched = 99;
  static constexpr std::int64_t beside = 128;
  std::vector<std::int8_t> bytes;
  std::vector<float> absmax;
  std::vector<std::int8_t> q;
  std::vector<float> absmax_rows;
  MatrixView<std::int8_t> q_t;

  StripOutputs(std::int64_t rows, std::int64_t cols, std::int64_t block_rows, std::int64_t offset)
      : bytes(static_cast<std::size_t>(cols * whole_block_rows(rows, block_rows) + 2 * beside + 64),
              untouched),
        absmax(static_cast<std::size_t>(whole_block_rows(rows, block_rows) / block_rows * cols)),
        q(static_cast<std::size_t>(rows * cols)),
        absmax_rows(static_cast<std::size_t>(rows)) {
    const auto address = reinterpret_cast<std::uintptr_t>(bytes.data() + beside);
    q_t = {bytes.data() + beside + static_cast<std::int64_t>(-address % 64) + offset, cols,
           whole_block_rows(rows, block_rows)};
  }
  [[nodiscard]] std::vector<std::int8_t> codes() const {
    // The codes, with 64 bytes on each side that must not change.
    return {q_t.data - 64, q_t.data + q_t.rows * q_t.cols + 64};
  }
  [[nodiscard]] std::vector<std::uint32_t> scale_bits() const {
    std::vector<std::uint32_t> bits;
    for (const std::vector<float>* scales : {&absmax, &absmax_rows})
      for (const float v : *scales)
        bits.push_back(std::bit_cast<std::uint32_t>(v));
    return bits;
  }
};

template <class T>
quant::Request request_of(const Matrix<T>& x, std::int64_t block_rows, bool rows_too,
                          StripOutputs& to) {
  quant::Request request;
  request.x = ConstAnyMatrix(x.data(), dtype_of<T>, x.rows(), x.cols(), x.stride());
  request.q_t = {quant::Scales::per_block, to.q_t, to.absmax, block_rows};
  if (rows_too)
    request.q = {quant::Scales::per_row, {to.q.data(), x.rows(), x.cols()}, to.absmax_rows};
  return request;
}

template <class T>
void check_strips(const Matrix<T>& x, std::int64_t block_rows) {
  for (const bool rows_too : {false, true}) {
    StripOutputs want(x.rows(), x.cols(), block_rows, 0);
    quant::reference::run(request_of(x, block_rows, rows_too, want));
    for (auto& [name, context] : contexts()) {
      quant::Problem problem;
      problem.op =
          rows_too ? quant::Op::rowwise_and_blockwise_transpose : quant::Op::blockwise_transpose;
      problem.dtype = dtype_of<T>;
      problem.rows = x.rows();
      problem.cols = x.cols();
      problem.block_rows = block_rows;
      problem.isa = core::parse_isa(context.isa());
      problem.threads = context.state().threads.count();
      quant::Config config = quant::default_config(problem, context.state());
      for (const bool stream : {false, true})
        for (const std::int64_t offset : {0, 1})
          for (const std::int64_t panel : {std::int64_t{64}, config.panel_cols}) {
            config.stream = stream;
            config.panel_cols = config.tile_cols = panel;
            StripOutputs got(x.rows(), x.cols(), block_rows, offset);
            quant::run(context.state(), problem, config, request_of(x, block_rows, rows_too, got));
            const std::string what = name + " " + text_of(x) + " blocks of " +
                                     std::to_string(block_rows) + " " + describe(config) +
                                     " offset " + std::to_string(offset);
            ASSERT_TRUE(got.codes() == want.codes()) << what;
            ASSERT_TRUE(got.q == want.q) << what;
            ASSERT_TRUE(got.scale_bits() == want.scale_bits()) << what;
          }
    }
  }
}

template <class T>
class Strips : public ::testing::Test {};
TYPED_TEST_SUITE(Strips, FloatTypes);

TYPED_TEST(Strips, Edges) {
  // A strip has 16 or 32 columns. Kernels transpose 64 rows of it at a time, and read 16 or 8 rows.
  for (const std::int64_t rows : {1, 15, 16, 17, 64, 65, 127, 129})
    for (const std::int64_t cols : {1, 15, 17, 32, 33, 64, 97})
      check_strips(normal_of_size<TypeParam>(rows, cols), 128);
  for (const auto& [rows, cols] : {Size{256, 48}, {257, 40}, {700, 71}, {1030, 33}})
    check_strips(normal_of_size<TypeParam>(rows, cols), rows > 1000 ? 1024 : 256);
}

TYPED_TEST(Strips, StridesAndMisalignment) {
  for (const std::int64_t misalignment : {1, 2, 4})
    check_strips(normal_of_size<TypeParam>(200, 70, {11, misalignment}), 128);
  check_strips(normal_of_size<TypeParam>(270, 150, {2048 - 150, 0}),
               128);  // all rows map to the same sets of a cache
}

TYPED_TEST(Strips, ColumnsOfEveryKind) {
  // The special columns are in separate strips, and then adjacent.
  for (const std::int64_t step : {37, 1}) {
    Matrix<TypeParam> x = normal_of_size<TypeParam>(150, 37 * 12);
    const auto fill = [&](std::int64_t kind, const auto& value) {
      for (std::int64_t r = 0; r < x.rows(); ++r)
        x.set(r, kind * step + 3, TypeParam(static_cast<float>(value(r))));
    };
    fill(0, [](std::int64_t) { return 0.0f; });
    fill(1, [](std::int64_t r) { return r % 2 == 0 ? -0.0f : 0.0f; });
    fill(2, [&](std::int64_t r) { return r == 149 ? nan : 1.0f; });
    fill(3, [&](std::int64_t r) { return r == 5 ? -inf : static_cast<float>(r); });
    fill(4, [&](std::int64_t r) { return r == 140 ? -nan : r == 139 ? inf : -2.0f; });
    fill(5, [](std::int64_t) { return -3.0f; });  // all equal
    fill(6, [](std::int64_t r) { return static_cast<float>(r) * 0x1p-140f; });
    fill(7, [](std::int64_t r) { return static_cast<float>(r - 75) * 0x1p-126f; });
    fill(8, [](std::int64_t r) { return static_cast<float>(r - 20) * 0x1p-24f; });
    fill(9, [](std::int64_t r) { return static_cast<float>(r - 60) * 0x1p118f; });
    fill(10, [](std::int64_t r) { return static_cast<float>(r % 2 == 0 ? 127 : -r) * 0.5f; });
    check_strips(x, 128);
  }
}

// Checks columns with every significand that an absmax may have, its exact half, and the values
// nearest to each tie.
template <class T>
void every_significand(int binade, int exponents) {
  Random random(11);
  for (int exponent = 0; exponent < exponents; ++exponent) {
    constexpr std::int64_t rows = 128 + 127;
    Matrix<T> x(rows, binade);
    for (int c = 0; c < binade; ++c) {
      const auto bits = static_cast<std::uint16_t>(
          exponent * (65536 / 2 - 2 * binade) / exponents / binade * binade + c);
      const auto absmax = static_cast<float>(T::from_bits(bits));
      x.set(0, c, T(absmax));
      for (int n = 0; n < 127; ++n) {
        const auto sign = random.below(2) == 0 ? 1.0f : -1.0f;
        x.set(1 + n, c, T(sign * absmax * ((static_cast<float>(n) + 0.5f) / 127.0f)));
      }
      x.set(128, c, T(-absmax));
      for (int n = 0; n < 126; ++n)
        x.set(129 + n, c, T(absmax * static_cast<float>(random.uniform() * 2.0 - 1.0)));
    }
    check_strips(x, 128);
  }
}
TEST(StripsF16, EverySignificand) {
  every_significand<half>(1024, 4);
}
TEST(StripsBf16, EverySignificand) {
  every_significand<bfloat16>(128, 8);
}

}  // namespace
}  // namespace switchback::test
