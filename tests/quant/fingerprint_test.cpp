// SPDX-License-Identifier: Apache-2.0
// Tests of fingerprint(): it is the same on every instruction set and thread count and for every
// layout, and different after every change. Also tests its arithmetic. Two different matrices have
// the same fingerprint with a probability of 2^-95, so not even the millions compared here can show
// such a pair.
#include "switchback/fingerprint.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "core/context_state.hpp"
#include "quant/backends.hpp"
#include "quant/fingerprint.hpp"
#include "support/contexts.hpp"
#include "support/generators.hpp"
#include "support/matrix.hpp"

namespace switchback::test {
namespace {

namespace hash = quant::hash;

Fingerprint of_reference(ConstAnyMatrix x) {
  const hash::Field value = hash::reference(hash::key(), x);
  return {static_cast<std::uint64_t>(value), static_cast<std::uint64_t>(value >> 64)};
}

template <class T>
Matrix<T> numbers(std::int64_t rows, std::int64_t cols, Layout layout = {}) {
  Matrix<T> x(rows, cols, layout);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; ++c)
      x.set(r, c, static_cast<T>((r * cols + c) % 251 - 125));
  return x;
}

std::string shape_of(ConstAnyMatrix x) {
  return std::to_string(x.rows) + " x " + std::to_string(x.cols) + " stride " +
         std::to_string(x.stride);
}

// ---- Every engine against the reference

class FingerprintOnCpu : public ::testing::Test {
 protected:
  FingerprintOnCpu() {
    for (const ContextOptions& options : all_contexts())
      contexts_.emplace_back(describe(options), Context(options));
  }
  void check(ConstAnyMatrix x) {
    const Fingerprint want = of_reference(x);
    for (auto& [name, context] : contexts_)
      ASSERT_EQ(fingerprint(context, x), want) << name << ": " << shape_of(x);
  }
  std::vector<std::pair<std::string, Context>> contexts_;
};

TEST_F(FingerprintOnCpu, TailsOfEveryLength) {
  // The hash has chunks of 64 bytes, blocks of 8192 bytes and tasks of 16 blocks.
  for (std::int64_t n = 0; n <= 130; ++n)
    check(numbers<std::int8_t>(1, n).view());
  for (const std::int64_t base : {8192, 16384, 16 * 8192, 3 * 16 * 8192})
    for (const std::int64_t by : {-65, -64, -63, -1, 0, 1, 63, 64, 65})
      check(numbers<std::int8_t>(1, base + by).view());
}

TEST_F(FingerprintOnCpu, RowsApartAndMisaligned) {
  for (const auto& [rows, cols] :
       {Size{1, 5}, {7, 1}, {5000, 1}, {3, 63}, {65, 64}, {9, 1000}, {40, 2048}, {3, 5000}}) {
    const Fingerprint want = of_reference(numbers<float>(rows, cols).view());
    for (const std::int64_t padding : {0, 1, 13})
      for (const std::int64_t misalignment : {0, 1, 3}) {
        const auto x = numbers<float>(rows, cols, {padding, misalignment});
        check(x.view());
        // The elements are the same, so the fingerprint is too.
        EXPECT_EQ(of_reference(x.view()), want) << shape_of(x.view());
      }
  }
}

TEST_F(FingerprintOnCpu, EveryDtype) {
  check(numbers<float>(37, 41).view());
  check(numbers<half>(37, 41, {3, 1}).view());
  check(numbers<bfloat16>(37, 41).view());
  check(numbers<std::int32_t>(37, 41, {3, 0}).view());
  check(numbers<std::int8_t>(37, 41).view());
}

// ---- Changes

class FingerprintChanges : public ::testing::Test {
 protected:
  Fingerprint of(ConstAnyMatrix x) { return fingerprint(context_, x); }
  Context context_{cpu_options()};
};

TEST_F(FingerprintChanges, EveryBit) {
  // Matrices that are hashed in place and that are gathered first, with one block and with two.
  for (const auto& [rows, cols, padding] :
       {std::array<std::int64_t, 3>{3, 7, 0}, {3, 7, 2}, {5, 520, 0}, {5, 520, 4}}) {
    auto x = numbers<std::int32_t>(rows, cols, {padding, 0});
    const Fingerprint before = of(x.view());
    std::set<Fingerprint> seen = {before};
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < cols; ++c) {
        const std::int32_t value = x.get(r, c);
        for (int bit = 0; bit < 32; ++bit) {
          x.set(r, c, static_cast<std::int32_t>(static_cast<std::uint32_t>(value) ^ (1u << bit)));
          ASSERT_TRUE(seen.insert(of(x.view())).second) << r << "," << c << " bit " << bit;
        }
        x.set(r, c, value);
      }
    EXPECT_EQ(of(x.view()), before);
  }
}

TEST_F(FingerprintChanges, ElementsAndRowsThatChangePlaces) {
  auto x = numbers<float>(6, 2048);  // each row is one block
  std::set<Fingerprint> seen = {of(x.view())};
  for (std::int64_t c = 1; c < 200; ++c) {
    std::swap(x.data()[0], x.data()[c]);
    EXPECT_TRUE(seen.insert(of(x.view())).second) << c;
    std::swap(x.data()[0], x.data()[c]);
  }
  for (std::int64_t r = 1; r < 6; ++r) {
    float* const row = x.data() + r * x.stride();
    std::swap_ranges(row, row + x.cols(), x.data());
    EXPECT_TRUE(seen.insert(of(x.view())).second) << r;
    std::swap_ranges(row, row + x.cols(), x.data());
  }
}

TEST_F(FingerprintChanges, ShapeDtypeAndStride) {
  const std::vector<std::int32_t> zeros(96 * 3);
  std::set<Fingerprint> seen;
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::s8, DType::s32})
    for (const auto& [rows, cols] :
         {Size{0, 0}, {0, 3}, {3, 0}, {1, 1}, {1, 2}, {2, 1}, {1, 96}, {96, 1}, {8, 12}, {12, 8}})
      EXPECT_TRUE(seen.insert(of({zeros.data(), dtype, rows, cols, cols})).second)
          << dtype_name(dtype) << " " << rows << " x " << cols;
  const auto x = numbers<float>(10, 10);
  EXPECT_NE(of({x.data(), DType::f32, 4, 5, 5}), of({x.data(), DType::f32, 4, 5, 6}));
}

// ---- Arithmetic of the hash

TEST(FingerprintField, ProductsAndPowers) {
  using hash::Field;
  constexpr Field last = hash::prime - 1;
  static_assert(hash::reduced(hash::prime) == 0 && hash::reduced(~Field(0)) == 1);
  static_assert(hash::multiply(last, last) == 1);  // (-1)^2
  static_assert(hash::multiply(Field(1) << 126, 2) == 1);
  static_assert(hash::multiply(Field(1) << 100, Field(1) << 100) == Field(1) << 73);
  static_assert(hash::add(last, 1) == 0);
  // Compares with a slow multiplication: doubling and adding.
  Random random(7);
  const auto draw = [&] {
    return hash::reduced((Field(random.next()) << 64 | random.next()) & hash::prime);
  };
  for (int i = 0; i < 200; ++i) {
    const Field a = draw();
    const Field b = draw();
    Field sum = 0;
    for (int bit = 126; bit >= 0; --bit) {
      sum = hash::add(sum, sum);
      if ((b >> bit & 1) != 0) sum = hash::add(sum, a);
    }
    EXPECT_TRUE(hash::multiply(a, b) == sum) << i;
  }
  const Field base = draw();
  Field product = 1;
  for (int exponent = 0; exponent < 40; ++exponent) {
    EXPECT_TRUE(hash::power(base, exponent) == product) << exponent;
    product = hash::multiply(product, base);
  }
}

// ---- Refused arguments

TEST(FingerprintRefuses, WhatIsNoMatrix) {
  Context context(cpu_options());
  const float x = 1.0f;
  EXPECT_EQ(refusal([&] {
              static_cast<void>(fingerprint(context, {&x, DType::f32, -1, 1, 1}));
            }),
            "fingerprint: x has rows = -1; it must not be negative");
  EXPECT_EQ(refusal([&] {
              static_cast<void>(fingerprint(context, {&x, static_cast<DType>(9), 1, 1, 1}));
            }),
            "fingerprint: x has dtype 9; it must be one of f32 (0), f16 (1), bf16 (2), s8 (3), "
            "s32 (4)");
}

TEST(FingerprintEngines, RefusesADevice) {
  Context context(device_options());
  const Matrix<float> x(3, 4);
  if (on_cpu()) {
    EXPECT_EQ(fingerprint(context, x.view()), of_reference(x.view()));
    return;
  }
  try {
    static_cast<void>(fingerprint(context, x.view()));
    FAIL() << "it was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::unsupported);
    EXPECT_EQ(std::string(error.what()), "fingerprint: the context is on " + device() +
                                             "; it must be on the cpu: a device's memory cannot be "
                                             "read without waiting for its stream");
  }
}

}  // namespace
}  // namespace switchback::test
