// SPDX-License-Identifier: Apache-2.0
// Tuner: SHA-256 (FIPS 180-4), which names the problems and machines of a cache.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace switchback::autotune {

using Digest = std::array<std::uint8_t, 32>;

Digest sha256(std::string_view bytes) noexcept;

/// 64 lowercase hexadecimal digits.
std::string to_hex(const Digest& digest);
/// The inverse. Returns false, with an unspecified digest, unless there are 64 lowercase digits.
bool from_hex(std::string_view hex, Digest& digest) noexcept;

}  // namespace switchback::autotune
