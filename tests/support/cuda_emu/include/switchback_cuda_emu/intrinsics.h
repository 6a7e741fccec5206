// SPDX-License-Identifier: Apache-2.0
// Test support, emulated CUDA: arithmetic and bit intrinsics, cached loads and stores, atomics.
#pragma once

#include <math.h>
#include <stdint.h>

#include <bit>
#include <chrono>
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
inline long long __double_as_longlong(double x) {
  return std::bit_cast<long long>(x);
}
inline double __longlong_as_double(long long x) {
  return std::bit_cast<double>(x);
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
inline int __float2int_rd(float x) {
  return saturating<int>(std::floor(x));
}
inline int __float2int_ru(float x) {
  return saturating<int>(std::ceil(x));
}
inline unsigned __float2uint_rn(float x) {
  return saturating<unsigned>(std::nearbyintf(x));
}
inline unsigned __float2uint_rz(float x) {
  return saturating<unsigned>(std::truncf(x));
}
inline long long __float2ll_rn(float x) {
  return saturating<long long>(std::nearbyintf(x));
}
inline float __int2float_rn(int x) {
  return static_cast<float>(x);
}
inline float __uint2float_rn(unsigned x) {
  return static_cast<float>(x);
}
inline float __ll2float_rn(long long x) {
  return static_cast<float>(x);
}
inline float __double2float_rn(double x) {
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
inline float __frcp_rn(float a) {
  return 1.0f / a;
}
inline float __fsqrt_rn(float a) {
  return std::sqrt(a);
}
inline float __fmaf_rn(float a, float b, float c) {
  return std::fma(a, b, c);
}
inline double __dadd_rn(double a, double b) {
  return a + b;
}
inline double __dmul_rn(double a, double b) {
  return a * b;
}
inline double __ddiv_rn(double a, double b) {
  return a / b;
}
inline double __fma_rn(double a, double b, double c) {
  return std::fma(a, b, c);
}
inline float __saturatef(float x) {
  return x >= 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f;
}
inline float __fdividef(float a, float b) {
  return a / b;
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

inline int __popc(unsigned x) {
  return std::popcount(x);
}
inline int __popcll(unsigned long long x) {
  return std::popcount(x);
}
inline int __clz(int x) {
  return std::countl_zero(static_cast<unsigned>(x));
}
inline int __clzll(long long x) {
  return std::countl_zero(static_cast<unsigned long long>(x));
}
inline int __ffs(int x) {
  return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1;
}
inline int __ffsll(long long x) {
  return x == 0 ? 0 : std::countr_zero(static_cast<unsigned long long>(x)) + 1;
}
inline unsigned __brev(unsigned x) {
  unsigned reversed = 0;
  for (int i = 0; i < 32; ++i)
    reversed |= ((x >> i) & 1u) << (31 - i);
  return reversed;
}
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const std::uint64_t bytes = (static_cast<std::uint64_t>(y) << 32) | x;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i)
    result |= static_cast<unsigned>((bytes >> (8 * ((selector >> (4 * i)) & 7u))) & 0xffu)
              << (8 * i);
  return result;
}
inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned shift) {
  const std::uint64_t both = (static_cast<std::uint64_t>(hi) << 32) | lo;
  return static_cast<unsigned>((both << (shift & 31u)) >> 32);
}
inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned shift) {
  const std::uint64_t both = (static_cast<std::uint64_t>(hi) << 32) | lo;
  return static_cast<unsigned>(both >> (shift & 31u));
}
inline int __mulhi(int a, int b) {
  return static_cast<int>((static_cast<long long>(a) * b) >> 32);
}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>((static_cast<unsigned long long>(a) * b) >> 32);
}
inline int __dp4a(int a, int b, int c) {
  unsigned sum = static_cast<unsigned>(c);
  for (int i = 0; i < 4; ++i)
    sum += static_cast<unsigned>(static_cast<std::int8_t>(a >> (8 * i)) *
                                 static_cast<std::int8_t>(b >> (8 * i)));
  return static_cast<int>(sum);
}
inline unsigned __vmaxs4(unsigned a, unsigned b) {
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    const auto x = static_cast<std::int8_t>(a >> (8 * i));
    const auto y = static_cast<std::int8_t>(b >> (8 * i));
    result |= static_cast<unsigned>(static_cast<std::uint8_t>(x < y ? y : x)) << (8 * i);
  }
  return result;
}

// Loads and stores with cache hints: the hints do not change values.
#define SWITCHBACK_CUDA_EMU_LOAD(name) \
  template <class T>                   \
  T name(const T* p) {                 \
    return *p;                         \
  }
SWITCHBACK_CUDA_EMU_LOAD(__ldg)
SWITCHBACK_CUDA_EMU_LOAD(__ldca)
SWITCHBACK_CUDA_EMU_LOAD(__ldcg)
SWITCHBACK_CUDA_EMU_LOAD(__ldcs)
SWITCHBACK_CUDA_EMU_LOAD(__ldcv)
SWITCHBACK_CUDA_EMU_LOAD(__ldlu)
#undef SWITCHBACK_CUDA_EMU_LOAD
#define SWITCHBACK_CUDA_EMU_STORE(name)                   \
  template <class T>                                      \
  void name(T* p, const std::type_identity_t<T>& value) { \
    *p = value;                                           \
  }
SWITCHBACK_CUDA_EMU_STORE(__stwb)
SWITCHBACK_CUDA_EMU_STORE(__stcg)
SWITCHBACK_CUDA_EMU_STORE(__stcs)
SWITCHBACK_CUDA_EMU_STORE(__stwt)
#undef SWITCHBACK_CUDA_EMU_STORE

// Fences. Fibers of one OS thread see each other's writes anyway; only the compiler must not move
// them.
inline void __threadfence() {
  __asm__ volatile("" ::: "memory");
}
inline void __threadfence_block() {
  __asm__ volatile("" ::: "memory");
}
inline void __threadfence_system() {
  __asm__ volatile("" ::: "memory");
}

// Atomics are relaxed, as a GPU's are: an atomic does not order other accesses.
#define SWITCHBACK_CUDA_EMU_FETCH(name, builtin, type) \
  inline type name(type* p, type v) {                  \
    return builtin(p, v, __ATOMIC_RELAXED);            \
  }
#define SWITCHBACK_CUDA_EMU_UPDATE(name, type, expression)                             \
  inline type name(type* p, type v) {                                                  \
    type old = __atomic_load_n(p, __ATOMIC_RELAXED);                                   \
    while (!__atomic_compare_exchange_n(p, &old, static_cast<type>(expression), false, \
                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {         \
    }                                                                                  \
    return old;                                                                        \
  }
#define SWITCHBACK_CUDA_EMU_ATOMICS(type)                                                   \
  SWITCHBACK_CUDA_EMU_FETCH(atomicAdd, __atomic_fetch_add, type)                            \
  SWITCHBACK_CUDA_EMU_FETCH(atomicExch, __atomic_exchange_n, type)                          \
  SWITCHBACK_CUDA_EMU_FETCH(atomicOr, __atomic_fetch_or, type)                              \
  SWITCHBACK_CUDA_EMU_FETCH(atomicAnd, __atomic_fetch_and, type)                            \
  SWITCHBACK_CUDA_EMU_FETCH(atomicXor, __atomic_fetch_xor, type)                            \
  SWITCHBACK_CUDA_EMU_UPDATE(atomicMax, type, old < v ? v : old)                            \
  SWITCHBACK_CUDA_EMU_UPDATE(atomicMin, type, v < old ? v : old)                            \
  inline type atomicCAS(type* p, type compare, type v) {                                    \
    __atomic_compare_exchange_n(p, &compare, v, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED); \
    return compare;                                                                         \
  }
SWITCHBACK_CUDA_EMU_ATOMICS(int)
SWITCHBACK_CUDA_EMU_ATOMICS(unsigned)
SWITCHBACK_CUDA_EMU_ATOMICS(unsigned long long)
SWITCHBACK_CUDA_EMU_FETCH(atomicSub, __atomic_fetch_sub, int)
SWITCHBACK_CUDA_EMU_FETCH(atomicSub, __atomic_fetch_sub, unsigned)
SWITCHBACK_CUDA_EMU_UPDATE(atomicInc, unsigned, old >= v ? 0u : old + 1u)
SWITCHBACK_CUDA_EMU_UPDATE(atomicDec, unsigned, old == 0u || old > v ? v : old - 1u)
#undef SWITCHBACK_CUDA_EMU_ATOMICS
#undef SWITCHBACK_CUDA_EMU_UPDATE
#undef SWITCHBACK_CUDA_EMU_FETCH

template <class Float, class Bits>
Float add_by_exchange(Float* p, Float v) {
  auto* bits = reinterpret_cast<Bits*>(p);
  Bits old = __atomic_load_n(bits, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(bits, &old,
                                      std::bit_cast<Bits>(std::bit_cast<Float>(old) + v), false,
                                      __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return std::bit_cast<Float>(old);
}
inline float atomicAdd(float* p, float v) {
  return add_by_exchange<float, std::uint32_t>(p, v);
}
inline double atomicAdd(double* p, double v) {
  return add_by_exchange<double, std::uint64_t>(p, v);
}
inline float atomicExch(float* p, float v) {
  return std::bit_cast<float>(__atomic_exchange_n(
      reinterpret_cast<std::uint32_t*>(p), std::bit_cast<std::uint32_t>(v), __ATOMIC_RELAXED));
}

inline long long clock64() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace switchback_cuda_emu::names
