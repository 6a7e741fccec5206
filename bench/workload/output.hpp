// SPDX-License-Identifier: Apache-2.0
// Bench: the two files that a run writes, opened and checked before anything is measured: the
// records and, beside a regular file of records, the run file, which says how each was made.
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

/// "x.run.jsonl" for "x.jsonl", else the name with ".run.jsonl" appended.
std::string run_log_path(const std::string& record_path);

/// One line; text that is not UTF-8 is replaced.
std::string json_line(const Json& object);

class RunOutput {
 public:
  /// `out` is "-" for standard output, and empty for no output at all. Throws Error for a file of
  /// another workload, one that cannot be written, or one with content in mode create; then no new
  /// file is left.
  RunOutput(const std::string& out, OpenMode mode, const RecordFormat& format);
  /// Reserves room for this many cases. Throws Error(io_error) if the disk is full.
  void reserve(std::size_t cases);

  /// Writes the records of one case, all or none of them.
  void write_records(const std::vector<Row>& rows);
  void write_run_line(const Json& line);

  /// The lines found when the files were opened.
  [[nodiscard]] const std::vector<std::string>& records() const noexcept {
    return lines_of(records_);
  }
  [[nodiscard]] const std::vector<std::string>& run_lines() const noexcept {
    return lines_of(run_file_);
  }
  /// Whether the end of the records was lost, and with it perhaps some of the last case's.
  [[nodiscard]] bool records_torn() const noexcept {
    return records_ && !records_->notes().empty();
  }
  /// What was repaired in the files.
  [[nodiscard]] std::vector<std::string> notes() const;
  /// Whether records go to standard output.
  [[nodiscard]] bool to_stdout() const noexcept { return records_ && records_->path() == "-"; }

 private:
  static const std::vector<std::string>& lines_of(const std::optional<LineFile>& file) noexcept;

  std::optional<LineFile> records_, run_file_;
  std::int64_t most_bytes_;
};

/// What a resumed run must share with the last one, as "key=value" in one order: what `machine`
/// (of machine_json()) says of device and threads, and the members of `more`.
std::vector<std::string> setting_of(const Json& machine, const Json& more);

/// A text of a JSON object, "" if there is none; what is not a text is dumped.
std::string text_at(const Json& object, const char* key);

}  // namespace switchback::bench
