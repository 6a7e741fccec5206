// SPDX-License-Identifier: Apache-2.0
#include "bench/workload/output.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "core/check.hpp"

namespace switchback::bench {

namespace {

// How every line of a run file begins, and an upper bound for its length in bytes.
constexpr std::string_view run_line_start = "{\"type\":";
constexpr std::int64_t run_line_bytes = 16384;

void check_run_line(std::string_view line) {
  const std::string type = text_at(Json::parse(line, nullptr, false), "type");
  core::require(type == "run_start" || type == "case" || type == "run_end",
                "not a line of a run file");
}

}  // namespace

std::string text_at(const Json& object, const char* key) {
  if (!object.is_object()) return "";
  const auto at = object.find(key);
  if (at == object.end()) return "";
  return at->is_string() ? at->get<std::string>() : at->dump();
}

std::vector<std::string> setting_of(const Json& machine, const Json& more) {
  std::vector<std::string> setting;
  for (const char* key : {"device", "cpu", "isa", "threads"})
    setting.push_back(fmt::format("{}={}", key, text_at(machine, key)));
  for (const auto& [key, value] : more.items())
    setting.push_back(fmt::format("{}={}", key, text_at(more, key.c_str())));
  return setting;
}

std::string run_log_path(const std::string& record_path) {
  constexpr std::string_view ending = ".jsonl";
  std::string stem = record_path;
  if (stem.size() > ending.size() && stem.ends_with(ending))
    stem.resize(stem.size() - ending.size());
  return stem + ".run.jsonl";
}

std::string json_line(const Json& object) {
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

RunOutput::RunOutput(const std::string& out, OpenMode mode, const RecordFormat& format)
    : most_bytes_(format.most_bytes) {
  if (out.empty()) return;
  std::error_code ignored;
  const bool is_new = out != "-" && !std::filesystem::exists(out, ignored);
  records_.emplace(out, mode, format.line_start,
                   [&](std::string_view line) { static_cast<void>(format.read(line)); });
  if (!records_->regular()) return;
  try {
    run_file_.emplace(run_log_path(out), mode, run_line_start, check_run_line);
  } catch (const Error&) {
    // The new record file is removed: records without a run file would look like published ones.
    if (is_new) std::filesystem::remove(out, ignored);
    throw;
  }
}

void RunOutput::reserve(std::size_t cases) {
  const auto count = static_cast<std::int64_t>(cases);
  if (records_) records_->reserve(count * most_bytes_);
  if (run_file_) run_file_->reserve((count + 2) * run_line_bytes);
}

void RunOutput::write_records(const std::vector<Row>& rows) {
  std::string lines;
  for (const Row& row : rows)
    lines += (lines.empty() ? "" : "\n") + row.line;
  if (records_ && !rows.empty()) records_->write(lines);
}

void RunOutput::write_run_line(const Json& line) {
  if (run_file_) run_file_->write(json_line(line));
}

const std::vector<std::string>& RunOutput::lines_of(const std::optional<LineFile>& file) noexcept {
  static const std::vector<std::string> none;
  return file ? file->lines() : none;
}

std::vector<std::string> RunOutput::notes() const {
  std::vector<std::string> all;
  for (const std::optional<LineFile>* file : {&records_, &run_file_})
    if (*file) all.insert(all.end(), (*file)->notes().begin(), (*file)->notes().end());
  return all;
}

}  // namespace switchback::bench
