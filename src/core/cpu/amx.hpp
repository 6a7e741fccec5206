// SPDX-License-Identifier: Apache-2.0
// Core: what kernel files of AMX share. It is compiled for their instruction set: hence the unnamed
// namespace.
#pragma once

#include <stdint.h>

namespace switchback::core {

namespace {

// What ldtilecfg reads.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

// The compiler does not know what memory tile loads read. (Of their stores it does.)
inline __attribute__((always_inline)) void finish_stores() {
  asm volatile("" ::: "memory");
}

}  // namespace

}  // namespace switchback::core
