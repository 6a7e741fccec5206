// SPDX-License-Identifier: Apache-2.0
// Test support, emulated CUDA: arithmetic and bit intrinsics, cached loads and stores, atomics.
#pragma once

#include <math.h>
#include <stdint.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "switchback_cuda_emu/device.h"

namespace switchback_cuda_emu::names {

// CUDA's math functions are in the global namespace, so device code calls them without std::.
using std::isfinite;
using std::isinf;
using std::isnan;

inline unsigned __float_as_uint(float x) {
  return std::bit_cast<unsigned>(x);
}
inline float __uint_as_float(unsigned x) {
  return std::bit_cast<float>(x);
}
inline int __float_as_int(float x) {
  return std::bit_cast<int>(x);
}
inline float __int_as_float(int x) {
  return std::bit_cast<float>(x);
}

// Converts to an integer as a GPU does: saturates, and converts NaN to zero.
template <class Int>
Int saturating(float x) {
  if (x != x) return 0;
  if (x <= static_cast<float>(std::numeric_limits<Int>::min()))
    return std::numeric_limits<Int>::min();
  // As a float, the largest Int rounds up to a power of two, which is out of range.
  if (x >= static_cast<float>(std::numeric_limits<Int>::max()))
    return std::numeric_limits<Int>::max();
  return static_cast<Int>(x);
}
inline int __float2int_rn(float x) {
  return saturating<int>(std::nearbyintf(x));
}
inline int __float2int_rz(float x) {
  return saturating<int>(std::truncf(x));
}
inline float __int2float_rn(int x) {
  return static_cast<float>(x);
}

inline float __fadd_rn(float a, float b) {
  return a + b;
}
inline float __fsub_rn(float a, float b) {
  return a - b;
}
inline float __fmul_rn(float a, float b) {
  return a * b;
}
inline float __fdiv_rn(float a, float b) {
  return a / b;
}
inline float __fsqrt_rn(float a) {
  return std::sqrt(a);
}
inline float __fmaf_rn(float a, float b, float c) {
  return std::fma(a, b, c);
}

#define SWITCHBACK_CUDA_EMU_MINMAX(type) \
  constexpr type min(type a, type b) {   \
    return b < a ? b : a;                \
  }                                      \
  constexpr type max(type a, type b) {   \
    return a < b ? b : a;                \
  }
SWITCHBACK_CUDA_EMU_MINMAX(int)
SWITCHBACK_CUDA_EMU_MINMAX(unsigned)
SWITCHBACK_CUDA_EMU_MINMAX(long)
SWITCHBACK_CUDA_EMU_MINMAX(unsigned long)
SWITCHBACK_CUDA_EMU_MINMAX(long long)
SWITCHBACK_CUDA_EMU_MINMAX(unsigned long long)
#undef SWITCHBACK_CUDA_EMU_MINMAX
// For floats these are fmin and fmax: if one operand is NaN, the result is the other.
inline float min(float a, float b) {
  return std::fmin(a, b);
}
inline float max(float a, float b) {
  return std::fmax(a, b);
}
inline double min(double a, double b) {
  return std::fmin(a, b);
}
inline double max(double a, double b) {
  return std::fmax(a, b);
}

inline int __ffs(int x) {
  return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1;
}
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const std::uint64_t bytes = (static_cast<std::uint64_t>(y) << 32) | x;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i)
    result |= static_cast<unsigned>((bytes >> (8 * ((selector >> (4 * i)) & 7u))) & 0xffu)
              << (8 * i);
  return result;
}
inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned shift) {
  const std::uint64_t both = (static_cast<std::uint64_t>(hi) << 32) | lo;
  return static_cast<unsigned>(both >> (shift & 31u));
}
inline int __dp4a(int a, int b, int c) {
  unsigned sum = static_cast<unsigned>(c);
  for (int i = 0; i < 4; ++i)
    sum += static_cast<unsigned>(static_cast<std::int8_t>(a >> (8 * i)) *
                                 static_cast<std::int8_t>(b >> (8 * i)));
  return static_cast<int>(sum);
}

// Loads and stores with cache hints: the hints do not change values.
template <class T>
T __ldg(const T* p) {
  return *p;
}
template <class T>
T __ldcg(const T* p) {
  return *p;
}
template <class T>
void __stcs(T* p, const std::type_identity_t<T>& value) {
  *p = value;
}

// Fibers of one OS thread see each other's writes anyway; only the compiler must not move them.
inline void __threadfence() {
  __asm__ volatile("" ::: "memory");
}

// Atomics are relaxed, as a GPU's are: an atomic does not order other accesses.
template <class T>
T atomicAdd(T* p, std::type_identity_t<T> v) {
  return __atomic_fetch_add(p, v, __ATOMIC_RELAXED);
}
template <class T>
T atomicExch(T* p, std::type_identity_t<T> v) {
  return __atomic_exchange_n(p, v, __ATOMIC_RELAXED);
}
// Replaces a value by choose(old value, v); returns the old value.
template <class T, class Choose>
T emulated_atomic_choice(T* p, T v, Choose choose) {
  T old = __atomic_load_n(p, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(p, &old, choose(old, v), false, __ATOMIC_RELAXED,
                                      __ATOMIC_RELAXED)) {
  }
  return old;
}
template <class T>
T atomicMax(T* p, std::type_identity_t<T> v) {
  return emulated_atomic_choice(p, v, [](T a, T b) { return a < b ? b : a; });
}
template <class T>
T atomicMin(T* p, std::type_identity_t<T> v) {
  return emulated_atomic_choice(p, v, [](T a, T b) { return b < a ? b : a; });
}

}  // namespace switchback_cuda_emu::names
