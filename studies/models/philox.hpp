// SPDX-License-Identifier: Apache-2.0
// Models: the order in which dropout takes random bits for its elements from Philox4x32-10.
#pragma once

#include <cstdint>

#include "core/philox.hpp"

namespace switchback::models::philox {

using core::philox::bits;
using core::philox::Words;

// Dropout numbers its elements in blocks of 64. A block uses 16 counters, each of which gives four
// words: word w of counter c belongs to element 16·w + c. So a vector of counters gives the words
// of a vector of adjacent elements, for any vector length.
inline constexpr std::int64_t block_elements = 64;
inline constexpr std::int64_t block_counters = 16;

/// The 32 random bits of the element number `index` of a stream.
inline std::uint32_t element_bits(std::uint64_t key, std::uint64_t stream,
                                  std::int64_t index) noexcept {
  const auto block = static_cast<std::uint64_t>(index / block_elements);
  const auto in_block = static_cast<std::uint64_t>(index % block_elements);
  const std::uint64_t counter = block * block_counters + in_block % block_counters;
  return bits(key, {static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32),
                    static_cast<std::uint32_t>(stream),
                    static_cast<std::uint32_t>(stream >> 32)})[in_block / block_counters];
}

}  // namespace switchback::models::philox
