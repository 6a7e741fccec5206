// SPDX-License-Identifier: Apache-2.0
// Measure: compares the results of an operation with the expected ones.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "measure/matrix.hpp"
#include "switchback/context.hpp"
#include "switchback/matrix.hpp"

namespace switchback::measure {

/// The rows of an output to compare, ascending. They are all rows, or a sample if a reference of
/// all rows would take too long.
using Rows = std::vector<std::int64_t>;
Rows all_rows(std::int64_t count);
/// At most `limit` (at least 2) rows: the first, the last, and others chosen by the seed.
Rows sample_rows(std::int64_t count, std::int64_t limit, std::uint64_t seed);

/// The elements of a result that a reference computes: those in these rows and columns.
struct Sample {
  Rows rows, cols;
  [[nodiscard]] bool is_all(ConstAnyMatrix of) const noexcept {
    return std::ssize(rows) == of.rows && std::ssize(cols) == of.cols;
  }
};
/// Chooses elements of a result, with at most `most_work` operations if each element costs `inner`:
/// all elements if possible, otherwise whole rows, otherwise parts of 16 rows. The sample contains
/// the first and the last row and column.
Sample sample_of(std::int64_t rows, std::int64_t cols, std::int64_t inner, double most_work,
                 std::uint64_t seed);
/// Copies rows of m, or sampled elements of them, to memory that the host can read. If all of them
/// are requested and the host can read m, the result refers to m's own elements, and m must outlive
/// it.
Matrix gather(Context& context, ConstAnyMatrix m, const Rows& rows);
Matrix gather(Context& context, ConstAnyMatrix m, const Sample& sample);

/// The expected values of the compared rows in f64, and how far a result may be from each.
struct Reference {
  std::int64_t cols = 0;
  std::vector<double> values;  ///< matrix [rows.size(), cols]
  std::vector<double> bounds;  ///< same shape as values; empty where only the accuracy is wanted
};

/// The element of a result with the largest error relative to the element's bound.
struct Worst {
  std::int64_t row = -1;
  std::int64_t col = -1;
  double got = 0;
  double want = 0;
};

constexpr double not_measured = std::numeric_limits<double>::quiet_NaN();

struct Comparison {
  std::int64_t compared = 0;
  std::int64_t wrong = 0;
  Worst worst;  ///< element with the worst error; its row is −1 if nothing differs
  /// The worst error as a multiple of its bound; Inf if there is a difference where none is
  /// allowed.
  double worst_share = 0;
  double snr_db = not_measured;          ///< signal-to-noise ratio against f64; Inf: no difference
  double relative_error = not_measured;  ///< ‖got − want‖ / ‖want‖
  double cosine = not_measured;
  [[nodiscard]] bool pass() const noexcept { return wrong == 0; }
};

/// Compares bits: each element of the rows must equal that of want[rows.size(), cols], of the same
/// dtype. NaN equals any NaN, and nothing else does.
Comparison compare_exact(ConstAnyMatrix got, const Rows& rows, ConstAnyMatrix want);

/// Passes if |got − value| <= bound for each element. A NaN value requires a NaN; an infinite value
/// requires that infinity. A value that may exceed the largest finite number of got's dtype allows
/// infinity.
Comparison compare_bounded(ConstAnyMatrix got, const Rows& rows, const Reference& reference);

/// Fills in snr_db, relative_error and cosine over the elements whose reference is finite.
void add_accuracy(Comparison& comparison, ConstAnyMatrix got, const Rows& rows,
                  const Reference& reference);

}  // namespace switchback::measure
