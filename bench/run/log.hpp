// SPDX-License-Identifier: Apache-2.0
// Bench: what `run` writes into its run file, and what a report reads there: how each record came
// about.
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

namespace switchback::bench {

/// What a run_start line says of this workload.
struct RunHeader {
  DType dtype = DType::f32;
  std::vector<std::string> grids;
  FieldSet fields = every_field();
  std::string mode = "default";  ///< or "tuned"
  std::string cache = "as the other fields of the round leave it";
};
void put_header(const RunHeader& header, const Ceilings& ceilings, nlohmann::ordered_json& line);
/// What a case line says of a case that was not begun, and behind that of one that was measured.
void put_shape(const Case& c, nlohmann::ordered_json& line);
void put_result(const CaseResult& result, DType dtype, const Ceilings& ceilings,
                nlohmann::ordered_json& line);
/// "CPU, isa, threads, dtype"
std::string machine_text(const nlohmann::ordered_json& machine, std::string_view dtype);

/// What a report takes from a run file; anything missing or unknown is passed over.
struct RunLog {
  std::optional<double> s8_tops;     ///< of the last run_start
  std::optional<double> f32_tflops;  ///< of the last run_start
  std::string machine;               ///< "CPU, isa, threads, dtype" of the last run_start
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

}  // namespace switchback::bench
