// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: the hash that fingerprint() returns: its key, its arithmetic, and how a matrix is
// divided.
//
// The elements of x in row-major order, without the gaps between rows, are a string of bytes. It is
// divided into blocks of block_bytes; the last block is padded with zeros to a multiple of
// chunk_bytes.
//
// 1. Each block is reduced by NH (Black, Halevi, Krawczyk, Krovetz, Rogaway: UMAC, CRYPTO '99).
//    Its 32-bit words are m[i], and the words of a uniformly random key are k[i]:
//      sum[t] = Σ_i (m[2i] + k[2i + 16t]) · (m[2i+1] + k[2i+1 + 16t])  mod 2^64,  t = 0, 1, 2,
//    additions mod 2^32. For two different blocks, take the last pair i in which they differ. In
//    sum t this pair is added to two words of the key. If the rest of the key is given, sum t is
//    equal for both blocks for at most one in 2^32 values of one of these words (the paper's
//    lemma). These words have a higher index than any word that decides whether the sums before t
//    are equal, so the bounds multiply: all three sums are equal with a probability of at most
//    2^-96.
// 2. The 192 bits of the sums are two numbers c below 2^96. The coefficients of a polynomial over
//    the field of p = 2^127-1 are a leading 1, then rows, cols and dtype, then the numbers c of all
//    blocks. The fingerprint is its value at a uniformly random point. Two different polynomials of
//    degree d have the same value at no more than d of the p points (a probability of at most
//    (d + 2) / 2^127, including the way in which the point is drawn).
//
// Matrices of different shape or dtype have different polynomials. Different matrices of one shape
// differ in some block. Their polynomials are the same with a probability of at most 2^-96. If they
// are not, they have the same value with d · 2^-127, d = 3 + 2 · blocks: less than 2^-97 up to 2^40
// bytes. Matrices must not be chosen by anyone who knows the key, which lives as long as the
// process.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/context_state.hpp"
#include "switchback/fingerprint.hpp"

namespace switchback::quant::hash {

inline constexpr std::int64_t block_bytes = 8192;
inline constexpr std::int64_t chunk_bytes = 64;  ///< also the distance between the keys of two sums
inline constexpr int sums = 3;
inline constexpr std::int64_t task_blocks = 16;

__extension__ using Field = unsigned __int128;  ///< below prime, unless something else is said
inline constexpr Field prime = (Field(1) << 127) - 1;

/// x mod prime.
constexpr Field reduced(Field x) noexcept {
  const Field folded = (x & prime) + (x >> 127);
  return folded >= prime ? folded - prime : folded;
}

constexpr Field add(Field a, Field b) noexcept {
  return reduced(a + b);
}

constexpr Field multiply(Field a, Field b) noexcept {
  constexpr auto low = [](Field x) { return static_cast<std::uint64_t>(x); };
  constexpr auto high = [](Field x) { return static_cast<std::uint64_t>(x >> 64); };
  const Field ll = Field(low(a)) * low(b);
  const Field lh = Field(low(a)) * high(b);
  const Field hl = Field(high(a)) * low(b);
  const Field middle = Field(high(ll)) + low(lh) + low(hl);
  const Field lower = middle << 64 | low(ll);
  const Field upper = Field(high(a)) * high(b) + high(lh) + high(hl) + high(middle);
  // Modulo the prime, 2^128 is 2 and 2^127 is 1. upper is below 2^126.
  return reduced((upper << 1) + (lower >> 127) + (lower & prime));
}

constexpr Field power(Field base, std::int64_t exponent) noexcept {
  Field result = 1;
  for (; exponent > 0; exponent >>= 1, base = multiply(base, base))
    if ((exponent & 1) != 0) result = multiply(result, base);
  return result;
}

struct Key {
  alignas(64) std::uint32_t words[(block_bytes + (sums - 1) * chunk_bytes) / 4];
  Field point;
  Field point_of_task;  ///< point to the power of the number of coefficients of a whole task
};

/// The key of this process, drawn at the first call.
const Key& key();

/// Extends the value of a polynomial at `point` by the coefficients of one more block.
constexpr Field with_block(const Key& k, Field value, const std::uint64_t (&sum)[sums]) noexcept {
  const Field first = Field(sum[1] & 0xFFFFFFFFu) << 64 | sum[0];
  const Field second = Field(sum[1] >> 32) << 64 | sum[2];
  value = add(multiply(value, k.point), first);
  return add(multiply(value, k.point), second);
}

/// The value of a polynomial whose coefficients are a leading 1 and the shape and dtype of x alone.
constexpr Field of_shape(const Key& k, ConstAnyMatrix x) noexcept {
  Field value = 1;
  for (const std::int64_t c : {x.rows, x.cols, static_cast<std::int64_t>(x.dtype)})
    value = add(multiply(value, k.point), static_cast<Field>(c));
  return value;
}

/// The bytes of a matrix's elements, in order.
struct Bytes {
  const unsigned char* data;
  std::int64_t row;     ///< bytes of a row
  std::int64_t stride;  ///< bytes from row to row
  std::int64_t size;

  explicit Bytes(ConstAnyMatrix x) noexcept
      : data(static_cast<const unsigned char*>(x.data)),
        row(x.cols * static_cast<std::int64_t>(dtype_size_bytes(x.dtype))),
        stride(x.stride * static_cast<std::int64_t>(dtype_size_bytes(x.dtype))),
        size(x.rows * row) {
    if (stride == row || x.rows == 1) row = stride = size;  // one long row
  }

  [[nodiscard]] std::int64_t blocks() const noexcept {
    return (size + block_bytes - 1) / block_bytes;
  }
  [[nodiscard]] std::int64_t size_of_block(std::int64_t block) const noexcept {
    return std::min(block_bytes, size - block * block_bytes);
  }
  [[nodiscard]] std::int64_t chunks_of_block(std::int64_t block) const noexcept {
    return (size_of_block(block) + chunk_bytes - 1) / chunk_bytes;
  }
  /// Returns the address of a block's bytes: in place if they can be read there, otherwise copied
  /// to `buffer`.
  const unsigned char* block(std::int64_t index, unsigned char (&buffer)[block_bytes]) const {
    const std::int64_t count = size_of_block(index);
    std::int64_t at = index * block_bytes;
    if (row == size && count == block_bytes) return data + at;
    if (at / row == (at + count - 1) / row && count % chunk_bytes == 0)
      return data + at / row * stride + at % row;
    for (std::int64_t copied = 0; copied < count;) {
      const std::int64_t run = std::min(count - copied, row - at % row);
      std::memcpy(buffer + copied, data + at / row * stride + at % row,
                  static_cast<std::size_t>(run));
      copied += run;
      at += run;
    }
    const std::int64_t end = chunks_of_block(index) * chunk_bytes;
    std::memset(buffer + count, 0, static_cast<std::size_t>(end - count));
    return buffer;
  }
};

/// Computes the three NH sums of a block at `data`; `words` are those of the key.
void block_sums(const unsigned char* data, std::int64_t chunks, const std::uint32_t* words,
                std::uint64_t (&sum)[sums]) noexcept;
/// Computes the hash of x in readable code: the oracle of tests, and the engine on machines without
/// a vector unit.
Field reference(const Key& k, ConstAnyMatrix x) noexcept;

}  // namespace switchback::quant::hash

namespace switchback::quant::cpu {

/// Computes the hash of x with vectors and threads: the same value as hash::reference. x may be
/// empty.
hash::Field fingerprint(ContextState& state, const hash::Key& key, ConstAnyMatrix x);

}  // namespace switchback::quant::cpu
