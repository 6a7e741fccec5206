// SPDX-License-Identifier: Apache-2.0
// Engine zone: the sequences of quant/gelu.hpp in device code. (Multiplications and additions are
// never fused: device code is compiled that way, and the intrinsics here ensure it too.)
#pragma once

#include <cstdint>

#include "core/cuda/api.hpp"
#include "quant/gelu.hpp"

namespace switchback::quant::SWITCHBACK_CUDA_NS {

namespace device_gelu {

__device__ __forceinline__ float mul(float a, float b) {
  return __fmul_rn(a, b);
}
__device__ __forceinline__ float add(float a, float b) {
  return __fadd_rn(a, b);
}
__device__ __forceinline__ float mul_add(float a, float b, float c) {
  return __fadd_rn(__fmul_rn(a, b), c);
}

__device__ __forceinline__ float power_of_two(unsigned n) {
  return __uint_as_float((n + 127u) << 23);
}

__device__ __forceinline__ float exponential(float z, float rest) {
  const float shifted = mul_add(z, gelu::log2_e, gelu::integer_shift);
  const float n = __fsub_rn(shifted, gelu::integer_shift);
  const float r = add(__fsub_rn(__fsub_rn(z, mul(n, gelu::ln2_high)), mul(n, gelu::ln2_low)), rest);
  float p = mul_add(gelu::exp6, r, gelu::exp5);
  p = mul_add(p, r, gelu::exp4);
  p = mul_add(p, r, gelu::exp3);
  p = mul_add(p, r, gelu::exp2);
  p = mul_add(p, r, 1.0f);
  p = mul_add(p, r, 1.0f);
  const unsigned whole = __float_as_uint(shifted) - gelu::integer_shift_bits;
  const unsigned half = static_cast<unsigned>(static_cast<int>(whole) >> 1);
  return mul(mul(p, power_of_two(half)), power_of_two(whole - half));
}

__device__ __forceinline__ float clamp(float x, float end) {
  const float above = x < -end ? -end : x;
  return end < above ? end : above;
}

__device__ __forceinline__ float tanh_value(float x) {
  const float u = clamp(mul(mul(gelu::twice_sqrt_2_pi, x), add(1.0f, mul(gelu::cubic, mul(x, x)))),
                        gelu::value_end);
  return __fdiv_rn(x, add(1.0f, exponential(-u, 0.0f)));
}

__device__ __forceinline__ float tanh_derivative(float x) {
  const float c = clamp(x, gelu::derivative_end);
  const float square = mul(c, c);
  const float u = mul(mul(gelu::twice_sqrt_2_pi, c), add(1.0f, mul(gelu::cubic, square)));
  const float e = exponential(-u, 0.0f);
  const float s = __fdiv_rn(1.0f, add(1.0f, e));
  const float slope = mul(gelu::twice_sqrt_2_pi, add(1.0f, mul(gelu::three_cubic, square)));
  return add(add(s, mul(mul(c, slope), mul(s, mul(e, s)))), __fsub_rn(x, x));
}

struct Normal {
  float distribution;
  float bell;
};

__device__ __forceinline__ Normal normal(float x) {
  const float magnitude = __uint_as_float(__float_as_uint(x) & 0x7FFFFFFFu);
  const float a = gelu::tail_end < magnitude ? gelu::tail_end : magnitude;
  const float upper = __uint_as_float(__float_as_uint(a) & gelu::upper_half);
  const float bell = exponential(mul(-0.5f, mul(upper, upper)),
                                 mul(-0.5f, mul(__fsub_rn(a, upper), add(a, upper))));
  const float t = __fdiv_rn(1.0f, add(1.0f, mul(gelu::tail_slope, a)));
  float p = mul_add(gelu::tail8, t, gelu::tail7);
  p = mul_add(p, t, gelu::tail6);
  p = mul_add(p, t, gelu::tail5);
  p = mul_add(p, t, gelu::tail4);
  p = mul_add(p, t, gelu::tail3);
  p = mul_add(p, t, gelu::tail2);
  p = mul_add(p, t, gelu::tail1);
  p = mul_add(p, t, gelu::tail0);
  const float tail = mul(mul(p, t), bell);
  return {x < 0.0f ? tail : __fsub_rn(1.0f, tail), bell};
}

}  // namespace device_gelu

/// activation(x).
__device__ __forceinline__ float activated(bool tanh_form, float x) {
  if (tanh_form) return device_gelu::tanh_value(x);
  return __fmul_rn(x, device_gelu::normal(x).distribution);
}

/// activation'(x).
__device__ __forceinline__ float activation_slope(bool tanh_form, float x) {
  if (tanh_form) return device_gelu::tanh_derivative(x);
  const device_gelu::Normal n = device_gelu::normal(x);
  return __fadd_rn(n.distribution, __fmul_rn(x, __fmul_rn(n.bell, gelu::density_at_zero)));
}

}  // namespace switchback::quant::SWITCHBACK_CUDA_NS
