// SPDX-License-Identifier: Apache-2.0
// Bench: what most benches of `micro` measure: a subject against its rival, in the same rounds.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/micro/micro.hpp"
#include "bench/micro/race.hpp"
#include "measure/statistics.hpp"
#include "switchback/types.hpp"

namespace switchback::bench {

/// A ratio asked for: below the floor is a defect, the stretch is what an expert might reach.
struct Target {
  double floor = 0;
  double target = 0;
  double stretch = 0;
};
/// "above target", "above floor", …; empty without a target.
std::string verdict(const std::optional<Target>& target, double value);

/// One subject against its rival. Ratios are of the rounds' own times: rival / subject.
struct RaceRow {
  std::string bench;
  std::string subject;  ///< an engine, or what the layer does, or an operation
  std::string rival;    ///< empty: none
  std::string variant;  ///< a layer's mode, an activation, or where a quantize's
                        ///< data lies
  DType dtype = DType::f32;
  MicroShape shape;
  measure::Stats subject_ms;
  measure::Stats rival_ms;
  measure::Middle ratio;         ///< zeros if there is no rival
  std::optional<Target> target;  ///< of `ratio`, unless the bench says otherwise
  measure::Disturbance disturbance;

  RaceRow() = default;
  RaceRow(std::string bench_name, std::string subject_name, const measure::Timed& subject_timed,
          const measure::Timed& rival_timed);
};

/// All records of such rows have the columns of every such bench; what one has not is null.
std::vector<Column> race_columns();
Json to_json(const RaceRow& row);
/// What a record says of a target; `of` names the column that it is for.
Json target_json(const Target& target, std::string_view of);

// Cells of its table.
std::string shape_text(const MicroShape& shape);
std::string time_text(const measure::Stats& stats);
std::string ratio_text(const RaceRow& row);
std::string target_text(const std::optional<Target>& target);
/// "MxKxN variant subject: 3.61 ± 0.04"
std::string summary_of(const RaceRow& row);

/// With the columns of targets behind, if they are asked for.
Table race_table(std::vector<std::string> header, std::vector<std::string> left, bool targets);

}  // namespace switchback::bench
