// SPDX-License-Identifier: Apache-2.0
// Bench: what most benches of `micro` measure: a subject against its rival, in the same rounds.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/micro/micro.hpp"
#include "bench/micro/race.hpp"
#include "measure/statistics.hpp"
#include "switchback/types.hpp"

namespace switchback::bench {

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
  measure::Middle ratio;  ///< zeros without a rival
  measure::Disturbance disturbance;

  // What some benches add.
  double gop_s = 0;                      ///< of products, 2·M·N·K each, a second, in 1e9
  double gb_s = 0;                       ///< bytes read and written a second, in 1e9
  std::optional<DType> output;           ///< what an int8 product writes
  std::string ceiling;                   ///< the instruction whose rate in registers is the ceiling
  std::optional<measure::Middle> share;  ///< of that ceiling, in the same rounds
  /// Of int8 products: the time it takes to read the bytes of W's codes once, from a buffer that
  /// was touched as long ago, over the time of the call.
  std::optional<measure::Middle> read_share;

  RaceRow() = default;
  RaceRow(std::string bench_name, std::string subject_name, const measure::Timed& subject_timed,
          const measure::Timed& rival_timed);
};
using RaceSink = std::function<void(const RaceRow&)>;

/// Of one product of this shape, two a multiply-add.
double operations_of(const MicroShape& shape) noexcept;

/// All records of such rows have the columns of every such bench; what one has not is null.
Json to_json(const RaceRow& row);

// Cells of its table.
std::string shape_text(const MicroShape& shape);
std::string time_text(const measure::Stats& stats);
std::string ratio_text(const RaceRow& row);

/// A bench whose rows are races.
class RaceBench : public MicroBench {
 public:
  using MicroBench::MicroBench;
  [[nodiscard]] std::vector<Column> columns() const override;

 protected:
  /// Of the table.
  [[nodiscard]] virtual std::vector<std::string> cells(const RaceRow& row) const = 0;
  /// Takes the rows of a case to the sink, which must outlive it.
  [[nodiscard]] RaceSink rows_to(const Sink& sink) const;
};

}  // namespace switchback::bench
