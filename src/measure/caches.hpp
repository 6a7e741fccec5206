// SPDX-License-Identifier: Apache-2.0
// Measure: controls what timed calls find in the caches. Calls alternate between copies of their
// operands, and other memory is used between two calls.
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

/// The number of sets of operands between which a task of this many bytes alternates. A single set,
/// used repeatedly, would stay in the caches. Operands of a layer do not stay there between two
/// steps, and the fastest configuration on a single set would lose there. With several sets, small
/// operands are in the cache that suits their size, and large operands are in memory.
std::size_t rotation(Context& context, double bytes) noexcept;

/// If this many bytes are used between two uses of an operand, none of it remains in the CPU's
/// caches. It is twice the size of the last cache, as the system reports it.
double cold_bytes() noexcept;

/// Operands with several copies, between which calls alternate. In the rounds of a measurement each
/// call of a round has its own copies. A copy is used again only after the calls in between have
/// used more memory than the caches hold. So no call finds its operands in the caches.
class Turns {
 public:
  /// `bytes`: the least memory to use between two uses of a copy. 0: there is one copy of each
  /// operand.
  explicit Turns(double bytes = 0) : bytes_(bytes) {}

  [[nodiscard]] bool cold() const noexcept { return bytes_ > 0; }
  /// Adds an operand of `bytes` bytes, which has one copy so far. `add_copy` makes another copy.
  /// Returns the operand's index.
  std::size_t add(double bytes, std::function<void()> add_copy);
  /// The number of the operand's copy to use next, from 0. Counts the uses of the operand.
  std::size_t next(std::size_t operand) noexcept;
  /// The number of the operand's copy that next() returned last.
  [[nodiscard]] std::size_t current(std::size_t operand) const noexcept {
    return operands_[operand].at;
  }
  /// Runs each call once, counts how often it uses the operands, and makes the copies that the
  /// calls of rounds alternate between. Does nothing if `bytes` was 0.
  void make_copies(Calls calls);
  [[nodiscard]] std::size_t copies(std::size_t operand) const noexcept {
    return operands_[operand].copies;
  }
  /// The total size of all copies of all operands.
  [[nodiscard]] double total_bytes() const noexcept;

  /// How many copies an operand needs that each round uses `uses` times, if a round uses
  /// `round_bytes` of memory in total.
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

/// An operand with its copies, between which calls alternate.
template <class T>
class TakenInTurns {
 public:
  /// `make(i)` makes copy number i of the operand.
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

/// A matrix with copies that have the same elements, between which calls alternate.
class MatrixInTurns : public TakenInTurns<Matrix> {
 public:
  MatrixInTurns(Turns& turns, Context& context, DType dtype, std::int64_t rows, std::int64_t cols)
      : TakenInTurns(
            turns, static_cast<double>(rows * cols) * static_cast<double>(dtype_size_bytes(dtype)),
            [this, &context, dtype, rows, cols](std::size_t number) {
              return number == 0 ? Matrix(context, dtype, rows, cols) : copy_of(context, first());
            }) {}
};

/// Uses the caches between two timed calls, as the other operations of a training step would. Each
/// thread reads and writes its own memory, several times the size of the task's operands. It is at
/// least enough to fill the caches of the cores, and at most enough to fill the last cache.
class CacheSweep {
 public:
  CacheSweep(Context& context, double task_bytes);
  /// Uses the caches once. The first run allocates the memory; if that fails, no run does anything.
  void run() noexcept;
  /// The approximate duration of a run.
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
