// SPDX-License-Identifier: Apache-2.0
// Studies: lower bounds ("floors") for the time of a model's operations, such as norms or
// attention.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/machine/ceilings.hpp"
#include "bench/machine/copy_kernel.hpp"
#include "core/context_state.hpp"
#include "core/device.hpp"
#include "measure/data.hpp"
#include "measure/matrix.hpp"
#include "measure/rounds.hpp"
#include "studies/common/training.hpp"
#include "switchback/gemm.hpp"

namespace switchback::bench {

// The work of an operation that bounds its time from below: the larger one of a time for memory and
// a time for arithmetic.
//
// Memory: bytes that are read and written beyond the caches (a line that is changed counts as
// both). If an operation gathers rows of a table in random order, the lower bound gathers random
// rows too, because a core's prefetchers cannot predict them.
//
// Arithmetic: multiply-adds of matrix products, at the rate of the engine that a layer uses. In
// addition, multiplications per lane, with or without a fused addition, at the rate of
// multiply-adds in registers. They are counted where the result determines their number: for GELU
// and SwiGLU, whose results are exact to the bit (quant/gelu.hpp,
// studies/models/cpu/elementwise.cpp); for dropout by its random generator; for attention by its
// products.
//
// Instructions other than multiplications are not counted, because they may run at the same time:
// Zen 4 adds, compares, shifts, permutes and combines bits in other pipes. Multiplications by
// powers of two are not counted either, because they are integer additions, nor are divisions, each
// of which takes the time of two multiplications on Zen 4. But no core starts more operations per
// cycle than it has pipes for the most widely supported kind. `of_any_kind` gives a separate lower
// bound for operations with many instructions that are not multiplications.
struct LayerFloor {
  double read_bytes = 0;
  double written_bytes = 0;
  double operations = 0;
  double products = 0;
  /// Bytes of a row, if rows of a table are read in random order; else 0.
  std::int64_t row_bytes = 0;
  std::int64_t table_rows = 0;
  /// Operations, including those that are not multiplications; 0: not counted.
  double of_any_kind = 0;

  [[nodiscard]] double bytes() const { return read_bytes + written_bytes; }
};

// The largest operands of a measurement, 1 GiB. A virtual machine may report the whole L3 of its
// host, which many virtual machines share; operands past that size would take too much memory.
inline constexpr std::int64_t most_cold_bytes = std::int64_t{1} << 30;

// Copies between two buffers on the CPU. Each copy continues where the last one ended, so that its
// data is not in the caches.
class ColdCopies {
 public:
  ColdCopies(Context& context, std::int64_t total_bytes)
      : context_(context),
        half_bytes_(std::max(line, total_bytes / 2 / line * line)),
        window_bytes_(half_bytes_),
        from_(context, DType::s8, 1, half_bytes_),
        to_(context, DType::s8, 1, half_bytes_) {
    // Both buffers are written, so that their pages exist before the first timed copy.
    copy_lines(context_, to_.data(), from_.data(), {half_bytes_, half_bytes_}, Stores::plain);
    copy_lines(context_, from_.data(), to_.data(), {half_bytes_, half_bytes_}, Stores::plain);
  }
  // Limits the following copies to a part of the buffers, as large as the operands of an operation.
  void stay_within(std::int64_t bytes) {
    window_bytes_ = std::clamp(bytes / 2 / line * line, line, half_bytes_);
    sets_of_rows_ = std::max<std::int64_t>(1, bytes / half_bytes_);
    at_ = 0;
  }
  // Reads and writes the same number of bytes as the operation: copies the smaller of the two
  // numbers, and only reads, or only writes, the rest.
  void run(const LayerFloor& floor, Stores stores) {
    if (floor.row_bytes >= line && half_bytes_ >= floor.table_rows * floor.row_bytes) {
      gather(floor, stores);
      return;
    }
    const double copied = std::min(floor.read_bytes, floor.written_bytes);
    for_pieces(copied, [&](std::int64_t now) {
      copy_lines(context_, at(from_), at(to_), {now, now}, stores);
    });
    for_pieces(floor.read_bytes - copied,
               [&](std::int64_t now) { read_ |= read_lines(context_, at(from_), now); });
    for_pieces(floor.written_bytes - copied, [&](std::int64_t now) {
      copy_lines(context_, at(from_), at(to_), {std::max(line, now / 64 / line * line), now},
                 stores);
    });
  }

 private:
  static constexpr std::int64_t line = 64;
  // Gathers random rows, as an embedding does. Each call uses the next table in the buffer, of the
  // size of the operation's table. The buffer has fewer tables than the operation has operand sets,
  // so each table is used with several sets of row numbers; otherwise the caches would hold the
  // rows here only.
  void gather(const LayerFloor& floor, Stores stores) {
    const std::int64_t table = floor.table_rows * floor.row_bytes / line * line;
    const auto rows = static_cast<std::int64_t>(floor.read_bytes) / floor.row_bytes;
    if (at_ + table > half_bytes_) {
      at_ = 0;
      set_ = (set_ + 1) % sets_of_rows_;
    }
    if (std::ssize(rows_) != rows * sets_of_rows_) {
      rows_ = random_tokens(rows * sets_of_rows_, floor.table_rows, 1);
      set_ = 0;
    }
    const auto now = std::span<const std::int32_t>(rows_).subspan(
        static_cast<std::size_t>(set_ * rows), static_cast<std::size_t>(rows));
    const auto written = static_cast<std::int64_t>(floor.written_bytes) / rows;
    gather_lines(context_, at(from_), now, at(to_), in_lines({floor.row_bytes, written}), stores);
    at_ += table;
  }
  template <class F>
  void for_pieces(double bytes, F&& f) {
    for (std::int64_t left = static_cast<std::int64_t>(bytes) / line * line; left > 0;) {
      const std::int64_t now = std::min(left, window_bytes_ - at_);
      f(now);
      left -= now;
      at_ = (at_ + now) % window_bytes_;
    }
  }
  [[nodiscard]] void* at(const measure::Matrix& m) const {
    return static_cast<std::byte*>(m.data()) + at_;
  }

  Context& context_;
  std::int64_t half_bytes_, window_bytes_, at_ = 0;
  std::uint64_t read_ = 0;
  std::vector<std::int32_t> rows_;
  std::int64_t sets_of_rows_ = 1, set_ = 0;  // sets of random row numbers, used one after another
  measure::Matrix from_, to_;
};

// Times the arithmetic of an operation: a product [rows, width] · [columns, width]ᵀ with the
// operation's number of multiply-adds, by the engine that a layer uses, and then its other
// operations as multiply-adds in registers.
class ArithmeticFloor {
 public:
  ArithmeticFloor(Context& context, std::int64_t rows, std::int64_t width, DType dtype,
                  const LayerFloor& floor)
      : context_(context), loop_(f32_loop(context)) {
    if (floor.products > 0) {
      const auto row = static_cast<double>(rows * width);
      const auto columns = std::max<std::int64_t>(1, std::llround(floor.products / row));
      x_.emplace(context, dtype, rows, width);
      w_.emplace(context, dtype, columns, width);
      y_.emplace(context, dtype, rows, columns);
      measure::fill_normal(context, x_->any(), 1);
      measure::fill_normal(context, w_->any(), 2);
    }
    // Only for the CPU: how fast a GPU adds and multiplies outside of matrix products is not known.
    if (context.state().on_cpu())
      steps_ =
          static_cast<long>(2 * floor.operations / (loop_.operations_per_step * context.threads()));
  }
  [[nodiscard]] measure::Rival rival() {
    return {!x_          ? fmt::format("{} alone", loop_.instruction)
            : steps_ > 0 ? std::string("products, exponentials")
                         : std::string("products"),
            [this] {
              if (x_)
                gemm_standard(
                    context_,
                    {.a = x_->any(), .b = w_->any(), .d = y_->any(), .transpose_b = true});
              if (steps_ > 0) run_on_all_threads(context_, loop_, steps_);
            }};
  }

 private:
  Context& context_;
  RegisterLoop loop_;
  long steps_ = 0;
  std::optional<measure::Matrix> x_, w_, y_;
};

// Times the instructions of all kinds that an operation needs, as integer operations in registers.
inline measure::Rival rival_of_any_kind(Context& context, const LayerFloor& floor) {
  const RegisterLoop loop = integer_loop(context);
  const auto steps =
      static_cast<long>(floor.of_any_kind / (loop.operations_per_step * context.threads()));
  return {fmt::format("{} alone", loop.instruction),
          [&context, loop, steps] { run_on_all_threads(context, loop, steps); }};
}

// The size in bytes from which on operands do not stay in the caches of the CPU or the device.
inline std::int64_t past_all_caches_bytes(const Context& context) {
  const auto& runtime = context.state().runtime;
  return std::min(most_cold_bytes, runtime == nullptr
                                       ? past_caches_bytes()
                                       : 8 * static_cast<std::int64_t>(runtime->info().l2_bytes));
}

// Measures how long the memory accesses of an operation take at least, with copies of the same size
// on the CPU or on the device.
class MemoryFloor {
 public:
  MemoryFloor(Context& context, std::int64_t cold_bytes) : runtime_(context.state().runtime.get()) {
    if (runtime_ == nullptr) {
      of_cpu_.emplace(context, cold_bytes);
    } else {
      from_ = measure::Matrix(context, DType::s8, 1, cold_bytes / 2);
      to_ = measure::Matrix(context, DType::s8, 1, cold_bytes / 2);
      runtime_->fill(from_.data(), 1, from_.size_bytes());
    }
  }
  // The copies to compare an operation with. `operand_bytes`: bytes of all its operand sets.
  std::vector<measure::Rival> rivals(const LayerFloor& floor, std::int64_t operand_bytes) {
    if (runtime_ != nullptr) {
      // A device's copy reads as much as it writes, so half of the operation's bytes are copied.
      const auto bytes = std::min(from_.size_bytes(), static_cast<std::size_t>(floor.bytes()) / 2);
      return {{"copy", [this, bytes] {
                 runtime_->copy(to_.data(), bytes, from_.data(), bytes, bytes, 1);
               }}};
    }
    of_cpu_->stay_within(operand_bytes);
    std::vector<measure::Rival> rivals;
    for (const Stores stores : {Stores::plain, Stores::streaming})
      rivals.push_back(
          {floor.written_bytes == 0 ? "reading"
           : floor.row_bytes != 0
               ? (stores == Stores::plain ? "gather, plain stores" : "gather, streaming stores")
           : stores == Stores::plain ? "copy, plain stores"
                                     : "copy, streaming stores",
           [this, floor, stores] { of_cpu_->run(floor, stores); }});
    return rivals;
  }

 private:
  core::DeviceRuntime* runtime_;
  std::optional<ColdCopies> of_cpu_;
  measure::Matrix from_, to_;  ///< for a device
};

}  // namespace switchback::bench
