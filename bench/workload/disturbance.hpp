// SPDX-License-Identifier: Apache-2.0
// Bench: what is written and said of disturbed rounds, everywhere in the same words.
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

/// Members of a line of JSON: "discarded_rounds", "disturbed_rounds" (of those that are kept), by
/// sign of all that were timed "preempted_rounds", "loaded_rounds" and "slow_clock_rounds", and
/// "steal_cores".
void put_disturbance(const measure::Disturbance& disturbance, Json& line);
/// Those members as columns of records.
std::vector<Column> disturbance_columns();

/// After a number in a table: " !" if it is in doubt, else nothing.
std::string doubt_mark(const measure::Disturbance& disturbance);
/// "12 of 130 rounds were disturbed, and discarded; …", with its newline; empty if there is nothing
/// to say.
std::string disturbance_text(const measure::Disturbance& total);

/// Why a row is in doubt that was measured while other programs were in the way.
inline constexpr std::string_view others_were_running = "other programs were running";

/// How many rows of a table or of a file are in doubt, and why.
class Doubt {
 public:
  /// One row. `why` is empty if nothing speaks against it; `others_cores` is what other programs
  /// used.
  void add(std::string_view why, std::optional<double> others_cores = std::nullopt);
  /// Too many rows for an accident.
  [[nodiscard]] bool is_about_all() const noexcept {
    return measure::too_many_disturbed(doubtful_, rows_);
  }
  /// One sentence with its newline, which goes before the table: "Do not trust these numbers: …"
  /// where it is about all; empty where no row is in doubt.
  [[nodiscard]] std::string sentence() const;

 private:
  std::int64_t rows_ = 0, doubtful_ = 0;
  std::map<std::string, std::int64_t, std::less<>> reasons_;
  double others_cores_ = 0;
};

}  // namespace switchback::bench
