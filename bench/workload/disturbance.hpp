// SPDX-License-Identifier: Apache-2.0
// Bench: the texts and columns about rounds that other programs disturbed. They are the same in all
// subcommands.
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

/// Adds members on disturbed rounds to a line of JSON: "discarded_rounds"; "disturbed_rounds"
/// (among the rounds that were kept); "preempted_rounds", "loaded_rounds" and "slow_clock_rounds"
/// (by kind of disturbance, among all timed rounds); and "steal_cores".
void put_disturbance(const measure::Disturbance& disturbance, Json& line);
/// The members of put_disturbance() as columns of records, and the column "disturbed".
std::vector<Column> disturbance_columns();

/// The text after a number in a table: " !" if the measurement is in doubt, else nothing.
std::string doubt_mark(const measure::Disturbance& disturbance);
/// A sentence with its newline: "12 of 130 rounds were disturbed and discarded, …"; empty if no
/// round was disturbed.
std::string disturbance_text(const measure::Disturbance& total);

/// The reason for doubt in a row that was measured while other programs disturbed it.
inline constexpr std::string_view others_were_running = "other programs were running";

/// How many rows of a table or a file are in doubt, and why.
class Doubt {
 public:
  /// Counts a row. `why` is empty if there is no reason for doubt; `others_cores` is the load from
  /// other programs.
  void add(std::string_view why, std::optional<double> others_cores = std::nullopt);
  /// Whether more than a quarter of the rows are in doubt, which is more than chance explains.
  [[nodiscard]] bool is_about_all() const noexcept {
    return measure::too_many_disturbed(doubtful_, rows_);
  }
  /// One sentence with its newline, which is printed before the table. It begins with "Do not trust
  /// these numbers: …" if is_about_all(). It is empty if no row is in doubt.
  [[nodiscard]] std::string sentence() const;

 private:
  std::int64_t rows_ = 0, doubtful_ = 0;
  std::map<std::string, std::int64_t, std::less<>> reasons_;
  double others_cores_ = 0;
};

}  // namespace switchback::bench
