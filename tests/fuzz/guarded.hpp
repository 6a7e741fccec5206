// SPDX-License-Identifier: Apache-2.0
// Test support: operands of a fuzzed C call. These are matrices and vectors whose description is
// either true or certain to be refused. They have exactly the memory they need, which is checked
// after the call.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "fuzz/input.hpp"
#include "switchback/switchback.h"

namespace switchback::test {

inline std::int64_t element_bytes(std::int32_t dtype) {
  return dtype == SWITCHBACK_S8 ? 1 : dtype == SWITCHBACK_F16 || dtype == SWITCHBACK_BF16 ? 2 : 4;
}

/// Memory of exactly `bytes` bytes: a sanitizer sees any access outside it.
struct Block {
  explicit Block(std::size_t bytes_) : storage(new unsigned char[bytes_]), bytes(bytes_) {}
  std::unique_ptr<unsigned char[]> storage;
  std::size_t bytes;
};
using SharedBlock = std::shared_ptr<Block>;

enum class Access { read, write };

/// The operands of one call. After it, check() verifies the promises of switchback.h: a failed call
/// changed nothing, and a successful one changed only the elements of its outputs.
class Operands {
 public:
  explicit Operands(Input& input) : input_(input) {}

  /// Makes a matrix operand of about the wanted shape and type. It is mostly valid; otherwise the
  /// library must see from its description alone that it is invalid.
  switchback_matrix matrix(std::int32_t dtype, std::int64_t rows, std::int64_t cols,
                           Access access) {
    const int wrong = input_.byte();
    if (wrong >= 200 && wrong < 210) dtype = input_.below(5);
    if (wrong >= 210 && wrong < 215) ++rows;
    if (wrong >= 215 && wrong < 220) ++cols;
    const std::int64_t stride = cols + (wrong % 4 == 3 ? 1 + input_.below(5) : 0);
    const std::size_t size = static_cast<std::size_t>(element_bytes(dtype));
    const std::size_t extent =
        rows == 0 || cols == 0 ? 0 : static_cast<std::size_t>((rows - 1) * stride + cols) * size;
    // The matrix is sometimes misaligned, and sometimes in another operand's memory if it fits
    // there.
    std::size_t offset = wrong % 8 == 5 ? static_cast<std::size_t>(1 + input_.below(3)) : 0;
    SharedBlock block;
    if (wrong >= 220 && wrong < 226 && !regions_.empty()) {
      block = regions_[static_cast<std::size_t>(input_.below(16)) % regions_.size()].block;
      if (block->bytes < offset + extent) block = nullptr;
    }
    if (block == nullptr) block = new_block(offset + extent);
    switchback_matrix m = {block->storage.get() + offset, dtype, rows, cols, stride};
    regions_.push_back({block, offset, rows, cols * static_cast<std::int64_t>(size),
                        stride * static_cast<std::int64_t>(size), access});
    // Invalid members of the description. Each is refused whatever the other operands are.
    if (wrong == 240) m.rows = -1;
    if (wrong == 241) m.cols = INT64_MIN;
    if (wrong == 242) m.dtype = 5 + input_.below(100);
    if (wrong == 243) m.dtype = -1;
    if (wrong == 244) m.stride = m.cols - 1;
    if (wrong == 245) m = {m.data, m.dtype, INT64_MAX, 3, 3};
    if (wrong == 246) m = {m.data, m.dtype, 3, 1, INT64_MAX};
    if (wrong == 247) m.stride = INT64_MIN;
    return m;
  }

  /// n floats.
  float* floats(std::int64_t n, Access access) {
    if (input_.rarely(40)) return nullptr;
    const auto count = static_cast<std::size_t>(std::clamp<std::int64_t>(n, 0, 4096));
    SharedBlock block = new_block(count * sizeof(float));
    regions_.push_back({block, 0, 1, static_cast<std::int64_t>(block->bytes),
                        static_cast<std::int64_t>(block->bytes), access});
    return reinterpret_cast<float*>(block->storage.get());
  }

  /// n numbers.
  std::int32_t* integers(std::int64_t n, Access access) {
    return reinterpret_cast<std::int32_t*>(floats(n, access));
  }

  /// A pointer to the matrix, or sometimes null.
  static const switchback_matrix* pointer(Input& input, const switchback_matrix& m) {
    return input.rarely(60) ? nullptr : &m;
  }

  /// The memory of the operand at `data`, which must live as long as a layer borrows it.
  [[nodiscard]] SharedBlock block_of(const void* data) const {
    for (const Region& region : regions_)
      if (region.block->storage.get() + region.offset == data) return region.block;
    return nullptr;
  }

  /// Saves the contents of all operands, for check(). To be called when all operands exist.
  void remember() {
    before_.clear();
    for (const Region& region : regions_)
      before_.emplace_back(region.block->storage.get(),
                           region.block->storage.get() + region.block->bytes);
  }

  void check(switchback_status status, const char* call) const {
    FUZZ_REQUIRE(status >= SWITCHBACK_OK && status < SWITCHBACK_INTERNAL, "%s: status %d: %s", call,
                 static_cast<int>(status), switchback_last_error());
    FUZZ_REQUIRE(status == SWITCHBACK_OK || switchback_last_error()[0] != '\0',
                 "%s: failed without a message", call);
    for (std::size_t i = 0; i < regions_.size(); ++i) {
      const unsigned char* now = regions_[i].block->storage.get();
      for (std::size_t at = 0; at < before_[i].size(); ++at) {
        if (now[at] == before_[i][at]) continue;
        FUZZ_REQUIRE(status == SWITCHBACK_OK, "%s: failed (%s) and changed byte %zu of operand %zu",
                     call, switchback_last_error(), at, i);
        FUZZ_REQUIRE(is_output_byte(*regions_[i].block, at),
                     "%s: changed byte %zu of operand %zu, which is no element of an output", call,
                     at, i);
      }
    }
  }

 private:
  struct Region {
    SharedBlock block;
    std::size_t offset;
    std::int64_t rows, row_bytes, stride_bytes;
    Access access;
  };

  [[nodiscard]] bool is_output_byte(const Block& block, std::size_t at) const {
    return std::any_of(regions_.begin(), regions_.end(), [&](const Region& region) {
      if (region.access == Access::read || region.block.get() != &block || at < region.offset)
        return false;
      const auto inside = static_cast<std::int64_t>(at - region.offset);
      return region.stride_bytes > 0 && inside / region.stride_bytes < region.rows &&
             inside % region.stride_bytes < region.row_bytes;
    });
  }

  // Makes memory with zeros, with ordinary floating point numbers or with arbitrary bytes.
  SharedBlock new_block(std::size_t bytes) {
    auto block = std::make_shared<Block>(bytes);
    const int kind = input_.below(4);
    std::uint32_t state = 0x9E3779B9u * (1u + input_.byte());
    for (std::size_t i = 0; i < bytes; ++i) {
      state = state * 1664525u + 1013904223u;
      const auto random = static_cast<unsigned char>(state >> 24);
      // A value of 0x3C to 0x3F in the upper byte makes numbers around one in f32, f16 and bf16
      // alike.
      block->storage[i] = kind == 0   ? static_cast<unsigned char>(0x3C | (random & 0x83))
                          : kind == 1 ? static_cast<unsigned char>(0)
                                      : random;
    }
    return block;
  }

  Input& input_;
  std::vector<Region> regions_;
  std::vector<std::vector<unsigned char>> before_;
};

/// A copy of an argument struct in memory of exactly its struct_size. Some sizes must be refused.
template <class T>
class SizedStruct {
 public:
  SizedStruct(Input& input, T value) {
    // The sizes that the bytes from 248 on select.
    constexpr std::size_t newer = sizeof(T) + 24;
    constexpr std::size_t sizes[] = {
        SIZE_MAX, 4097, newer, newer, sizeof(T) / 2, sizeof(T) - 1, sizeof(std::size_t), 0};
    const int choice = input.byte();
    const std::size_t size = choice < 248 ? sizeof(T) : sizes[choice - 248];
    const bool sets_the_end = choice == 250;
    value.struct_size = size;
    const std::size_t held = size == SIZE_MAX ? sizeof(T) : std::max(size, sizeof(std::size_t));
    // Memory from new[] of bytes is aligned for any object of this size.
    memory_.reset(new unsigned char[held]());
    std::memcpy(memory_.get(), &value, std::min(held, sizeof(T)));
    if (sets_the_end) memory_[held - 1] = 1;
  }
  [[nodiscard]] const T* get() const { return reinterpret_cast<const T*>(memory_.get()); }

 private:
  std::unique_ptr<unsigned char[]> memory_;
};

}  // namespace switchback::test
