// SPDX-License-Identifier: Apache-2.0
// Tuner: what the results of every configuration of a product are held to.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "core/device_kind.hpp"
#include "measure/matrix.hpp"
#include "switchback/context.hpp"

namespace switchback::autotune {

/// The first rows of a result, and on a device the last ones, as its last engine computes them: the
/// reference, or its stand-in there; and, once a configuration agreed with these, rows of that one
/// from all over the result.
class ExpectedRows {
 public:
  /// Computes rows [first, first + rows) by that engine, into memory of the host.
  using ByOracle = std::function<measure::Matrix(std::int64_t first, std::int64_t rows)>;

  [[nodiscard]] bool empty() const noexcept { return first_.empty(); }
  /// Of so many rows, each of which takes so many products: as many as take it no longer than a
  /// moment.
  void expect(DeviceKind device, std::int64_t rows, double products_of_row,
              const ByOracle& by_oracle);
  /// What is wrong with the rows of d; empty: nothing. At most `kept` rows of the first d with
  /// nothing wrong, equally far from each other, are expected from then on.
  std::string difference(Context& context, AnyMatrix d, std::int64_t kept);

 private:
  measure::Matrix first_, last_, kept_;
};

/// How many elements of a result are compared and kept for that: on a device as many as the host
/// fetches within a few milliseconds.
std::int64_t most_kept_elements(DeviceKind device) noexcept;
/// How many rows of a result these are; at least 64, if it has that many.
std::int64_t rows_to_keep(DeviceKind device, std::int64_t rows, std::int64_t cols) noexcept;

/// At most `most` rows of m, equally far from each other up to the last one; all if there are no
/// more. Their distance is odd, so that they are at all places of a kernel's tiles.
AnyMatrix spread_rows(AnyMatrix m, std::int64_t most) noexcept;

}  // namespace switchback::autotune
