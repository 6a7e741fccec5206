// SPDX-License-Identifier: Apache-2.0
// Engine zone: loads a group of 4 codes for the kernels with vpdpbusd. In an unnamed namespace,
// like everything that is compiled for an instruction set.
#pragma once

#include <stdint.h>
#include <string.h>

namespace switchback::gemm_int8 {
namespace {

inline __attribute__((always_inline)) int32_t load4(const int8_t* p) {
  int32_t value;
  memcpy(&value, p, 4);
  return value;
}

// Loads 1 to 3 codes and fills up with zeros. Never reads past the row.
inline __attribute__((always_inline)) int32_t load_rest(const int8_t* p, int64_t count) {
  uint32_t value = 0;
  for (int64_t i = 0; i < count; ++i)
    value |= static_cast<uint32_t>(static_cast<uint8_t>(p[i])) << (8 * i);
  return static_cast<int32_t>(value);
}

}  // namespace
}  // namespace switchback::gemm_int8
