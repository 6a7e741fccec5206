// SPDX-License-Identifier: Apache-2.0
// Bench: the comparisons of `micro` (measure/rounds.hpp): the participants, a subject against its
// rival as a row, and the rate of an instruction in registers as a rival.
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

/// The least number of rounds of a group of rivals, unless a deadline cuts them: with fewer calls
/// there is no spread to show.
inline constexpr int fewest_micro_rounds = 3;
/// Removes the rivals that refuse their arguments with Error(unsupported).
std::vector<measure::Rival> without_refusing(std::vector<measure::Rival> rivals);

/// Names of the available engines that are meant to be fast (not the reference).
std::vector<std::string> fast_engines(const std::vector<EngineInfo>& infos);
/// The same for floating point products. Engines that round the factors first are left out, because
/// they compute another product.
std::vector<std::string> fast_floating_engines(const Context& context);

/// One subject against its rival. Ratios are computed round by round: rival / subject.
struct RaceRow {
  std::string bench;
  std::string subject;  ///< an engine, or what the layer does, or an operation
  std::string rival;    ///< empty: no rival
  std::string variant;  ///< a layer's mode, an activation, or a memory level
  DType dtype = DType::f32;
  MicroShape shape;
  measure::Stats subject_ms;
  measure::Stats rival_ms;
  measure::Middle ratio;  ///< zeros without a rival
  measure::Disturbance disturbance;

  // Members that only some benches fill.
  double gop_s = 0;                      ///< of products, 2·M·N·K each, per second, in 1e9
  double gb_s = 0;                       ///< bytes read and written per second, in 1e9
  std::optional<DType> output;           ///< the output type of an int8 product
  std::string ceiling;                   ///< the instruction whose rate in registers is the ceiling
  std::optional<measure::Middle> share;  ///< of that ceiling, in the same rounds
  /// For int8 products: the time to read the bytes of W's codes once, divided by the time of the
  /// call. The buffer that is read was last touched as long ago as W's codes.
  std::optional<measure::Middle> read_share;

  RaceRow() = default;
  RaceRow(std::string bench_name, std::string subject_name, const measure::Timed& subject_timed,
          const measure::Timed& rival_timed);
};
using RaceSink = std::function<void(const RaceRow&)>;

/// The operations of one product of this shape, two per multiply-add.
double operations_of(const MicroShape& shape) noexcept;

/// All records of such rows have the columns of all these benches. A column that a bench does not
/// have is null.
Json to_json(const RaceRow& row);

// The cells of the table.
std::string shape_text(const MicroShape& shape);
std::string time_text(const measure::Stats& stats);
std::string ratio_text(const RaceRow& row);

/// A bench whose rows compare a subject with a rival.
class RaceBench : public MicroBench {
 public:
  using MicroBench::MicroBench;
  [[nodiscard]] std::vector<Column> columns() const override;

 protected:
  /// The cells of a row in the table.
  [[nodiscard]] virtual std::vector<std::string> cells(const RaceRow& row) const = 0;
  /// A sink for the rows of a case. It forwards them to `sink`, which must outlive it.
  [[nodiscard]] RaceSink rows_to(const Sink& sink) const;
};

/// A loop in registers of about two milliseconds on all threads, which is long compared with waking
/// them.
struct Ceiling {
  RegisterLoop loop;
  long steps = 1024;
  double operations = 0;

  Ceiling(Context& context, const RegisterLoop& loop_);
};

/// (operations / time) / (ceiling's operations / its time), round by round.
measure::Middle share_of(const measure::Timed& subject, double operations,
                         const measure::Timed& ceiling, double ceiling_operations);

/// "82 ± 1 %"
std::string share_text(const measure::Middle& share, std::int64_t samples);

/// Configurations that were not measured, as texts: those that were wrong, and those that could not
/// be validated.
struct LeftOut {
  std::vector<std::string> wrong;
  std::vector<std::string> unvalidated;
};

/// Whether a configuration is right. If not, adds the reason to `left_out` under this name.
bool is_right(autotune::Validator& validator, const ConfigQuery& query, const ConfigChoice& choice,
              const std::string& name, LeftOut& left_out);

/// Warns of the configurations that the cases of a bench left out.
class LeftOutWarnings {
 public:
  /// If a configuration of any case was wrong, throws Error(device_error) after the last case. So
  /// the other cases are measured first.
  void add(Session& session, const LeftOut& of_case, std::string_view bench, bool is_last);

 private:
  std::size_t wrong_ = 0;
};

}  // namespace switchback::bench
