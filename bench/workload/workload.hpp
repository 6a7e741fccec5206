// SPDX-License-Identifier: Apache-2.0
// Bench: a workload is a subcommand that measures cases one by one and writes records with its own
// columns. Everything else that such a subcommand offers comes from run_workload().
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/cli/table.hpp"
#include "measure/rounds.hpp"

namespace CLI {
class App;
}  // namespace CLI

namespace switchback::bench {

/// How a case of a workload ended.
enum class CaseStatus { ok, skipped, wrong, unsupported, oom, timeout };
std::string_view status_text(CaseStatus status) noexcept;

/// Thrown out of a measurement if the user has asked to stop.
using measure::Interrupted;

class Session;
struct SessionOptions;

using Json = nlohmann::ordered_json;

/// Whether larger or smaller ratios in a column are better.
enum class Better {
  unknown,  ///< the column has no ratios, or neither direction is better
  more,
  less,
};

/// A column of a workload's records. Its value in a record is a number, a text, true or false, an
/// object of numbers (a statistic), or null if it was not measured.
struct Column {
  std::string name;       ///< the column's key in records
  std::string meaning;    ///< a phrase that explains the column to users
  std::string unit = {};  ///< unit of the values: "ms", "bytes", "GB/s"; empty: no unit
  bool is_text = false;   ///< whether values are texts, left-aligned in the table
  bool in_table = true;
  Better better = Better::unknown;  ///< for ratios to a baseline, which is 1: which ones are better
};

/// One record in both forms: as it is written to the file, and as it is shown in the table.
struct Row {
  std::string line = {};                ///< the record as a line of the file, without its newline
  std::vector<std::string> cells = {};  ///< the cells of the table
  std::string summary = {};             ///< the result in a few words; may be empty
  Json samples = {};  ///< samples of the record's statistics, by column; see take_samples()
};
/// Called with each row of a case as soon as it is measured.
using Sink = std::function<void(Row row)>;

/// The plan of a case before it is measured. Values that a workload cannot estimate are 0.
struct CasePlan {
  std::string id;    ///< identifies the case in files; cases with the same id are the same work
  double bytes = 0;  ///< memory that the case needs
  double total_s = 0;
  double shortest_s = 0;  ///< seconds with the fewest calls that a deadline may leave
  int repeat = 0;         ///< number of timed calls
};

/// How a case ended, and why.
struct CaseOutcome {
  CaseStatus status = CaseStatus::ok;
  std::string why = {};      ///< why the status is not ok
  std::string summary = {};  ///< the result in a few words, for the user who waits
  /// The planned time of the work that was really done, if it was less than planned (for example
  /// fewer calls); empty: CasePlan::total_s.
  std::optional<double> planned_s = std::nullopt;
};

/// The case that a line of a record file belongs to.
struct RecordedCase {
  std::string id;
  /// Whether the line has everything requested, so that --resume skips the case.
  bool complete = true;
};

/// The format of the lines in a workload's record file.
struct RecordFormat {
  std::string line_start;  ///< how every line starts; identifies a truncated line
  /// Reads a line. Throws Error(invalid_argument) unless the line is a record of the workload.
  std::function<RecordedCase(std::string_view line)> read;
  bool one_line_a_case = false;
  /// The most bytes that one case writes; space for all cases is reserved at the start.
  std::int64_t most_bytes = 8192;
};

/// The interface of a workload. Its functions are called in the order of their declarations; those
/// with a body are optional.
class Workload {
 public:
  virtual ~Workload() = default;

  /// The workload's name: the value of "workload" in its records.
  [[nodiscard]] virtual std::string_view name() const = 0;
  /// The name of the workload's subcommand.
  [[nodiscard]] virtual std::string_view command() const { return name(); }
  /// One line about the workload for the list of subcommands.
  [[nodiscard]] virtual std::string_view about() const = 0;
  /// The text that --help prints below the options.
  [[nodiscard]] virtual std::string footer() const { return {}; }
  /// Adds the workload's own options, whose values it keeps, and the options that all workloads
  /// share.
  virtual void add_options(CLI::App& command, SessionOptions& shared);
  /// Makes a new workload of the same kind, with default options. --axis needs one for each value
  /// of an option that accepts only one value. Null: such options cannot be axes.
  [[nodiscard]] virtual std::shared_ptr<Workload> another() const { return nullptr; }
  /// Checks the options. Called once when all of them are known, before a device is opened. Throws
  /// Error(invalid_argument).
  virtual void check_options() {}

  /// The columns of the workload's records, in order.
  [[nodiscard]] virtual std::vector<Column> columns() const = 0;
  /// The format of the records. By default a record is {"workload": name, "case": id} and the
  /// columns.
  [[nodiscard]] virtual RecordFormat format() const;

  /// Checks the options against the device, which is now open.
  virtual void open(Session&) {}
  /// The plans of all cases, in the order in which they are measured. May measure the machine for
  /// its estimates.
  virtual std::vector<CasePlan> plan(Session& session) = 0;
  /// The settings that all cases in one record file must share, in addition to machine and threads,
  /// such as the input type. They are written to the run file, and --resume refuses to mix
  /// different settings.
  [[nodiscard]] virtual Json setting() const { return Json::object(); }
  /// Adds the workload's members to the first line of a run in the run file. The keys that every
  /// workload has follow them, except keys that this function has already set.
  virtual void describe_run(Session&, Json& /*line*/) const {}
  /// Receives the earlier lines of the record file and of the run file. By default, keeps the
  /// records and adds them to the table with `show`.
  virtual void take_existing(const std::vector<std::string>& records,
                             const std::vector<std::string>& run_lines, const Sink& show);

  /// Measures case number `i` of the plan. Throws Interrupted if the session asks to stop.
  virtual CaseOutcome measure(Session& session, std::size_t i, const Sink& sink) = 0;
  /// Supplies rows for a case that is not measured, because its plan needs more memory than is
  /// available. By default there are none, and the case is only mentioned.
  virtual void skip(std::size_t /*i*/, double /*available_bytes*/, const Sink& /*sink*/) {}
  /// Adds the workload's members to the line of a case in the run file; `measured` is false for a
  /// case that was not begun.
  virtual void describe_case(std::size_t /*i*/, bool /*measured*/, Json& /*line*/) const {}
  /// Adds the workload's members to the last line of a run in the run file.
  virtual void describe_end(Json& /*line*/) const {}
  /// Prints the output for users at the end of a run. By default that is the sentence on rows in
  /// doubt (which may be empty), the table of all rows, and print_more().
  virtual void print_report(Session& session, const Table& table, const std::string& doubt,
                            std::FILE* to) const;

  /// Prints more text after the table.
  virtual void print_more(Session&, std::FILE* /*to*/) const {}

  /// A text that compares these records, as they are in a file, with published figures; empty:
  /// nothing is published.
  [[nodiscard]] virtual std::string published_beside(std::span<const Json> /*records*/) const {
    return {};
  }

  /// A picture of losses over steps, as SVG, from records that have losses; empty if no record has
  /// them.
  [[nodiscard]] virtual std::string losses_of(std::span<const Json> /*records*/) const {
    return {};
  }

  /// The word for the workload's cases in messages to users.
  [[nodiscard]] virtual std::string_view cases_noun() const { return "cases"; }

 protected:
  /// Makes a row in the default format, from values by column name, and keeps its record. A column
  /// without a value is null; a value without a column throws Error(internal).
  [[nodiscard]] Row row(const std::string& case_id, const Json& values);
  /// All records that row() and take_existing() have kept.
  [[nodiscard]] const std::vector<Json>& records() const noexcept { return records_; }

 private:
  std::vector<Json> records_;
};

/// Makes all workloads of this program, in the order in which they are shown. They come from the
/// lists in bench/CMakeLists.txt and studies/CMakeLists.txt.
std::vector<std::shared_ptr<Workload>> make_workloads();
/// Makes the workload with this name; null if there is no such workload.
std::shared_ptr<Workload> make_workload(std::string_view name);

/// Runs a workload: measures its cases in order, within the limits of time and memory, and writes
/// all output to files and to the user. If requested, continues an earlier run. Returns an exit
/// code. Throws Error for a problem before the first case.
int run_workload(Workload& workload, const SessionOptions& options);

/// An empty table for these columns, with headings such as "forward [ms]".
Table table_of(const std::vector<Column>& columns);
/// The cells of a record in the table that table_of() makes for these columns.
std::vector<std::string> cells_of(const std::vector<Column>& columns, const Json& record);
/// The text of a record's value in a table: "3.61"; "3.61 ± 0.04" for an object with a median and
/// its deviation; "-" for null.
std::string cell_of(const Json& value);

}  // namespace switchback::bench
