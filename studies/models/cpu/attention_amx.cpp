// SPDX-License-Identifier: Apache-2.0
// Models, engine zone: causal attention of bf16 with AMX tiles.
//
// The instruction tdpbf16ps multiplies 16 rows of A by 16 columns of B over a depth of 32 elements,
// and adds to f32. It treats subnormal operands and sums as zero, and rounds to nearest.
#include "studies/models/cpu/attention_bf16_task.hpp"

#if defined(SWITCHBACK_HAVE_AMX_BF16)
#include <immintrin.h>

#include "core/cpu/amx.hpp"
#include "studies/models/cpu/attention_bf16_kernels.hpp"

namespace switchback::models::bf16 {

namespace {

struct Tiles {
  static void begin() {
    core::TileConfig config;
    for (int i = 0; i < 8; ++i) {
      config.row_bytes[i] = line_bytes;
      config.rows[i] = lanes;
    }
    core::finish_stores();
    _tile_loadconfig(&config);
  }
  static void end() { _tile_release(); }

  static SWITCHBACK_INLINE void multiply(const Factor& left, const Factor& right, int64_t steps,
                                         float* c, bool add, Seen) {
    core::finish_stores();
    if (add) {
      _tile_loadd(0, c, line_bytes);
      _tile_loadd(1, c + register_floats, line_bytes);
      _tile_loadd(2, c + 2 * register_floats, line_bytes);
      _tile_loadd(3, c + 3 * register_floats, line_bytes);
    } else {
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
    }
    const char* a = static_cast<const char*>(left.data);
    const char* b = static_cast<const char*>(right.data);
    for (int64_t i = 0; i < steps; ++i, a += left.step, b += right.step) {
      _tile_loadd(4, a, line_bytes);
      _tile_loadd(6, b, line_bytes);
      _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(5, a + left.half, line_bytes);
      _tile_dpbf16ps(2, 5, 6);
      _tile_loadd(7, b + right.half, line_bytes);
      _tile_dpbf16ps(1, 4, 7);
      _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, c, line_bytes);
    _tile_stored(1, c + register_floats, line_bytes);
    _tile_stored(2, c + 2 * register_floats, line_bytes);
    _tile_stored(3, c + 3 * register_floats, line_bytes);
  }
};

}  // namespace

const Kernels* kernels_of_amx() {
  return &kernels_with<Tiles>;
}

}  // namespace switchback::models::bf16

#else

namespace switchback::models::bf16 {

const Kernels* kernels_of_amx() {
  return nullptr;
}

}  // namespace switchback::models::bf16

#endif
