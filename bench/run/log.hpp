// SPDX-License-Identifier: Apache-2.0
// Bench: the contents of a run file. `run` writes it next to the records; it says how each record
// was measured. A report reads it.
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

/// What `run` adds to the run_start line, the first line of a run in the run file.
struct RunHeader {
  DType dtype = DType::f32;
  std::vector<std::string> grids;
  FieldSet fields = every_field();
  std::string mode = "default";  ///< "default" or "tuned" configurations
  std::string cache = "as the other fields of the round leave it";
};
void put_header(const RunHeader& header, const Ceilings& ceilings, nlohmann::ordered_json& line);
/// Adds to a run file's line on a case: put_shape() what is known before the case begins,
/// put_result() what was measured.
void put_shape(const Case& c, nlohmann::ordered_json& line);
void put_result(const CaseResult& result, DType dtype, const Ceilings& ceilings,
                nlohmann::ordered_json& line);
/// The machine as text for a report: "CPU, isa, threads, dtype".
std::string machine_text(const nlohmann::ordered_json& machine, std::string_view dtype);

/// The data of a run file that a report uses. Missing and unknown members are ignored.
struct RunLog {
  /// The machine's int8 limit in 1e12/s, from the last run_start line.
  std::optional<double> s8_tops;
  /// The machine's f32 limit in 1e12/s, from the last run_start line.
  std::optional<double> f32_tflops;
  /// The machine as text, from the last run_start line: "CPU, isa, threads, dtype"
  std::string machine;
  std::map<std::string, double> fwd_packed_ms;           ///< by case id
  std::map<std::string, double> standard_fwd_packed_ms;  ///< by case id
  /// How noisy a case's times are, and the load from other programs while it was measured.
  struct Noise {
    std::array<measure::Stats, record_fields> parts{};
    std::optional<double> others_cores;
    bool disturbed = false;
  };
  std::map<std::string, Noise> noise;
  /// The settings that a resumed run must share with the last run in the file, as "key=value" in a
  /// fixed order.
  std::vector<std::string> setting;
};
RunLog parse_run_log(const std::vector<std::string>& lines);

}  // namespace switchback::bench
