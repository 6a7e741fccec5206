// SPDX-License-Identifier: Apache-2.0
// Arithmetic: conversions and bit operations, with the device's results at the edges.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

#include "core/unaligned.hpp"
#include "cuda_emu/harness.hpp"
#include "switchback_cuda_emu/half_bits.h"

namespace switchback::test {
namespace {

constexpr float inf = std::numeric_limits<float>::infinity();
const float nan = std::numeric_limits<float>::quiet_NaN();

TEST(CudaEmuIntrinsics, Conversions) {
  EXPECT_EQ(__float2int_rn(2.5f), 2);
  EXPECT_EQ(__float2int_rn(3.5f), 4);
  EXPECT_EQ(__float2int_rn(-2.5f), -2);
  EXPECT_EQ(__float2int_rz(-2.9f), -2);
  EXPECT_EQ(__float2int_rn(nan), 0);
  EXPECT_EQ(__float2int_rn(inf), INT32_MAX);
  EXPECT_EQ(__float2int_rn(-inf), INT32_MIN);
  EXPECT_EQ(__float2int_rn(3e9f), INT32_MAX);
  EXPECT_EQ(__float2uint_rn(-1.0f), 0u);
  EXPECT_EQ(__int_as_float(0x3f800000), 1.0f);
  EXPECT_EQ(__float_as_uint(-0.0f), 0x80000000u);
}

TEST(CudaEmuIntrinsics, MinimaOfFloatsLoseNaN) {
  EXPECT_EQ(max(nan, 1.0f), 1.0f);
  EXPECT_EQ(max(1.0f, nan), 1.0f);
  EXPECT_EQ(min(nan, 1.0f), 1.0f);
  EXPECT_EQ(min(-3, 2), -3);
  EXPECT_EQ(max(3u, 2u), 3u);
  EXPECT_EQ(fmaxf(nan, 1.0f), 1.0f);
}

TEST(CudaEmuIntrinsics, Bits) {
  EXPECT_EQ(__popc(0xf0f0u), 8);
  EXPECT_EQ(__clz(1), 31);
  EXPECT_EQ(__clz(0), 32);
  EXPECT_EQ(__ffs(0), 0);
  EXPECT_EQ(__ffs(8), 4);
  EXPECT_EQ(__brev(1u), 0x80000000u);
  EXPECT_EQ(__byte_perm(0x33221100u, 0x77665544u, 0x7410u), 0x77441100u);
  EXPECT_EQ(__funnelshift_l(0x80000000u, 1u, 1u), 3u);
  EXPECT_EQ(__dp4a(0x01ff0280, 0x02030405, 10), 10 + 1 * 2 - 1 * 3 + 2 * 4 - 128 * 5);
  EXPECT_EQ(__vmaxs4(0x017f80ffu, 0x02800100u), 0x027f0100u);
}

// The product's conversions are tested by themselves; these must be the same.
TEST(CudaEmuIntrinsics, HalvesAreTheProducts) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const auto code = static_cast<std::uint16_t>(bits);
    for (const DType dtype : {DType::f16, DType::bf16}) {
      const bool half = dtype == DType::f16;
      // Room for an f32: the compiler does not see that it is not one.
      const std::uint16_t codes[2] = {code, 0};
      const float value = core::load_float(codes, dtype, 0);
      const float emulated = half ? emu::half_to_float(code) : emu::bfloat16_to_float(code);
      if (std::isnan(value)) {
        EXPECT_TRUE(std::isnan(emulated)) << bits;
        continue;
      }
      ASSERT_EQ(emulated, value) << bits;
      // The value, its neighbours, and the middle to the next.
      const auto next_code = static_cast<std::uint16_t>(code + 1);
      const float next = half ? emu::half_to_float(next_code) : emu::bfloat16_to_float(next_code);
      const float middle = value + (next - value) / 2;
      for (const float f : {value, std::nextafter(value, inf), std::nextafter(value, -inf), middle,
                            std::nextafter(middle, inf), std::nextafter(middle, -inf)}) {
        if (std::isnan(f)) continue;
        std::uint16_t expected[2] = {};
        core::store_float(expected, dtype, 0, f);
        ASSERT_EQ(half ? emu::float_to_half(f) : emu::float_to_bfloat16(f), expected[0]) << f;
      }
    }
  }
}

}  // namespace
}  // namespace switchback::test
