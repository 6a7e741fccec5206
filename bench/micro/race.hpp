// SPDX-License-Identifier: Apache-2.0
// Bench: what the comparisons of `micro` (measure/rounds.hpp) share: the engines that take part, a
// row of results (a subject against its rival), and the rate of an instruction in registers as a
// rival.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "autotune/validation/validator.hpp"
#include "bench/machine/ceilings.hpp"
#include "bench/micro/micro.hpp"
#include "bench/workload/session.hpp"
#include "measure/rounds.hpp"
#include "measure/statistics.hpp"
#include "switchback/context.hpp"
#include "switchback/engine_info.hpp"
#include "switchback/types.hpp"

namespace switchback::bench {

/// The least number of rounds of a group of rivals, unless a deadline ends them earlier. With fewer
/// calls there is no spread to show.
inline constexpr int fewest_micro_rounds = 3;
/// Removes the rivals that refuse their arguments with Error(unsupported).
std::vector<measure::Rival> without_refusing(std::vector<measure::Rival> rivals);

/// The names of the available engines that are meant to be fast, that is, not the reference.
std::vector<std::string> fast_engines(const std::vector<EngineInfo>& infos);
/// The names of the available floating point engines that are meant to be fast. Engines that round
/// the operands first are left out, because they compute another product.
std::vector<std::string> fast_floating_engines(const Context& context);

/// A result: the times of one subject compared with those of its rival. The ratio is the median
/// over rounds of rival time / subject time.
struct RaceRow {
  std::string bench;
  std::string subject;  ///< what is measured: an engine, a pass of a layer, or an operation
  std::string rival;    ///< what the subject is compared with; empty: nothing
  std::string variant;  ///< the layer's mode, the activation, or the memory level
  DType dtype = DType::f32;
  MicroShape shape;
  measure::Stats subject_ms;
  measure::Stats rival_ms;
  measure::Middle ratio;  ///< rival time / subject time; zeros without a rival
  measure::Disturbance disturbance;

  // The following members are filled by some benches only.
  double gop_s = 0;  ///< rate of products: 2·M·N·K operations each, per second, in 1e9
  double gb_s = 0;   ///< bytes read and written per second, in 1e9
  std::optional<DType> output;  ///< the output type of an int8 product
  std::string ceiling;          ///< the instruction whose rate in registers is the ceiling
  /// The product's rate as a share of the ceiling's, in the same rounds.
  std::optional<measure::Middle> share;
  /// For int8 products: the time to read the bytes of W's codes once, divided by the time of the
  /// product. The buffer that is read was last touched as long ago as W's codes.
  std::optional<measure::Middle> read_share;

  RaceRow() = default;
  RaceRow(std::string bench_name, std::string subject_name, const measure::Timed& subject_timed,
          const measure::Timed& rival_timed);
};
using RaceSink = std::function<void(const RaceRow&)>;

/// The arithmetic operations of one product of this shape, two per multiply-add.
double operations_of(const MicroShape& shape) noexcept;

/// A result as a JSON record. Records of all benches with such rows have the same columns; a column
/// that a bench does not fill is null.
Json to_json(const RaceRow& row);

// Texts for the cells of the table of results.
std::string shape_text(const MicroShape& shape);
std::string time_text(const measure::Stats& stats);
std::string ratio_text(const RaceRow& row);

/// A bench of `micro` whose rows compare a subject with a rival.
class RaceBench : public MicroBench {
 public:
  using MicroBench::MicroBench;
  [[nodiscard]] std::vector<Column> columns() const override;

 protected:
  /// The table cells of one result.
  [[nodiscard]] virtual std::vector<std::string> cells(const RaceRow& row) const = 0;
  /// Makes a sink for the results of a case. It forwards them to `sink`, which must outlive it.
  [[nodiscard]] RaceSink rows_to(const Sink& sink) const;
};

/// The rate of an instruction: a loop in registers on all threads, which takes about two
/// milliseconds. That is long compared with waking the threads.
struct Ceiling {
  RegisterLoop loop;
  long steps = 1024;
  double operations = 0;

  Ceiling(Context& context, const RegisterLoop& loop_);
};

/// The rate of a subject divided by that of a register loop, computed round by round: (operations /
/// time) / (ceiling_operations / ceiling's time).
measure::Middle share_of(const measure::Timed& subject, double operations,
                         const measure::Timed& ceiling, double ceiling_operations);

/// A share with its spread as text: "82 ± 1 %".
std::string share_text(const measure::Middle& share, std::int64_t samples);

/// Configurations that a bench did not measure, as texts: those with wrong results, and those that
/// could not be checked.
struct LeftOut {
  std::vector<std::string> wrong;
  std::vector<std::string> unvalidated;
};

/// Whether a configuration gives right results, checked in another process. If not, adds the reason
/// to `left_out` under this name.
bool is_right(autotune::Validator& validator, const ConfigQuery& query, const ConfigChoice& choice,
              const std::string& name, LeftOut& left_out);

/// Warns of the configurations that the cases of a bench left out.
class LeftOutWarnings {
 public:
  /// Warns of the configurations that one case left out. If a configuration of any case was wrong,
  /// throws Error(device_error) after the last case, so that all cases are measured first.
  void add(Session& session, const LeftOut& of_case, std::string_view bench, bool is_last);

 private:
  std::size_t wrong_ = 0;
};

}  // namespace switchback::bench
