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
/// reference, or its stand-in there; and, once a configuration agreed with these, all rows of that
/// one as far as their image is worth keeping.
class ExpectedRows {
 public:
  /// Computes rows [first, first + rows) by that engine, into memory of the host.
  using ByOracle = std::function<measure::Matrix(std::int64_t first, std::int64_t rows)>;

  [[nodiscard]] bool empty() const noexcept { return first_.empty(); }
  /// Of so many rows, each of which takes so many products: as many as take it no longer than a
  /// moment.
  void expect(DeviceKind device, std::int64_t rows, double products_of_row,
              const ByOracle& by_oracle);
  /// What is wrong with the rows of d; empty: nothing. The first `kept` rows of the first one of
  /// which nothing is are expected from then on.
  std::string difference(Context& context, AnyMatrix d, std::int64_t kept);

 private:
  measure::Matrix first_, last_;
};

/// How many rows of a result are compared and their image kept: as many as fit. On a device the
/// last rows are compared too.
std::int64_t rows_to_keep(std::int64_t rows, std::int64_t cols) noexcept;

}  // namespace switchback::autotune
