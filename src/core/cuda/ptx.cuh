// SPDX-License-Identifier: Apache-2.0
// CUDA core: element types on the device: exact conversions, memory access at any alignment, and
// the few instructions without a C++ equivalent, each with C++ code for the emulated device.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/cuda/api.hpp"
#include "switchback/types.hpp"

namespace switchback::core::cuda {

/// Host code: calls f with a value of the C++ type for `dtype`, which is a floating-point type.
template <class F>
cudaError_t for_type(DType dtype, F f) {
  switch (dtype) {
    case DType::f16:
      return f(half{});
    case DType::bf16:
      return f(bfloat16{});
    default:
      return f(float{});
  }
}
/// Host code: calls f with a value of the C++ type of an int8 product's results: a floating-point
/// type, or int32 for its sums.
template <class F>
cudaError_t for_output_type(DType dtype, F f) {
  return dtype == DType::s32 ? f(std::int32_t{}) : for_type(dtype, f);
}

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

/// Rounds an f32 to T, to nearest even. NaN becomes the quiet NaN without sign and payload.
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

/// Rounds two floats to T, to nearest even, and packs them, the first in the lower half. A NaN
/// becomes some NaN; only canonical_pairs makes it the quiet one without payload.
template <class T>
__device__ __forceinline__ unsigned narrow_pair(float first, float second) {
#if !defined(SWITCHBACK_CUDA_EMULATED) && __CUDA_ARCH__ >= 800
  unsigned pair;
  if constexpr (std::is_same_v<T, bfloat16>)
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  else
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
#else
  return narrow<T>(first).bits | (static_cast<unsigned>(narrow<T>(second).bits) << 16);
#endif
}

/// Replaces each NaN that narrow_pair stored in these words by the quiet NaN without payload.
template <class T>
__device__ __forceinline__ void canonical_pairs([[maybe_unused]] unsigned (&words)[4]) {
#if !defined(SWITCHBACK_CUDA_EMULATED) && __CUDA_ARCH__ >= 800
  // Whatever T is, f16 instructions look for NaN: the NaN that GPUs return, 0x7FFF, is a NaN of f16
  // too. A false alarm (a large bf16) does no harm.
  unsigned any;
  int none;
  asm("{.reg .b32 a, b; .reg .pred p, q;\n"
      "max.NaN.f16x2 a, %2, %3;\n"
      "max.NaN.f16x2 b, %4, %5;\n"
      "max.NaN.f16x2 %0, a, b;\n"
      "setp.num.f16x2 p|q, %0, %0;\n"
      "and.pred p, p, q;\n"
      "selp.s32 %1, 1, 0, p;}"
      : "=r"(any), "=r"(none)
      : "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3]));
  if (none) return;
  constexpr unsigned nan = std::is_same_v<T, bfloat16> ? 0x7FC0u : 0x7E00u;
#pragma unroll
  for (unsigned& word : words) {
    if ((word & 0xFFFFu) == 0x7FFFu) word = (word & 0xFFFF0000u) | nan;
    if (word >> 16 == 0x7FFFu) word = (word & 0xFFFFu) | nan << 16;
  }
#endif
}

/// The largest magnitudes of three pairs of 16-bit elements, for each half separately: a, b, and
/// `most`, which has no signs. A NaN is larger than any number; which NaN results depends on the
/// device.
template <class T>
__device__ __forceinline__ unsigned max_magnitudes(unsigned most, unsigned a, unsigned b) {
  constexpr unsigned magnitudes = 0x7FFF7FFFu;
#if defined(SWITCHBACK_CUDA_EMULATED) || __CUDA_ARCH__ < 800
  a &= magnitudes;
  b &= magnitudes;
  // Lower halves do not change which upper half is the largest.
  const unsigned high = max(max(most, a), b) & 0xFFFF0000u;
  return high | (max(max(most << 16, a << 16), b << 16) >> 16);
#elif __CUDA_ARCH__ >= 900
  // The bits of magnitudes, as integers, have the order of the magnitudes, with NaN last.
  return __vimax3_u16x2(most, a & magnitudes, b & magnitudes);
#else
  if constexpr (std::is_same_v<T, bfloat16>) {
    asm("max.NaN.bf16x2 %0, %0, %1;" : "+r"(most) : "r"(a & magnitudes));
    asm("max.NaN.bf16x2 %0, %0, %1;" : "+r"(most) : "r"(b & magnitudes));
  } else {
    asm("{.reg .b32 m; abs.f16x2 m, %1; max.NaN.f16x2 %0, %0, m;}" : "+r"(most) : "r"(a));
    asm("{.reg .b32 m; abs.f16x2 m, %1; max.NaN.f16x2 %0, %0, m;}" : "+r"(most) : "r"(b));
  }
  return most;
#endif
}

/// Clamps two bf16 without signs to the range from `low` to `high`, half by half; a NaN becomes
/// `low` or `high`.
__device__ __forceinline__ unsigned clamp_bf16_pair(unsigned pair, unsigned low, unsigned high) {
#if !defined(SWITCHBACK_CUDA_EMULATED) && __CUDA_ARCH__ >= 900
  return __vminu2(__vmaxu2(pair, low), high);
#elif !defined(SWITCHBACK_CUDA_EMULATED) && __CUDA_ARCH__ >= 800
  asm("{max.bf16x2 %0, %0, %1; min.bf16x2 %0, %0, %2;}" : "+r"(pair) : "r"(low), "r"(high));
  return pair;
#else
  const auto clamp = [](unsigned x, unsigned least, unsigned most) {
    return min(max(x, least), most);
  };
  return clamp(pair & 0xFFFFu, low & 0xFFFFu, high & 0xFFFFu) |
         clamp(pair >> 16, low >> 16, high >> 16) << 16;
#endif
}

/// Limits each of two f16 without signs to the f16 in the same half of `high`; NaN becomes the
/// limit.
__device__ __forceinline__ unsigned min_f16_pair(unsigned pair, unsigned high) {
#if !defined(SWITCHBACK_CUDA_EMULATED) && __CUDA_ARCH__ >= 900
  return __vminu2(pair, high);
#elif !defined(SWITCHBACK_CUDA_EMULATED) && __CUDA_ARCH__ >= 800
  asm("min.f16x2 %0, %0, %1;" : "+r"(pair) : "r"(high));
  return pair;
#else
  return min(pair & 0xFFFFu, high & 0xFFFFu) | min(pair >> 16, high >> 16) << 16;
#endif
}

/// The offset of a variable in shared memory, for load_shared_16. (On the emulated device offsets
/// count from the variable itself.)
__device__ __forceinline__ unsigned shared_place([[maybe_unused]] const void* variable) {
#if defined(SWITCHBACK_CUDA_EMULATED)
  return 0;
#else
  return static_cast<unsigned>(__cvta_generic_to_shared(variable));
#endif
}
/// Loads two bytes of `variable` in shared memory, at an offset from shared_place. Computing an
/// offset of 32 bits takes one instruction less than computing an address.
__device__ __forceinline__ unsigned load_shared_16([[maybe_unused]] const void* variable,
                                                   unsigned place) {
#if defined(SWITCHBACK_CUDA_EMULATED)
  std::uint16_t value;
  memcpy(&value, static_cast<const unsigned char*>(variable) + place, sizeof(value));
  return value;
#else
  std::uint16_t value;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(value) : "r"(place));
  return value;
#endif
}

/// base + 2 · n, where n is the lower or the upper 16-bit half of `pair`.
__device__ __forceinline__ unsigned place_of_half(unsigned base, unsigned pair, bool upper) {
#if defined(SWITCHBACK_CUDA_EMULATED)
  return base + (upper ? pair >> 16 : pair & 0xFFFFu) * 2;
#else
  return __dp2a_lo(pair, upper ? 0x0200u : 0x0002u, base);
#endif
}

/// Returns the number, but hides its origin from the compiler: values derived from the result are
/// computed after this call, and not before a loop, where they would occupy registers.
__device__ __forceinline__ unsigned computed_here(unsigned number) {
#if !defined(SWITCHBACK_CUDA_EMULATED)
  asm volatile("" : "+r"(number));
#endif
  return number;
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

#if defined(SWITCHBACK_CUDA_EMULATED)
/// On the emulated device: the values that the lanes of a warp passed to this function, in the
/// order of the lanes. Read them before the next __syncwarp.
template <class T>
const T* shown_by_warp(const T& mine) {
  // A static array is enough, because the emulated device runs blocks one at a time.
  static T board[1024];
  const auto thread = static_cast<int>(
      threadIdx.x + blockDim.x * (threadIdx.y + std::size_t{blockDim.y} * threadIdx.z));
  board[thread] = mine;
  __syncwarp();
  return board + thread / 32 * 32;
}
#endif

/// A warp loads four matrices of 8 rows of 16 bytes from shared memory. Word i of lane 4g + t
/// becomes bytes 4t … 4t + 3 of row g of matrix i. Lane 8i + g passes the offset of row g of matrix
/// i (in `variable`, see shared_place; a multiple of 16).
__device__ __forceinline__ void load_matrices(int (&words)[4],
                                              [[maybe_unused]] const void* variable,
                                              unsigned place) {
#if defined(SWITCHBACK_CUDA_EMULATED)
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const unsigned* places = shown_by_warp(place);
  for (int i = 0; i < 4; ++i) {
    const auto* row = static_cast<const unsigned char*>(variable) + places[8 * i + lane / 4];
    words[i] = reinterpret_cast<const int4*>(row)->x;  // this load faults if the row is misaligned
    memcpy(&words[i], row + lane % 4 * 4, sizeof(int));
  }
  __syncwarp();
#else
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(place)
               : "memory");
#endif
}

/// d[16,8] = c[16,8] + a[16,32] · b[8,32]ᵀ of signed bytes, modulo 2^32, by a warp. The words of
/// lane 4g + t hold:
///  - of a: bytes 4t … 4t + 3 of row g, then of row g + 8, then both again 16 columns further
///  - of b: bytes 4t … 4t + 3 of row g, then those 16 columns further
///  - of c and d: columns 2t and 2t + 1 of row g, then of row g + 8
__device__ __forceinline__ void multiply_add_16x8x32(int (&d)[4], const int (&a)[4],
                                                     const int (&b)[2], const int (&c)[4]) {
#if defined(SWITCHBACK_CUDA_EMULATED)
  struct Mine {
    int a[4], b[2];
  };
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const Mine* warp = shown_by_warp(Mine{{a[0], a[1], a[2], a[3]}, {b[0], b[1]}});
  int sums[4] = {c[0], c[1], c[2], c[3]};
  for (int t = 0; t < 4; ++t) {
    const Mine& of_a = warp[lane / 4 * 4 + t];
    for (int side = 0; side < 2; ++side) {
      const Mine& of_b = warp[(lane % 4 * 2 + side) * 4 + t];
      sums[side] = dot4(of_a.a[0], of_b.b[0], sums[side]);
      sums[side] = dot4(of_a.a[2], of_b.b[1], sums[side]);
      sums[2 + side] = dot4(of_a.a[1], of_b.b[0], sums[2 + side]);
      sums[2 + side] = dot4(of_a.a[3], of_b.b[1], sums[2 + side]);
    }
  }
  for (int i = 0; i < 4; ++i)
    d[i] = sums[i];
  __syncwarp();
#elif __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%10, %11, %12, %13};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]),
        "r"(c[2]), "r"(c[3]));
#else
  // Compute capability 7.5 multiplies only 8 rows by 16 bytes at once. The lanes hold the same
  // parts of such a product.
  int sums[4] = {c[0], c[1], c[2], c[3]};
#pragma unroll
  for (int half = 0; half < 2; ++half)
#pragma unroll
    for (int rows = 0; rows < 2; ++rows)
      asm volatile(  // multiplies 16 bytes of 8 rows
          "mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};"
          : "+r"(sums[2 * rows]), "+r"(sums[2 * rows + 1])
          : "r"(a[2 * half + rows]), "r"(b[half]));
#pragma unroll
  for (int i = 0; i < 4; ++i)
    d[i] = sums[i];
#endif
}

/// Copies of 16 bytes from global to shared memory, in groups, that do not pass through registers
/// (on devices from 8.0 on). A thread that has waited sees its own copies. The emulated device
/// copies only in wait(), so that reading too early is wrong there too. It holds at most `most`
/// pending copies.
template <int most>
class AsyncCopies {
 public:
  /// Adds a copy of 16 bytes to the group. If `there` is false, stores zeros and does not read
  /// `from`, which may then be any aligned address.
  __device__ __forceinline__ void add(uint4* to, const uint4* from, bool there) {
#if defined(SWITCHBACK_CUDA_EMULATED)
    copies_[added_++ % most] = {to, there ? from : nullptr, groups_};
#elif __CUDA_ARCH__ >= 800
    const auto place = static_cast<unsigned>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(place),
                 "l"(__cvta_generic_to_global(from)), "r"(there ? 16 : 0)
                 : "memory");
#else
    *to = there ? *from : make_uint4(0, 0, 0, 0);
#endif
  }
  __device__ __forceinline__ void end_group() {
#if defined(SWITCHBACK_CUDA_EMULATED)
    ++groups_;
#elif __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
  }
  /// Waits for all groups of copies that were ended, except the last `later` of them.
  __device__ __forceinline__ void wait([[maybe_unused]] int later) {
#if defined(SWITCHBACK_CUDA_EMULATED)
    for (; done_ < added_ && copies_[done_ % most].group < groups_ - later; ++done_) {
      const Copy& copy = copies_[done_ % most];
      *copy.to = copy.from == nullptr ? make_uint4(0, 0, 0, 0) : *copy.from;
    }
#elif __CUDA_ARCH__ >= 800
    // The number of groups is an immediate of the instruction, so there are only the cases up to 3.
    // For larger numbers this waits for more groups than needed.
    if (later >= 3)
      asm volatile("cp.async.wait_group 3;" ::: "memory");
    else if (later == 2)
      asm volatile("cp.async.wait_group 2;" ::: "memory");
    else if (later == 1)
      asm volatile("cp.async.wait_group 1;" ::: "memory");
    else
      asm volatile("cp.async.wait_group 0;" ::: "memory");
#endif
  }

 private:
#if defined(SWITCHBACK_CUDA_EMULATED)
  struct Copy {
    uint4* to;
    const uint4* from;
    int group;
  };
  Copy copies_[most];
  int added_ = 0, done_ = 0, groups_ = 0;
#endif
};

/// Loads an element at any address: in one access if the address is a multiple of its size, else
/// byte by byte.
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

}  // namespace switchback::core::cuda
