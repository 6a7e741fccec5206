// SPDX-License-Identifier: Apache-2.0
// Bench: the two files that a run writes, opened and checked before anything is measured. They are
// the records and, next to a regular file of records, the run file, which says how each record was
// measured.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/workload/record_file.hpp"
#include "bench/workload/workload.hpp"

namespace switchback::bench {

/// The path of the run file for a file of records: "x.run.jsonl" for "x.jsonl"; for other names,
/// ".run.jsonl" is appended.
std::string run_log_path(const std::string& record_path);

/// A JSON object as one line of text. Invalid UTF-8 is replaced.
std::string json_line(const Json& object);

class RunOutput {
 public:
  /// Opens both files. `out` is "-" for standard output, and empty for no output. Throws Error for
  /// a file of another workload, a file that cannot be written, or in mode create a file that is
  /// not empty. Then no new file remains.
  RunOutput(const std::string& out, OpenMode mode, const RecordFormat& format);
  /// Reserves disk space for the lines of this many cases. Throws Error(io_error) if the disk is
  /// full.
  void reserve(std::size_t cases);

  /// Writes the records of one case: all or none of them.
  void write_records(const std::vector<Row>& rows);
  void write_run_line(const Json& line);

  /// The lines of the record file and of the run file when they were opened.
  [[nodiscard]] const std::vector<std::string>& records() const noexcept {
    return lines_of(records_);
  }
  [[nodiscard]] const std::vector<std::string>& run_lines() const noexcept {
    return lines_of(run_file_);
  }
  /// Whether the end of the record file was lost, and with it perhaps some records of the last
  /// case.
  [[nodiscard]] bool records_torn() const noexcept {
    return records_ && !records_->notes().empty();
  }
  /// What was repaired in the two files when they were opened.
  [[nodiscard]] std::vector<std::string> notes() const;
  /// Whether records go to standard output.
  [[nodiscard]] bool to_stdout() const noexcept { return records_ && records_->path() == "-"; }

 private:
  static const std::vector<std::string>& lines_of(const std::optional<LineFile>& file) noexcept;

  std::optional<LineFile> records_, run_file_;
  std::int64_t most_bytes_;
};

/// The settings that a resumed run must share with the last run, as "key=value" in a fixed order:
/// device, CPU, instruction set and threads from `machine` (machine_json()), and the members of
/// `more`.
std::vector<std::string> setting_of(const Json& machine, const Json& more);

/// A text member of a JSON object; "" if it is missing. A value that is not a text is returned as
/// JSON text.
std::string text_at(const Json& object, const char* key);

}  // namespace switchback::bench
