// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: the groups of a blockwise product. Kernels read them too.
#pragma once

#include <cstdint>

namespace switchback::blockwise {

/// The blocks of one group in codes of blocks: they begin with block first_block, and hold `rows`
/// rows of the group. Each group begins a new block.
struct BlockGroup {
  std::int32_t first_block = 0;
  std::int32_t rows = 0;
};

}  // namespace switchback::blockwise
