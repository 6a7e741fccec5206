// SPDX-License-Identifier: Apache-2.0
// Bench: the texts and columns on disturbed rounds, the same everywhere.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/workload/workload.hpp"
#include "measure/disturbance.hpp"

namespace switchback::bench {

/// Members of a line of JSON: "discarded_rounds"; "disturbed_rounds" (among those that were kept);
/// "preempted_rounds", "loaded_rounds" and "slow_clock_rounds" (by sign, among all that were
/// timed); and "steal_cores".
void put_disturbance(const measure::Disturbance& disturbance, Json& line);
/// The same members as columns of records.
std::vector<Column> disturbance_columns();

/// Appended to a number in a table: " !" if it is in doubt, else nothing.
std::string doubt_mark(const measure::Disturbance& disturbance);
/// "12 of 130 rounds were disturbed, and discarded; …", with its newline; empty if nothing was
/// disturbed.
std::string disturbance_text(const measure::Disturbance& total);

/// Why a row is in doubt that was measured while other programs disturbed it.
inline constexpr std::string_view others_were_running = "other programs were running";

/// How many rows of a table or a file are in doubt, and why.
class Doubt {
 public:
  /// Adds a row. `why` is empty if there is no reason for doubt; `others_cores` is the load from
  /// other programs.
  void add(std::string_view why, std::optional<double> others_cores = std::nullopt);
  /// Whether too many rows are in doubt for chance.
  [[nodiscard]] bool is_about_all() const noexcept {
    return measure::too_many_disturbed(doubtful_, rows_);
  }
  /// One sentence with its newline, printed before the table: "Do not trust these numbers: …" if
  /// all are in doubt; empty if no row is in doubt.
  [[nodiscard]] std::string sentence() const;

 private:
  std::int64_t rows_ = 0, doubtful_ = 0;
  std::map<std::string, std::int64_t, std::less<>> reasons_;
  double others_cores_ = 0;
};

}  // namespace switchback::bench
