// SPDX-License-Identifier: Apache-2.0
// Test support, emulated CUDA: dim3 and the short vectors, with the sizes and alignments of CUDA's.
#pragma once

#include <cstddef>

namespace switchback_cuda_emu::names {

#define SWITCHBACK_CUDA_EMU_VECTORS(base, name, align2, align4)      \
  struct name##1 {                                                   \
    base x;                                                          \
  };                                                                 \
  struct alignas(align2) name##2 {                                   \
    base x, y;                                                       \
  };                                                                 \
  struct name##3 {                                                   \
    base x, y, z;                                                    \
  };                                                                 \
  struct alignas(align4) name##4 {                                   \
    base x, y, z, w;                                                 \
  };                                                                 \
  constexpr name##1 make_##name##1(base x) {                         \
    return {x};                                                      \
  }                                                                  \
  constexpr name##2 make_##name##2(base x, base y) {                 \
    return {x, y};                                                   \
  }                                                                  \
  constexpr name##3 make_##name##3(base x, base y, base z) {         \
    return {x, y, z};                                                \
  }                                                                  \
  constexpr name##4 make_##name##4(base x, base y, base z, base w) { \
    return {x, y, z, w};                                             \
  }

SWITCHBACK_CUDA_EMU_VECTORS(signed char, char, 2, 4)
SWITCHBACK_CUDA_EMU_VECTORS(unsigned char, uchar, 2, 4)
SWITCHBACK_CUDA_EMU_VECTORS(short, short, 4, 8)
SWITCHBACK_CUDA_EMU_VECTORS(unsigned short, ushort, 4, 8)
SWITCHBACK_CUDA_EMU_VECTORS(int, int, 8, 16)
SWITCHBACK_CUDA_EMU_VECTORS(unsigned int, uint, 8, 16)
SWITCHBACK_CUDA_EMU_VECTORS(long long, longlong, 16, 16)
SWITCHBACK_CUDA_EMU_VECTORS(unsigned long long, ulonglong, 16, 16)
SWITCHBACK_CUDA_EMU_VECTORS(float, float, 8, 16)
SWITCHBACK_CUDA_EMU_VECTORS(double, double, 16, 16)
#undef SWITCHBACK_CUDA_EMU_VECTORS

struct dim3 {
  unsigned int x, y, z;
  constexpr dim3(unsigned int vx = 1, unsigned int vy = 1, unsigned int vz = 1)
      : x(vx), y(vy), z(vz) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return uint3{x, y, z}; }
};

}  // namespace switchback_cuda_emu::names

namespace switchback_cuda_emu {
using namespace names;
}  // namespace switchback_cuda_emu
