// SPDX-License-Identifier: Apache-2.0
#include "core/check.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/device.hpp"

namespace switchback::core {
namespace {

std::string message_of(ConstAnyMatrix m) {
  try {
    check_matrix("op", "x", m);
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::invalid_argument);
    return error.what();
  }
  return "";
}

TEST(CheckMatrix, NamesArgumentValueAndRule) {
  float data[4] = {};
  EXPECT_EQ(message_of({data, DType::f32, 2, 2, 2}), "");
  EXPECT_EQ(message_of({data, DType::f32, -1, 2, 2}),
            "op: x has rows = -1; it must not be negative");
  EXPECT_EQ(message_of({data, DType::f32, 1, -2, 2}),
            "op: x has cols = -2; it must not be negative");
  EXPECT_EQ(message_of({data, DType::f32, 2, 2, 1}),
            "op: x has stride = 1; it must be at least cols = 2");
  EXPECT_EQ(message_of({nullptr, DType::f32, 2, 2, 2}),
            "op: x [2,2] stride 2 f32 has a null pointer; only an empty matrix may have one");
  EXPECT_NE(message_of({data, static_cast<DType>(9), 2, 2, 2}).find("dtype 9"), std::string::npos);
}

// Operations call require() on every call, but it seldom throws. So it does not compile with a
// temporary string, which would be built each time, and it formats its values only when it throws.
template <class Arg>
concept MayBeInMessage = requires(Arg&& arg) {
  require(true, "{}", std::forward<Arg>(arg));
};
static_assert(MayBeInMessage<ConstAnyMatrix> && MayBeInMessage<Device>);
static_assert(MayBeInMessage<const std::string&> && MayBeInMessage<std::string&>);
static_assert(MayBeInMessage<std::string_view> && MayBeInMessage<const char*>);
static_assert(!MayBeInMessage<std::string> && !MayBeInMessage<const std::string>);

struct Counted {
  int* formatted;
};
std::string count(const Counted& value) {
  ++*value.formatted;
  return "counted";
}

}  // namespace
}  // namespace switchback::core

template <>
struct fmt::formatter<switchback::core::Counted>
    : switchback::core::DescribedFormatter<switchback::core::Counted, switchback::core::count> {};

namespace switchback::core {
namespace {

TEST(Require, FormatsOnlyWhatItThrows) {
  int formatted = 0;
  require(true, "{}", Counted{&formatted});
  EXPECT_EQ(formatted, 0);
  try {
    require(false, "{} {} {}", Counted{&formatted}, Device{DeviceKind::emulated, 2}, Device{});
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "counted emulated:2 cpu");
  }
  EXPECT_EQ(formatted, 1);
}

TEST(CheckMatrix, EmptyMayBeNull) {
  EXPECT_EQ(message_of({nullptr, DType::f32, 0, 5, 5}), "");
  EXPECT_EQ(message_of({nullptr, DType::f32, 5, 0, 0}), "");
}

TEST(CheckMatrix, OverflowIsRefused) {
  float data[1] = {};
  constexpr std::int64_t big = std::numeric_limits<std::int64_t>::max();
  EXPECT_NE(message_of({data, DType::f32, big, 2, 2}).find("spans more bytes"), std::string::npos);
  EXPECT_NE(message_of({data, DType::f32, 1, big, big}).find("spans more bytes"),
            std::string::npos);
  EXPECT_NE(message_of({data, DType::f32, 2, 1, big}).find("spans more bytes"), std::string::npos);
  void* const near_the_end = reinterpret_cast<void*>(~std::uintptr_t{0} - 8);
  EXPECT_NE(message_of({near_the_end, DType::s8, 1, 64, 64}).find("address space"),
            std::string::npos);
}

TEST(Overlaps, NotWhereSlicesOfOneBufferAreDisjoint) {
  std::vector<float> buffer(64);
  const auto slice = [&](std::int64_t row, std::int64_t col, std::int64_t rows, std::int64_t cols) {
    return ConstAnyMatrix(buffer.data() + row * 8 + col, DType::f32, rows, cols, 8);
  };
  EXPECT_FALSE(overlaps(slice(0, 0, 8, 4), slice(0, 4, 8, 4)));  // left half, right half
  EXPECT_FALSE(overlaps(slice(0, 4, 8, 4), slice(0, 0, 8, 4)));
  EXPECT_FALSE(overlaps(slice(0, 0, 4, 8), slice(4, 0, 4, 8)));  // upper half, lower half
  EXPECT_FALSE(overlaps(slice(2, 3, 3, 2), slice(4, 5, 2, 2)));
  EXPECT_FALSE(overlaps({nullptr, DType::f32, 0, 8, 8}, slice(0, 0, 8, 8)));
}

TEST(Overlaps, WhereSlicesShareBytes) {
  // For every pair of small slices of a buffer with rows of 6 bytes, compares overlaps() with the
  // bytes that the slices share.
  std::vector<std::int8_t> buffer(48);
  for (int a = 0; a < 20; ++a)
    for (int b = 0; b < 20; ++b)
      for (int wa = 1; wa <= 6; ++wa)
        for (int wb = 1; wb <= 6; ++wb) {
          const ConstAnyMatrix ma(buffer.data() + a, DType::s8, 3, wa, 6);
          const ConstAnyMatrix mb(buffer.data() + b, DType::s8, 3, wb, 6);
          bool shared = false;
          for (int ra = 0; ra < 3; ++ra)
            for (int ca = 0; ca < wa; ++ca)
              for (int rb = 0; rb < 3; ++rb)
                for (int cb = 0; cb < wb; ++cb)
                  shared |= a + ra * 6 + ca == b + rb * 6 + cb;
          // overlaps() must find every overlap. It may report a false one only where the rows of
          // two slices interleave at their ends.
          EXPECT_TRUE(!shared || overlaps(ma, mb)) << a << " " << b << " " << wa << " " << wb;
        }
}

}  // namespace
}  // namespace switchback::core
