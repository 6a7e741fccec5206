// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: BlockGroup, one group of rows in a grouped blockwise product. CUDA kernels read it
// too.
#pragma once

#include <cstdint>

namespace switchback::blockwise {

/// The blocks of int8 codes that hold one group of rows: they begin with block first_block and hold
/// `rows` rows. Each group begins a new block.
struct BlockGroup {
  std::int32_t first_block = 0;
  std::int32_t rows = 0;
};

}  // namespace switchback::blockwise
