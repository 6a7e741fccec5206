// SPDX-License-Identifier: Apache-2.0
#include "autotune/store/crc32.hpp"

#include <array>
#include <cstddef>

namespace switchback::autotune {

namespace {

constexpr std::uint32_t polynomial = 0xEDB88320u;  // reflected: the first bit is the lowest
constexpr std::size_t slices = 8;

// tables[k][b]: what the byte b does to the remainder when k bytes follow it. Eight at a time keep
// the processor busy where one at a time would wait for each other, and a cache is read at
// start-up.
using Tables = std::array<std::array<std::uint32_t, 256>, slices>;
constexpr Tables make_tables() {
  Tables tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit)
      rest = (rest >> 1) ^ ((rest & 1u) != 0 ? polynomial : 0u);
    tables[0][byte] = rest;
  }
  for (std::size_t k = 1; k < slices; ++k)
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = tables[k - 1][byte];
      tables[k][byte] = (before >> 8) ^ tables[0][before & 255u];
    }
  return tables;
}
constexpr Tables tables = make_tables();

std::uint32_t load_little_endian(const unsigned char* bytes) noexcept {
  return std::uint32_t{bytes[0]} | std::uint32_t{bytes[1]} << 8 | std::uint32_t{bytes[2]} << 16 |
         std::uint32_t{bytes[3]} << 24;
}

}  // namespace

std::uint32_t crc32(std::string_view bytes) noexcept {
  const auto* at = reinterpret_cast<const unsigned char*>(bytes.data());
  std::size_t left = bytes.size();
  std::uint32_t rest = ~0u;
  for (; left >= slices; left -= slices, at += slices) {
    const std::uint32_t low = load_little_endian(at) ^ rest;
    const std::uint32_t high = load_little_endian(at + 4);
    rest = tables[7][low & 255u] ^ tables[6][(low >> 8) & 255u] ^ tables[5][(low >> 16) & 255u] ^
           tables[4][low >> 24] ^ tables[3][high & 255u] ^ tables[2][(high >> 8) & 255u] ^
           tables[1][(high >> 16) & 255u] ^ tables[0][high >> 24];
  }
  for (; left > 0; --left, ++at)
    rest = (rest >> 8) ^ tables[0][(rest ^ *at) & 255u];
  return ~rest;
}

}  // namespace switchback::autotune
