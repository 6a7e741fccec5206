// SPDX-License-Identifier: Apache-2.0
// Test support: replaces CUTLASS's header of this name: ldmatrix in C++.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "cutlass/array.h"
#include "cutlass/layout/matrix.h"

namespace cutlass::arch {

inline unsigned cutlass_get_smem_pointer(const void*) {
  return 0;  // used only by asynchronous copies, which need a GPU
}

/// Emulates ldmatrix on matrices of 8 rows of 16 bytes. Lane 8i + r has the address of row r of
/// matrix i. Lane 4r + t gets bytes 4t … 4t + 3 of row r of each matrix.
template <class Layout, int Count>
void ldsm(Array<unsigned, Count>& to, const void* row) {
  static_assert(std::is_same_v<Layout, layout::RowMajor>);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int i = 0; i < Count; ++i) {
    const auto from =
        __shfl_sync(0xFFFFFFFFu, reinterpret_cast<std::uintptr_t>(row), 8 * i + lane / 4);
    std::memcpy(&to[i], reinterpret_cast<const char*>(from) + lane % 4 * 4, sizeof to[i]);
  }
}

}  // namespace cutlass::arch
