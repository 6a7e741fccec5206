// SPDX-License-Identifier: Apache-2.0
// Bench: a workload is measured case by case, writes records with its own columns, and is a
// subcommand. Everything else that such a subcommand offers comes from
// run_workload().
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

/// How a case of a workload ends.
enum class CaseStatus { ok, skipped, wrong, unsupported, oom, timeout };
std::string_view status_text(CaseStatus status) noexcept;

/// Thrown out of a measurement when the user has asked to stop.
using measure::Interrupted;

class Session;
struct SessionOptions;

using Json = nlohmann::ordered_json;

/// Which ratios in a column are better.
enum class Better {
  unknown,  ///< not a ratio, or neither direction is better
  more,
  less,
};

/// A column of a workload's records. A value is a number, a text, true or false, an object of
/// numbers (a statistic), or null if it was not measured.
struct Column {
  std::string name;       ///< the key in records
  std::string meaning;    ///< a phrase for users
  std::string unit = {};  ///< "ms", "bytes", "GB/s"; empty: no unit
  bool is_text = false;   ///< left-aligned in the table
  bool in_table = true;
  Better better = Better::unknown;  ///< for a ratio to a baseline, which is 1
};

/// One record, as written to the file and shown in the table.
struct Row {
  std::string line = {};                ///< the record, without its newline
  std::vector<std::string> cells = {};  ///< of the table
  std::string summary = {};             ///< a short form of the row; may be empty
  Json samples = {};                    ///< by column, of the statistics; see take_samples()
};
/// Receives the rows of a case as they are measured.
using Sink = std::function<void(Row row)>;

/// A case before it is measured. Values that a workload cannot estimate are 0.
struct CasePlan {
  std::string id;    ///< identifies the case in files: the same id means the same work
  double bytes = 0;  ///< memory of the case
  double total_s = 0;
  double shortest_s = 0;  ///< with the fewest calls that a deadline may leave
  int repeat = 0;         ///< timed calls
};

/// How a case ended.
struct CaseOutcome {
  CaseStatus status = CaseStatus::ok;
  std::string why = {};      ///< why it is not ok
  std::string summary = {};  ///< its result in a short form, for the user who waits
  /// The planned time of the work that was really done, if it was less (for example fewer calls);
  /// empty: CasePlan::total_s.
  std::optional<double> planned_s = std::nullopt;
};

/// The case of a line in a record file.
struct RecordedCase {
  std::string id;
  bool complete = true;  ///< has everything requested, so that --resume skips the case
};

/// The format of a workload's records in a file.
struct RecordFormat {
  std::string line_start;  ///< the start of every line, which identifies a truncated line
  /// Throws Error(invalid_argument) unless the line is such a record.
  std::function<RecordedCase(std::string_view line)> read;
  bool one_line_a_case = false;
  std::int64_t most_bytes = 8192;  ///< for one case; space for all is reserved at the start
};

/// The functions are called in the order of their declarations; those with a body are optional.
class Workload {
 public:
  virtual ~Workload() = default;

  /// The value of "workload" in records.
  [[nodiscard]] virtual std::string_view name() const = 0;
  /// The name of the subcommand.
  [[nodiscard]] virtual std::string_view command() const { return name(); }
  /// One line for the list of subcommands.
  [[nodiscard]] virtual std::string_view about() const = 0;
  /// Text below the options in --help.
  [[nodiscard]] virtual std::string footer() const { return {}; }
  /// Adds the workload's own options, whose values it keeps, and the options that all workloads
  /// share.
  virtual void add_options(CLI::App& command, SessionOptions& shared);
  /// A new workload of the same kind, with default options. --axis needs one for each value of an
  /// option that accepts only one value. Null: such options cannot be axes.
  [[nodiscard]] virtual std::shared_ptr<Workload> another() const { return nullptr; }
  /// Called once when all options are known, before a device is opened. Throws
  /// Error(invalid_argument).
  virtual void check_options() {}

  /// The columns of its records, in order.
  [[nodiscard]] virtual std::vector<Column> columns() const = 0;
  /// By default {"workload": name, "case": id} and the columns.
  [[nodiscard]] virtual RecordFormat format() const;

  /// Checks the options against the device.
  virtual void open(Session&) {}
  /// The cases in the order in which they are measured. May measure the machine for its estimates.
  virtual std::vector<CasePlan> plan(Session& session) = 0;
  /// The settings that all cases in one file must share, in addition to machine and threads, such
  /// as the input type. They are written to the run file, and --resume refuses to mix different
  /// settings.
  [[nodiscard]] virtual Json setting() const { return Json::object(); }
  /// Adds members to the first line of a run in the run file. The keys that every workload has
  /// follow them, except keys that this function has already set.
  virtual void describe_run(Session&, Json& /*line*/) const {}
  /// Receives the earlier contents of the two files. By default, keeps their records and adds them
  /// to the table with `show`.
  virtual void take_existing(const std::vector<std::string>& records,
                             const std::vector<std::string>& run_lines, const Sink& show);

  /// Measures the case with this index in the plan. Throws Interrupted if the session asks to stop.
  virtual CaseOutcome measure(Session& session, std::size_t i, const Sink& sink) = 0;
  /// Supplies rows for a case that is not measured because its plan needs more memory than is
  /// available. By default there are none, and the case is only mentioned.
  virtual void skip(std::size_t /*i*/, double /*available_bytes*/, const Sink& /*sink*/) {}
  /// Adds members to the line of a case in the run file, in the same way; `measured` is false for a
  /// case that was not begun.
  virtual void describe_case(std::size_t /*i*/, bool /*measured*/, Json& /*line*/) const {}
  /// Adds members to the last line of a run.
  virtual void describe_end(Json& /*line*/) const {}
  /// The output for users at the end. By default the sentence on rows in doubt (which may be
  /// empty), the table of all rows, and print_more().
  virtual void print_report(Session& session, const Table& table, const std::string& doubt,
                            std::FILE* to) const;

  /// Prints the text after the table.
  virtual void print_more(Session&, std::FILE* /*to*/) const {}

  /// The published figures compared with those of records, as they are in a file; empty: nothing is
  /// published.
  [[nodiscard]] virtual std::string published_beside(std::span<const Json> /*records*/) const {
    return {};
  }

  /// A picture of losses over steps, as SVG, from records that have losses; empty if no record has
  /// them.
  [[nodiscard]] virtual std::string losses_of(std::span<const Json> /*records*/) const {
    return {};
  }

  /// The word for its cases in messages: "cases".
  [[nodiscard]] virtual std::string_view cases_noun() const { return "cases"; }

 protected:
  /// A row in the default format, from values by column name. A column without a value is null; a
  /// value without a column throws Error(internal). The record is kept.
  [[nodiscard]] Row row(const std::string& case_id, const Json& values);
  /// All records that were kept.
  [[nodiscard]] const std::vector<Json>& records() const noexcept { return records_; }

 private:
  std::vector<Json> records_;
};

/// The workloads of this program in the order in which they are shown, from the lists in
/// bench/CMakeLists.txt and studies/CMakeLists.txt.
std::vector<std::shared_ptr<Workload>> make_workloads();
/// Null if there is no such workload.
std::shared_ptr<Workload> make_workload(std::string_view name);

/// Runs a workload: its cases in order, within the limits of time and memory, resumed after an
/// earlier run if requested, with all output to files and to the user. Returns an exit code. Throws
/// Error for a problem before the first case.
int run_workload(Workload& workload, const SessionOptions& options);

/// The table for these columns, with its headings ("forward [ms]").
Table table_of(const std::vector<Column>& columns);
/// The cells of a record in that table.
std::vector<std::string> cells_of(const std::vector<Column>& columns, const Json& record);
/// The text of a record's value in a table: "3.61"; "3.61 ± 0.04" for an object with a median and
/// its deviation; "-" for null.
std::string cell_of(const Json& value);

}  // namespace switchback::bench
