// SPDX-License-Identifier: Apache-2.0
// Core: code that the AMX kernel files share. Each file compiles it for its own instruction set, so
// it is in an unnamed namespace.
#pragma once

#include <stdint.h>

namespace switchback::core {

namespace {

// The memory operand of the instruction ldtilecfg, which configures AMX tiles.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

// Keeps the compiler from moving stores after the tile loads that read them: it does not know what
// memory tile loads read. (It knows what memory tile stores write.)
inline __attribute__((always_inline)) void finish_stores() {
  asm volatile("" ::: "memory");
}

}  // namespace

}  // namespace switchback::core
