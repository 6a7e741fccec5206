// SPDX-License-Identifier: Apache-2.0
// Bench: the `merge` subcommand: joins the records of several runs in one file, and their run files
// in another.
#include <fmt/format.h>
#include <sys/stat.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>

#include "bench/cli/cli.hpp"
#include "bench/run/record.hpp"
#include "bench/workload/output.hpp"
#include "bench/workload/record_file.hpp"
#include "bench/workload/whole_file.hpp"
#include "core/check.hpp"

namespace switchback::bench {

namespace {

/// A line of a record file. For `run` also the shape of its case, by which lines are sorted.
struct MergedLine {
  std::string text;
  std::optional<Case> shape;
};

struct MergeFile {
  std::string path;
  std::vector<MergedLine> records;
  std::string run_lines;
  std::string workload;              ///< workload of the records
  std::vector<std::string> setting;  ///< settings of the last run in the run file; empty: not known
};

// The settings that all runs in one file must share, as for --resume. They are those of the last
// run in these lines of a run file.
std::vector<std::string> setting_in(const std::string& run_lines) {
  Json last;
  for (const std::string& line : split_list(run_lines, '\n'))
    if (Json json = Json::parse(line, nullptr, false); text_at(json, "type") == "run_start")
      last = std::move(json);
  if (last.is_null()) return {};
  Json more = Json::object();
  for (const char* key : {"dtype", "mode"})
    if (last.contains(key)) more[key] = last[key];
  return setting_of(last.value("machine", Json()), more);
}

std::string whole_lines(std::string text) {
  if (!text.empty() && !text.ends_with('\n')) text += '\n';
  return text;
}

MergeFile read_merge_file(const std::string& path) {
  MergeFile file;
  file.path = path;
  std::size_t number = 0;
  for (std::string& line : split_list(read_file(path), '\n')) {
    ++number;
    const Json json = Json::parse(line, nullptr, false);
    std::string workload = text_at(json, "workload");
    MergedLine merged;
    if (workload.empty()) {
      try {
        merged.shape = parse_record(line).shape;
      } catch (const Error& error) {
        core::fail(Status::invalid_argument, "{}:{}: {}", path, number, error.what());
      }
      workload = "run";
    }
    core::require(file.workload.empty() || file.workload == workload,
                  "{}:{}: a record of {} among those of {}", path, number, workload, file.workload);
    file.workload = workload;
    merged.text = std::move(line);
    file.records.push_back(std::move(merged));
  }
  core::require(!file.records.empty(), "{}: it has no records", path);
  struct stat status {};
  const std::string beside = run_log_path(path);
  if (::stat(beside.c_str(), &status) == 0) file.run_lines = whole_lines(read_file(beside));
  file.setting = setting_in(file.run_lines);
  return file;
}

void check_alike(const MergeFile& first, const MergeFile& other, bool mixed) {
  if (first.workload != other.workload)
    core::fail(Status::invalid_argument, "{} has records of {}, but {} has records of {}",
               first.path, first.workload, other.path, other.workload);
  if (mixed || first.setting.empty() || other.setting.empty()) return;
  for (std::size_t i = 0; i < std::min(first.setting.size(), other.setting.size()); ++i)
    if (first.setting[i] != other.setting[i])
      core::fail(Status::invalid_argument,
                 "{} was measured with {}, but {} with {}; --mixed merges them anyway", first.path,
                 first.setting[i], other.path, other.setting[i]);
}

void merge_files(const std::vector<std::string>& paths, const std::string& out, bool force,
                 bool mixed) {
  const std::string run_out = run_log_path(out);
  check_new_file("--out", out, force);
  check_new_file("--out", run_out, force);
  std::vector<MergeFile> files;
  for (const std::string& path : paths) {
    files.push_back(read_merge_file(path));
    check_alike(files.front(), files.back(), mixed);
  }
  std::vector<MergedLine> records;
  std::string run_lines, without;
  for (MergeFile& file : files) {
    std::move(file.records.begin(), file.records.end(), std::back_inserter(records));
    run_lines += file.run_lines;
    if (file.run_lines.empty()) without += (without.empty() ? "" : ", ") + file.path;
  }
  // Records are in the order in which one run would have written them. Records of equal shapes stay
  // in the order of the files.
  std::stable_sort(records.begin(), records.end(), [](const MergedLine& a, const MergedLine& b) {
    return a.shape && b.shape && case_less(*a.shape, *b.shape);
  });
  std::string text;
  for (const MergedLine& record : records)
    text += record.text + "\n";
  // The run file is written first, because records without a run file would look like published
  // ones.
  std::error_code ignored;
  if (run_lines.empty())
    // With --force it may belong to the replaced records.
    std::filesystem::remove(run_out, ignored);
  else
    write_new_file(run_out, run_lines);
  write_new_file(out, text);
  fmt::print(stderr, "{}: {} records of {} files{}\n", out, records.size(), files.size(),
             without.empty() ? "" : "; no run file next to " + without);
}

}  // namespace

void add_merge_command(CLI::App& app) {
  struct Arguments {
    std::vector<std::string> files;
    std::string out;
    bool force = false, mixed = false;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand(
      "merge", "Merge the records of several runs, such as shards, into one file");
  command->add_option("FILE", arguments->files, "files of records of one workload")->required();
  command->add_option("--out", arguments->out, "the new file; NAME.run.jsonl is written next to it")
      ->required()
      ->type_name("FILE");
  command->add_flag("--force", arguments->force, "replace existing files");
  command->add_flag(
      "--mixed", arguments->mixed,
      "merge even if machines, threads or types differ; readers then use those of the last run");
  command->footer(
      "Records of 'run' are sorted by work; those of other workloads keep the order of the files. "
      "The run files next to them are merged in the same order.\n\n"
      "Example:\n"
      "  switchback-bench run --grid llm --shard 1/2 --out a.jsonl\n"
      "  switchback-bench run --grid llm --shard 2/2 --out b.jsonl\n"
      "  switchback-bench merge a.jsonl b.jsonl --out llm.jsonl");
  command->callback([arguments] {
    merge_files(arguments->files, arguments->out, arguments->force, arguments->mixed);
    set_exit_code(exit_codes::ok);
  });
}

}  // namespace switchback::bench
