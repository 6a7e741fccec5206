// SPDX-License-Identifier: Apache-2.0
// Bench: the lines of the run file beside a record file: how each record came about.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/machine/ceilings.hpp"
#include "bench/run/case.hpp"
#include "bench/run/plan.hpp"

namespace switchback::bench {

inline constexpr int run_log_version = 1;
/// What every line starts with.
inline constexpr std::string_view run_log_line_start = "{\"type\":";

/// "x.run.jsonl" for "x.jsonl", else the name with ".run.jsonl" behind.
std::string run_log_path(const std::string& record_path);

/// One line; text that is not UTF-8 is replaced.
std::string json_line(const nlohmann::ordered_json& object);

/// What a run_start line says besides the machine.
struct RunHeader {
  DType dtype = DType::f32;
  std::uint64_t seed = 0;
  std::vector<std::string> grids;
  std::string arguments;
  FieldSet fields = every_field();
  std::int64_t cases = 0;
  std::string mode = "default";                       ///< or "tuned"
  std::optional<double> others_cores = std::nullopt;  ///< used by other programs at the start
};
nlohmann::ordered_json run_start_line(const Context& context, const RunHeader& header,
                                      const Ceilings& ceilings);
/// What other programs did while a case was measured; see LoadMonitor.
struct CaseLoad {
  std::optional<double> others_cores;
  bool disturbed = false;
};
nlohmann::ordered_json case_line(const CaseResult& result, std::int64_t number,
                                 const PlannedCase& planned, DType dtype, const Ceilings& ceilings,
                                 const CaseLoad& load);
/// A case that was not begun.
nlohmann::ordered_json skipped_case_line(const Case& c, std::int64_t number, CaseStatus status,
                                         const std::string& why);

/// Throws Error(invalid_argument) unless the line is a JSON object with a "type" of this file.
void check_run_log_line(std::string_view line);

/// What a report takes from a run file; anything missing or unknown is passed over.
struct RunLog {
  std::optional<double> s8_tops;  ///< of the last run_start
  std::string machine;            ///< "CPU, isa, threads, dtype" of the last run_start
  std::map<std::string, double> fwd_packed_ms;           ///< by case id
  std::map<std::string, double> standard_fwd_packed_ms;  ///< by case id
  /// How steady the times of a case were and who else was running, by case id.
  struct Noise {
    std::array<measure::Stats, record_fields> parts{};
    std::optional<double> others_cores;
    bool disturbed = false;
  };
  std::map<std::string, Noise> noise;
  /// What a resumed run must share with the last one, as "key=value" in one order.
  std::vector<std::string> setting;
};
RunLog parse_run_log(const std::vector<std::string>& lines);
/// The setting of a run to come, to compare with RunLog::setting.
std::vector<std::string> run_setting(const Context& context, DType dtype);

}  // namespace switchback::bench
