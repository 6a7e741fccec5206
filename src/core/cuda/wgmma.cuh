// SPDX-License-Identifier: Apache-2.0
// CUDA core: warpgroup products of operands in shared memory (wgmma, code for 9.0a only), with C++
// code for the emulated device.
#pragma once

#include <cstdint>
#include <cstring>

#include "core/cuda/api.hpp"

namespace switchback::core::cuda {

/// The descriptor of an operand of a warpgroup's product: rows of 128 bytes, of which a product
/// reads 32, in consecutive groups of eight rows. Chunks of 16 bytes are permuted by the number of
/// their row (the 128-byte swizzle, in which copy_box stores them). `place` (see shared_place) is
/// the offset of the first byte that the product reads in the first row. The offset of the first
/// row itself is a multiple of 1024.
__device__ __forceinline__ std::uint64_t matrix_descriptor_128(unsigned place) {
  constexpr std::uint64_t swizzle_128 = 1;
  constexpr std::uint64_t unused_leading_offset = 1;
  constexpr std::uint64_t bytes_between_groups = 8 * 128;
  return static_cast<std::uint64_t>((place & 0x3FFFFu) >> 4) | unused_leading_offset << 16 |
         (bytes_between_groups >> 4) << 32 | swizzle_128 << 62;
}
/// Moves a descriptor along its rows by `products` products, each of which reads 32 bytes a row.
__device__ __forceinline__ std::uint64_t further(std::uint64_t descriptor, unsigned products) {
  return descriptor + products * (32 / 16);
}

#if defined(SWITCHBACK_CUDA_EMULATED)
/// The offset of byte `byte` of row `row` of the K-major operand that a descriptor describes, as
/// the PTX ISA defines its four layouts. Eight rows of `width` bytes form an atom. Atoms of
/// different rows are the stride offset apart. Only the layout without swizzle has a distance
/// between the 16-byte chunks of a row, the leading offset.
inline unsigned place_by_descriptor(std::uint64_t descriptor, unsigned row, unsigned byte) {
  const auto field = [&](unsigned first, unsigned bits) {
    return static_cast<unsigned>(descriptor >> first) & ((1u << bits) - 1u);
  };
  const unsigned start = field(0, 14) * 16;
  const unsigned leading = field(16, 14) * 16;
  const unsigned stride = field(32, 14) * 16;
  const unsigned mode = field(62, 2);
  if (mode == 0) return start + row / 8 * stride + row % 8 * 16 + byte / 16 * leading + byte % 16;
  const unsigned width = 256u >> mode;  // 128, 64, 32
  const unsigned place = start + row / 8 * stride + row % 8 * width + byte;
  // The swizzle XORs the number of a 16-byte chunk with the address bits from bit 7 on: three bits
  // if rows have 128 bytes, two if 64, one if 32.
  const unsigned changed = width / 16 - 1;
  return place ^ ((place >> 7 & changed) << 4);
}
#endif

/// d[64,128] (+)= a[64,32] · b[128,32]ᵀ of signed bytes, modulo 2^32, by a warpgroup: 128 threads
/// from a multiple of 128 on. Lane 4g + t of its warp w holds columns 8j + 2t and 8j + 2t + 1 of
/// row 16w + g, then of row 16w + g + 8, for each j. The products are asynchronous: between
/// multiply and the wait for its group, d must not be read or written, and the operands must not be
/// written. The emulated device multiplies in the wait, so that an access too early or too late
/// gives a wrong result there too.
class WarpgroupProducts {
 public:
  using Sums = int[16][4];

  /// Call this before the first product of a group. Pass `first` if no products of d are pending:
  /// then the products are ordered after the previous use of d's registers.
  template <bool first>
  __device__ __forceinline__ void begin_group(Sums& d) {
    if constexpr (first) hold(d);
#if defined(SWITCHBACK_CUDA_WGMMA)
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
  }
  /// Adds a product to the group. The offsets in descriptors a and b are relative to `variable`
  /// (see shared_place).
  __device__ __forceinline__ void multiply(Sums& d, [[maybe_unused]] const void* variable,
                                           std::uint64_t a, std::uint64_t b, bool adds) {
#if defined(SWITCHBACK_CUDA_EMULATED)
    products_[added_++ % most] = {&d,     static_cast<const unsigned char*>(variable), a, b, adds,
                                  groups_};
#elif defined(SWITCHBACK_CUDA_WGMMA)
#define SWITCHBACK_SUMS(j) "+r"(d[j][0]), "+r"(d[j][1]), "+r"(d[j][2]), "+r"(d[j][3])
    asm volatile(
        "{.reg .pred p; setp.ne.b32 p, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k32.s32.s8.s8 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "%64, %65, p;}"
        : SWITCHBACK_SUMS(0), SWITCHBACK_SUMS(1), SWITCHBACK_SUMS(2), SWITCHBACK_SUMS(3),
          SWITCHBACK_SUMS(4), SWITCHBACK_SUMS(5), SWITCHBACK_SUMS(6), SWITCHBACK_SUMS(7),
          SWITCHBACK_SUMS(8), SWITCHBACK_SUMS(9), SWITCHBACK_SUMS(10), SWITCHBACK_SUMS(11),
          SWITCHBACK_SUMS(12), SWITCHBACK_SUMS(13), SWITCHBACK_SUMS(14), SWITCHBACK_SUMS(15)
        : "l"(a), "l"(b), "r"(static_cast<int>(adds)));
#undef SWITCHBACK_SUMS
#endif
  }
  __device__ __forceinline__ void end_group() {
#if defined(SWITCHBACK_CUDA_EMULATED)
    ++groups_;
#elif defined(SWITCHBACK_CUDA_WGMMA)
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
  }
  /// Waits for all groups of products that were ended, except the last `later` of them.
  template <int later>
  __device__ __forceinline__ void wait() {
#if defined(SWITCHBACK_CUDA_EMULATED)
    for (; done_ < added_ && products_[done_ % most].group < groups_ - later; ++done_)
      compute(products_[done_ % most]);
    // A warpgroup multiplies as a whole: when one thread knows that a product is done, it is done
    // for all threads.
    ::switchback_cuda_emu::meet_warpgroup();
#elif defined(SWITCHBACK_CUDA_WGMMA)
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(later) : "memory");
#endif
  }
  /// Like wait(), for groups that include all products of d; afterwards d can be read.
  template <int later>
  __device__ __forceinline__ void wait(Sums& d) {
    wait<later>();
    hold(d);
  }

 private:
  // Keeps the compiler from moving an access to d across this call.
  static __device__ __forceinline__ void hold([[maybe_unused]] Sums& d) {
#if defined(SWITCHBACK_CUDA_WGMMA)
#pragma unroll
    for (int j = 0; j < 16; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        asm volatile("" : "+r"(d[j][e])::"memory");
#endif
  }

#if defined(SWITCHBACK_CUDA_EMULATED)
  static constexpr int most = 32;
  struct Product {
    Sums* d;
    const unsigned char* variable;
    std::uint64_t a, b;
    bool adds;
    int group;
  };
  static void compute(const Product& p) {
    using Row = std::int8_t[32];
    const auto load = [&](Row& to, std::uint64_t descriptor, unsigned row) {
      constexpr unsigned chunk = 16;  // its bytes are consecutive in every layout
      for (unsigned k = 0; k < sizeof to; k += chunk)
        std::memcpy(to + k, p.variable + place_by_descriptor(descriptor, row, k), chunk);
    };
    const unsigned lane = threadIdx.x % 32;
    const unsigned first = threadIdx.x % 128 / 32 * 16 + lane / 4;
    Row a[2], b;
    load(a[0], p.a, first);
    load(a[1], p.a, first + 8);
    for (unsigned j = 0; j < 16; ++j)
      for (unsigned c = 0; c < 2; ++c) {
        load(b, p.b, 8 * j + lane % 4 * 2 + c);
        for (unsigned r = 0; r < 2; ++r) {
          int& to = (*p.d)[j][2 * r + c];
          auto sum = p.adds ? static_cast<unsigned>(to) : 0u;
          for (unsigned i = 0; i < sizeof b; ++i)
            sum += static_cast<unsigned>(a[r][i] * b[i]);
          to = static_cast<int>(sum);
        }
      }
  }
  Product products_[most];
  int added_ = 0, done_ = 0, groups_ = 0;
#endif
};

}  // namespace switchback::core::cuda
