// SPDX-License-Identifier: Apache-2.0
// Bench: the two files a run writes, opened and checked before anything is measured.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/run/record.hpp"
#include "bench/workload/log.hpp"
#include "bench/workload/record_file.hpp"

namespace switchback::bench {

/// The record file and, beside a regular one, the run file. Both exist and have room when the
/// constructor returns.
class RunOutput {
 public:
  RunOutput(const std::string& out, OpenMode mode, std::int64_t cases);

  void write(const Record& record);
  void write(const nlohmann::ordered_json& run_log_line);

  /// Records there when the file was opened.
  [[nodiscard]] const std::vector<Record>& records() const noexcept { return existing_; }
  [[nodiscard]] const RunLog& log() const noexcept { return log_; }
  /// What was repaired in the files.
  [[nodiscard]] std::vector<std::string> notes() const;
  /// Whether records go to standard output.
  [[nodiscard]] bool to_stdout() const noexcept { return records_.path() == "-"; }

 private:
  LineFile records_;
  std::optional<LineFile> run_log_;
  std::vector<Record> existing_;
  RunLog log_;
};

/// Whether a record has every field of the set that records have.
bool complete(const Record& record, const FieldSet& fields) noexcept;

}  // namespace switchback::bench
