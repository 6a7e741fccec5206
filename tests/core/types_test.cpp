// SPDX-License-Identifier: Apache-2.0
#include "switchback/types.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "switchback/error.hpp"

namespace switchback {
namespace {

// The value of an IEEE binary16 number, computed by its definition.
double half_value(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == 31)
    return fraction != 0 ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

TEST(Half, WidensEveryPatternExactly) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const float widened = static_cast<float>(half::from_bits(static_cast<std::uint16_t>(bits)));
    const double expected = half_value(static_cast<std::uint16_t>(bits));
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(widened)) << bits;
    } else {
      EXPECT_EQ(static_cast<double>(widened), expected) << bits;
      EXPECT_EQ(std::signbit(widened), (bits & 0x8000) != 0) << bits;
    }
  }
}

TEST(Half, RoundsToNearestEvenBetweenNeighbours) {
  // For every pair of neighbouring finite f16 values: rounds f32 values just below, at and just
  // above their midpoint.
  for (std::uint32_t bits = 0; bits < 0x7C00; ++bits) {
    const auto low = static_cast<std::uint16_t>(bits);
    const auto high = static_cast<std::uint16_t>(bits + 1);
    const double top = high == 0x7C00 ? 65536.0 : half_value(high);
    const auto middle = static_cast<float>((half_value(low) + top) / 2);  // exact in f32
    EXPECT_EQ(half(std::nextafterf(middle, 0.0f)).bits, low) << bits;
    EXPECT_EQ(half(std::nextafterf(middle, 1e30f)).bits, high) << bits;
    EXPECT_EQ(half(middle).bits, (low & 1) == 0 ? low : high) << bits;
    EXPECT_EQ(half(-middle).bits, 0x8000 | ((low & 1) == 0 ? low : high)) << bits;
  }
}

TEST(Half, SpecialValues) {
  constexpr float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(half(inf).bits, 0x7C00);
  EXPECT_EQ(half(-inf).bits, 0xFC00);
  EXPECT_EQ(half(1e30f).bits, 0x7C00);
  EXPECT_EQ(half(0.0f).bits, 0);
  EXPECT_EQ(half(-0.0f).bits, 0x8000);
  EXPECT_EQ(half(std::numeric_limits<float>::denorm_min()).bits, 0);
  EXPECT_TRUE(std::isnan(static_cast<float>(half(std::nanf("")))));
  // An f32 NaN whose payload lies only in the bits that f16 discards must not become Inf.
  EXPECT_TRUE(std::isnan(static_cast<float>(half(std::bit_cast<float>(0x7F800001u)))));
}

TEST(Bfloat16, RoundsToNearestEvenBetweenNeighbours) {
  for (std::uint32_t bits = 0; bits < 0x7F80; ++bits) {
    const auto low = static_cast<std::uint16_t>(bits);
    const auto high = static_cast<std::uint16_t>(bits + 1);
    const float middle = std::bit_cast<float>((bits << 16) | 0x8000u);
    EXPECT_EQ(bfloat16(std::bit_cast<float>((bits << 16) | 0x7FFFu)).bits, low) << bits;
    EXPECT_EQ(bfloat16(std::bit_cast<float>((bits << 16) | 0x8001u)).bits, high) << bits;
    EXPECT_EQ(bfloat16(middle).bits, (low & 1) == 0 ? low : high) << bits;
  }
}

TEST(Bfloat16, SpecialValues) {
  EXPECT_EQ(bfloat16(std::numeric_limits<float>::infinity()).bits, 0x7F80);
  EXPECT_EQ(bfloat16(std::numeric_limits<float>::max()).bits, 0x7F80);
  EXPECT_TRUE(std::isnan(static_cast<float>(bfloat16(std::bit_cast<float>(0x7F800001u)))));
  EXPECT_TRUE(std::isnan(static_cast<float>(bfloat16(std::bit_cast<float>(0xFFFFFFFFu)))));
}

TEST(DType, NamesRoundTrip) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::s8, DType::s32})
    EXPECT_EQ(parse_dtype(dtype_name(dtype)), dtype);
  EXPECT_EQ(parse_dtype("float16"), DType::f16);
  EXPECT_EQ(dtype_size_bytes(static_cast<DType>(17)), 0u);
  EXPECT_EQ(dtype_name(static_cast<DType>(17)), "unknown");
}

TEST(DType, UnknownNameListsTheNames) {
  try {
    parse_dtype("fp8");
    FAIL() << "accepted fp8";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::invalid_argument);
    EXPECT_STREQ(error.what(), "dtype 'fp8' is not one of f32, f16, bf16, s8, s32");
  }
}

TEST(Mode, AnotherNameIsRefused) {
  EXPECT_THROW(parse_mode("fast"), Error);
}

TEST(Status, EveryStatusHasItsName) {
  EXPECT_STREQ(status_name(Status::ok), "ok");
  EXPECT_STREQ(status_name(Status::invalid_state), "invalid_state");
  EXPECT_STREQ(status_name(static_cast<Status>(99)), "unknown");
}

}  // namespace
}  // namespace switchback
