// SPDX-License-Identifier: Apache-2.0
// Engine zone: where the scratch of one worker ends and that of the next one begins.
#pragma once

#include <cstdint>

namespace switchback::quant::cpu {

/// Bytes between the scratch of two workers, a page. A worker that writes to the end of its scratch
/// has the hardware fetch the lines behind it, up to the end of the page; if those are the
/// beginning of another worker's, that one waits for them, row after row. Zen 4, two threads, rows
/// of 4096 that are rotated in groups of 256: 1.1 to 1.3 times as fast, where the page does not end
/// there.
inline constexpr std::int64_t scratch_gap_bytes = 4096;

}  // namespace switchback::quant::cpu
