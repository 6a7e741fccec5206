// SPDX-License-Identifier: Apache-2.0
// Tuner: the CRC-32 of IEEE 802.3 (as zlib's), which shows whether a line of a cache is whole.
#pragma once

#include <cstdint>
#include <string_view>

namespace switchback::autotune {

/// crc32("123456789") is 0xcbf43926.
std::uint32_t crc32(std::string_view bytes) noexcept;

}  // namespace switchback::autotune
