// SPDX-License-Identifier: Apache-2.0
// Device code computes the int8 code of a 16-bit element by one product with a factor. This test
// compares it with the definition of codes, for every significand of absmax and every x up to
// absmax.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "quant/cuda/codes.cuh"

namespace switchback::test {
namespace {

using quant::cuda::product_code;
using quant::cuda::scale_of;

template <class T>
class OneProduct : public ::testing::Test {
 protected:
  static constexpr bool is_bf16 = std::is_same_v<T, bfloat16>;
  static constexpr int binade = is_bf16 ? 128 : 1024;
  static constexpr int infinity = is_bf16 ? 0x7F80 : 0x7C00;

  static std::vector<float> magnitudes() {
    std::vector<float> x;
    for (int bits = 0; bits < infinity; ++bits)
      x.push_back(static_cast<float>(T::from_bits(static_cast<std::uint16_t>(bits))));
    return x;
  }
  static bool divides(float absmax) { return scale_of<T>(absmax).divides(); }
};
using Types = ::testing::Types<half, bfloat16>;
TYPED_TEST_SUITE(OneProduct, Types);

TYPED_TEST(OneProduct, IsTheCode) {
  const std::vector<float> x = this->magnitudes();
  std::int64_t groups = 0;
  for (int bits = 1; bits < this->infinity; ++bits) {
    const int exponent = bits / this->binade;
    // The exponent of absmax only decides which x exist, so a few exponents are enough. The
    // exceptional values of absmax (significands that are multiples of 127, and the last binade)
    // are tested with all exponents.
    const bool multiple = exponent > 0 && (this->binade + bits % this->binade) % 127 == 0;
    const bool last = bits + this->binade >= this->infinity;
    const bool chosen = exponent == 0 || exponent % (this->is_bf16 ? 63 : 14) == 1;
    if (!chosen && !last && !multiple) continue;
    const float absmax = x[static_cast<std::size_t>(bits)];
    const auto scale = scale_of<TypeParam>(absmax);
    EXPECT_EQ(scale.absmax, absmax);
    if (scale.divides()) {
      EXPECT_TRUE(absmax < 0x1p-119f || exponent == 0 || multiple) << absmax;
      continue;
    }
    ++groups;
    int wrong = 0;
    for (int i = 0; i <= bits; ++i) {
      const float element = x[static_cast<std::size_t>(i)];
      const float code = (127.0f * (element / absmax) + 0x1.8p23f) - 0x1.8p23f;
      // The product is exact in f64, so adding 0x1.8p52 rounds it once, as a fused multiply-add
      // does.
      const double product = static_cast<double>(element) * static_cast<double>(scale.factor);
      wrong += (product + 0x1.8p52) - 0x1.8p52 != static_cast<double>(code) ? 1 : 0;
    }
    ASSERT_EQ(wrong, 0) << absmax;
    // Tests the device function product_code() itself, with elements of both signs.
    for (const float element : {absmax, absmax / 2, absmax / 3})
      for (const float sign : {1.0f, -1.0f}) {
        const auto rounded = static_cast<float>(static_cast<TypeParam>(element)) * sign;
        const float code = std::nearbyint(127.0f * (rounded / absmax));
        EXPECT_EQ(static_cast<std::int8_t>(product_code(rounded, scale.factor)), code) << rounded;
      }
  }
  EXPECT_GT(groups, this->is_bf16 ? 500 : 3000);
}

TYPED_TEST(OneProduct, IsMissingWhereNoneIsRight) {
  EXPECT_EQ(scale_of<TypeParam>(0.0f).factor, 0.0f);
  EXPECT_TRUE(this->divides(std::numeric_limits<float>::infinity()));
  EXPECT_TRUE(this->divides(std::numeric_limits<float>::quiet_NaN()));
  EXPECT_TRUE(this->divides(0x1.fep-120f));
  EXPECT_FALSE(this->divides(0x1p-119f));
  EXPECT_EQ(this->divides(1143.0f), !this->is_bf16);
  EXPECT_FALSE(this->divides(1016.0f));
  EXPECT_EQ(scale_of<TypeParam>(254.0f).factor, 0.5f);
}

}  // namespace
}  // namespace switchback::test
