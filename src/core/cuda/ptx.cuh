// SPDX-License-Identifier: Apache-2.0
// CUDA core: element types on the device: exact conversions, memory access at any alignment, and
// the few instructions that have no C++, each with a twin for the emulated device.
#pragma once

#include <cstdint>
#include <cstring>

#include "core/cuda/api.hpp"
#include "switchback/types.hpp"

namespace switchback::core::SWITCHBACK_CUDA_NS {

__device__ __forceinline__ float widen(float value) {
  return value;
}
__device__ __forceinline__ float widen(bfloat16 value) {
  return __uint_as_float(static_cast<unsigned>(value.bits) << 16);
}
__device__ __forceinline__ float widen(half value) {
#if defined(SWITCHBACK_CUDA_EMULATED)
  return static_cast<float>(value);
#else
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
  return result;
#endif
}

/// Rounds to nearest even; NaN becomes the quiet one without sign or payload.
template <class T>
__device__ __forceinline__ T narrow(float value);
template <>
__device__ __forceinline__ float narrow<float>(float value) {
  return value != value ? __uint_as_float(0x7FC00000u) : value;
}
template <>
__device__ __forceinline__ bfloat16 narrow<bfloat16>(float value) {
  bfloat16 result;
  const unsigned u = __float_as_uint(value);
  result.bits = value != value ? static_cast<std::uint16_t>(0x7FC0u)
                               : static_cast<std::uint16_t>((u + 0x7FFFu + ((u >> 16) & 1u)) >> 16);
  return result;
}
template <>
__device__ __forceinline__ half narrow<half>(float value) {
  half result;
#if defined(SWITCHBACK_CUDA_EMULATED)
  result = half(value);
#else
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
#endif
  if (value != value) result.bits = 0x7E00u;
  return result;
}

/// c + the dot product of four signed bytes and four signed bytes, modulo 2^32.
__device__ __forceinline__ int dot4(int a, int b, int c) {
#if defined(SWITCHBACK_CUDA_EMULATED)
  auto sum = static_cast<unsigned>(c);
  for (int i = 0; i < 4; ++i)
    sum += static_cast<unsigned>(static_cast<std::int8_t>(a >> (8 * i)) *
                                 static_cast<std::int8_t>(b >> (8 * i)));
  return static_cast<int>(sum);
#else
  return __dp4a(a, b, c);
#endif
}

/// An element at any address: one access where the address is a multiple of its size, else bytes.
template <class T>
__device__ __forceinline__ T load_element(const T* address) {
  if (reinterpret_cast<std::uintptr_t>(address) % sizeof(T) == 0) return *address;
  T value;
  unsigned char bytes[sizeof(T)];
  for (unsigned i = 0; i < sizeof(T); ++i)
    bytes[i] = reinterpret_cast<const unsigned char*>(address)[i];
  memcpy(&value, bytes, sizeof(T));
  return value;
}
template <class T>
__device__ __forceinline__ void store_element(T* address, T value) {
  if (reinterpret_cast<std::uintptr_t>(address) % sizeof(T) == 0) {
    *address = value;
    return;
  }
  unsigned char bytes[sizeof(T)];
  memcpy(bytes, &value, sizeof(T));
  for (unsigned i = 0; i < sizeof(T); ++i)
    reinterpret_cast<unsigned char*>(address)[i] = bytes[i];
}

}  // namespace switchback::core::SWITCHBACK_CUDA_NS
