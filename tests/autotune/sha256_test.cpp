// SPDX-License-Identifier: Apache-2.0
#include "autotune/store/sha256.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "autotune/store/crc32.hpp"

namespace switchback::autotune {
namespace {

std::string hex_of(std::string_view bytes) {
  return to_hex(sha256(bytes));
}

TEST(Sha256, HasTheValuesOfTheStandard) {
  EXPECT_EQ(hex_of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hex_of("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmn"
                   "hijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu"),
            "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
  EXPECT_EQ(hex_of(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

// Where the length no longer fits behind the message, and where a block is full.
TEST(Sha256, PadsEveryLength) {
  EXPECT_EQ(hex_of(std::string(55, 'a')),
            "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318");
  EXPECT_EQ(hex_of(std::string(56, 'a')),
            "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a");
  EXPECT_EQ(hex_of(std::string(64, 'a')),
            "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb");
  std::set<std::string> all;
  for (std::size_t size = 0; size <= 200; ++size)
    all.insert(hex_of(std::string(size, '\0')));
  EXPECT_EQ(all.size(), 201u);
}

TEST(Sha256, HexadecimalGoesThereAndBack) {
  const Digest digest = sha256("abc");
  Digest back{};
  EXPECT_TRUE(from_hex(to_hex(digest), back));
  EXPECT_EQ(back, digest);
  const std::string hex = to_hex(digest);
  EXPECT_FALSE(from_hex("", back));
  EXPECT_FALSE(from_hex(hex.substr(1), back));
  EXPECT_FALSE(from_hex(hex + "0", back));
  for (std::size_t i = 0; i < hex.size(); ++i)
    for (const char bad : {'A', 'g', '/', ':', '`', ' ', '\0', '\xff'}) {
      std::string broken = hex;
      broken[i] = bad;
      EXPECT_FALSE(from_hex(broken, back)) << i << " " << bad;
    }
}

TEST(Crc32, HasTheCheckValue) {
  EXPECT_EQ(crc32("123456789"), 0xcbf43926u);
  EXPECT_EQ(crc32(""), 0u);
  EXPECT_EQ(crc32("The quick brown fox jumps over the lazy dog"), 0x414fa339u);
}

// The definition, bit by bit: the sliced one takes eight bytes at a time, and the rest one by one.
std::uint32_t crc32_by_bits(std::string_view bytes) {
  std::uint32_t rest = ~0u;
  for (const char c : bytes) {
    rest ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit)
      rest = (rest >> 1) ^ ((rest & 1u) != 0 ? 0xEDB88320u : 0u);
  }
  return ~rest;
}

TEST(Crc32, IsThatOfTheDefinitionAtEveryLengthAndAlignment) {
  std::string bytes;
  std::uint32_t state = 1;
  for (int i = 0; i < 100; ++i) {
    state = state * 1664525u + 1013904223u;
    bytes += static_cast<char>(state >> 24);
  }
  const std::string_view all = bytes;
  for (std::size_t begin = 0; begin < 16; ++begin)
    for (std::size_t size = 0; begin + size <= all.size(); ++size) {
      const std::string_view part = all.substr(begin, size);
      ASSERT_EQ(crc32(part), crc32_by_bits(part)) << begin << " " << size;
    }
}

}  // namespace
}  // namespace switchback::autotune
