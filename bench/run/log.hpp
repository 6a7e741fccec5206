// SPDX-License-Identifier: Apache-2.0
// Bench: the contents of a run file that `run` writes and a report reads: how each record was
// measured.
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

/// The members of a run_start line of this workload.
struct RunHeader {
  DType dtype = DType::f32;
  std::vector<std::string> grids;
  FieldSet fields = every_field();
  std::string mode = "default";  ///< or "tuned"
  std::string cache = "as the other fields of the round leave it";
};
void put_header(const RunHeader& header, const Ceilings& ceilings, nlohmann::ordered_json& line);
/// The members of a case line for a case that was not begun, followed by those for a measured case.
void put_shape(const Case& c, nlohmann::ordered_json& line);
void put_result(const CaseResult& result, DType dtype, const Ceilings& ceilings,
                nlohmann::ordered_json& line);
/// "CPU, isa, threads, dtype"
std::string machine_text(const nlohmann::ordered_json& machine, std::string_view dtype);

/// The data that a report uses from a run file. Missing and unknown members are ignored.
struct RunLog {
  std::optional<double> s8_tops;     ///< of the last run_start
  std::optional<double> f32_tflops;  ///< of the last run_start
  std::string machine;               ///< "CPU, isa, threads, dtype" of the last run_start
  std::map<std::string, double> fwd_packed_ms;           ///< by case id
  std::map<std::string, double> standard_fwd_packed_ms;  ///< by case id
  /// The noise of a case's times and the load from other programs, by case id.
  struct Noise {
    std::array<measure::Stats, record_fields> parts{};
    std::optional<double> others_cores;
    bool disturbed = false;
  };
  std::map<std::string, Noise> noise;
  /// The settings that a resumed run must share with the last one, as "key=value" in a fixed order.
  std::vector<std::string> setting;
};
RunLog parse_run_log(const std::vector<std::string>& lines);

}  // namespace switchback::bench
