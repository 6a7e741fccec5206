// SPDX-License-Identifier: Apache-2.0
// Tuner: memory of a task on its Context's device, filled with random data and read back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/aligned_buffer.hpp"
#include "switchback/context.hpp"
#include "switchback/matrix.hpp"

namespace switchback::autotune {

/// A [rows,cols] matrix on the device with a row stride of its own. Elements are uninitialised.
class Operand {
 public:
  Operand() = default;
  /// Alignment 1 (see core::alignment_class) begins it one element behind an aligned address.
  Operand(Context& context, DType dtype, std::int64_t rows, std::int64_t cols,
          std::int64_t stride = 0, std::int64_t alignment = 0);

  [[nodiscard]] AnyMatrix any() const noexcept { return {data(), dtype_, rows_, cols_, stride_}; }
  template <class T>
  [[nodiscard]] MatrixView<T> view() const noexcept {
    return {static_cast<T*>(data()), rows_, cols_, stride_};
  }
  [[nodiscard]] void* data() const noexcept {
    auto* begin = buffer_.as<std::byte>();
    return begin == nullptr ? nullptr : begin + offset_bytes_;
  }
  [[nodiscard]] float* floats() const noexcept { return static_cast<float*>(data()); }
  [[nodiscard]] bool empty() const noexcept { return rows_ * cols_ == 0; }
  [[nodiscard]] std::int64_t alignment() const noexcept { return offset_bytes_ > 0 ? 1 : 0; }

 private:
  core::AlignedBuffer buffer_;
  DType dtype_ = DType::f32;
  std::int64_t rows_ = 0;
  std::int64_t cols_ = 0;
  std::int64_t stride_ = 0;
  std::size_t offset_bytes_ = 0;
};

/// Another one with the same elements.
Operand copy_of(Context& context, const Operand& from);

/// How many sets of operands a task of so many bytes takes turns with. One set, used again and
/// again, stays in the caches as nothing does between two steps of a layer, and what wins on it
/// loses there; with several, small operands are found where others of their size would be, and
/// large ones in memory.
std::size_t rotation(Context& context, double bytes) noexcept;

/// Uses the caches as the other operations of a step do between two calls of one: each thread reads
/// and writes memory of its own, several times as much as the task has operands, but no less than
/// fills the caches of the cores and no more than fills the last one.
class CacheSweep {
 public:
  CacheSweep(Context& context, double task_bytes);
  /// Takes its memory when it is first run. Without memory it does nothing.
  void run() noexcept;
  /// About how long it takes.
  [[nodiscard]] double seconds() const noexcept;

 private:
  Context& context_;
  std::size_t bytes_ = 0;
  bool failed_ = false;
  core::AlignedBuffer buffer_;
};

/// Normal data, or codes from -127 to 127. A block of a million values, repeated from other offsets
/// in each row: as random for an engine as fresh ones, and made at the speed of a copy.
void fill_random(Context& context, AnyMatrix m, std::uint64_t seed);
/// Positive f32 values around 1, as scales are.
void fill_scales(Context& context, float* values, std::int64_t count, std::uint64_t seed);
/// What no operation writes: NaN, the code -128, the sum -1.
void poison(Context& context, AnyMatrix m);

/// The elements of m on the host, row by row without gaps.
std::vector<std::byte> read_back(Context& context, ConstAnyMatrix m);
/// Where m differs first from such an image, in words; empty: nowhere.
std::string difference(Context& context, ConstAnyMatrix m, std::span<const std::byte> want);

}  // namespace switchback::autotune
