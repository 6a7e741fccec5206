// SPDX-License-Identifier: Apache-2.0
// Measure: controls what calls find in the caches: operands that take turns, and memory that is
// used between two calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <utility>
#include <vector>

#include "core/aligned_buffer.hpp"
#include "core/device.hpp"
#include "measure/matrix.hpp"
#include "measure/rounds.hpp"
#include "switchback/context.hpp"

namespace switchback::measure {

/// The number of operand sets that a task of this many bytes takes turns with. A single set, used
/// again and again, would stay in the caches, which nothing does between two steps of a layer, and
/// the winner on it would lose there. With several sets, small operands are in the cache that suits
/// their size, and large ones in memory.
std::size_t rotation(Context& context, double bytes) noexcept;

/// So many bytes, used between two uses of an operand, leave none of it in the caches of the CPU:
/// twice the last cache, as the system reports it.
double cold_bytes() noexcept;

/// Operands of which there are several copies, and calls that take turns with them. In the rounds
/// of a measurement each call of a round has copies of its own, which come again once the calls
/// between have used more memory than the caches hold: so no call finds its operands there.
class Turns {
 public:
  /// `bytes`: used between two uses of a copy, at least; 0: there is one copy of each operand.
  explicit Turns(double bytes = 0) : bytes_(bytes) {}

  [[nodiscard]] bool cold() const noexcept { return bytes_ > 0; }
  /// Adds an operand of so many bytes, of which there is one copy. `add_copy` makes another.
  /// Returns its place.
  std::size_t add(double bytes, std::function<void()> add_copy);
  /// The number of the copy whose turn it is, from 0. What calls use is counted.
  std::size_t next(std::size_t operand) noexcept;
  /// The number that next() returned last.
  [[nodiscard]] std::size_t current(std::size_t operand) const noexcept {
    return operands_[operand].at;
  }
  /// Calls each once, counts the operands that it uses, and makes the copies that the calls of
  /// rounds take turns with. Does nothing if these are not cold.
  void make_copies(Calls calls);
  [[nodiscard]] std::size_t copies(std::size_t operand) const noexcept {
    return operands_[operand].copies;
  }
  /// Bytes of all copies.
  [[nodiscard]] double total_bytes() const noexcept;

  /// The number of copies of an operand that a round uses so often, where it uses `round_bytes` in
  /// all.
  [[nodiscard]] static std::size_t copies_of(double operand_bytes, std::int64_t uses,
                                             double round_bytes, double bytes) noexcept;

 private:
  struct Operand {
    double bytes = 0;
    std::function<void()> add_copy;
    std::int64_t uses = 0;
    std::size_t copies = 1, at = 0;
  };
  double bytes_;
  std::vector<Operand> operands_;
};

/// An operand with its copies.
template <class T>
class TakenInTurns {
 public:
  /// `make` makes one, given its number.
  TakenInTurns(Turns& turns, double bytes, std::function<T(std::size_t)> make)
      : turns_(turns), make_(std::move(make)) {
    all_.push_back(make_(0));
    place_ = turns.add(bytes, [this] { all_.push_back(make_(all_.size())); });
  }
  TakenInTurns(const TakenInTurns&) = delete;
  TakenInTurns& operator=(const TakenInTurns&) = delete;

  T& next() { return all_[turns_.next(place_)]; }
  T& first() { return all_.front(); }
  T& at(std::size_t i) { return all_[i % all_.size()]; }

 private:
  Turns& turns_;
  std::function<T(std::size_t)> make_;
  std::deque<T> all_;
  std::size_t place_;
};

/// A matrix whose copies have the elements of the first.
class MatrixInTurns : public TakenInTurns<Matrix> {
 public:
  MatrixInTurns(Turns& turns, Context& context, DType dtype, std::int64_t rows, std::int64_t cols)
      : TakenInTurns(
            turns, static_cast<double>(rows * cols) * static_cast<double>(dtype_size_bytes(dtype)),
            [this, &context, dtype, rows, cols](std::size_t number) {
              return number == 0 ? Matrix(context, dtype, rows, cols) : copy_of(context, first());
            }) {}
};

/// Uses the caches as the other operations of a step do between two calls of one operation: each
/// thread reads and writes its own memory, several times as much as the task's operands, at least
/// enough to fill the caches of the cores and at most enough to fill the last one.
class CacheSweep {
 public:
  CacheSweep(Context& context, double task_bytes);
  /// Allocates its memory on the first run. If that fails, it does nothing.
  void run() noexcept;
  /// About how long it takes.
  [[nodiscard]] double seconds() const noexcept;

 private:
  Context& context_;
  std::size_t bytes_ = 0;
  bool failed_ = false;
  core::AlignedBuffer buffer_;
};

/// Evicts the contents of a device's L2 cache by writing twice its size.
class CacheFlush {
 public:
  /// The Context's device must not be the CPU.
  explicit CacheFlush(const Context& context);
  void run();

 private:
  core::DeviceRuntime& runtime_;
  core::AlignedBuffer buffer_;
  std::size_t bytes_;
};

}  // namespace switchback::measure
