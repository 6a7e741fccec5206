// SPDX-License-Identifier: Apache-2.0
#include "bench/compare/compare_builds.hpp"

#include <fmt/format.h>
#include <stdlib.h>  // NOLINT: mkdtemp is not of C++

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <random>
#include <system_error>

#include "bench/cli/cli.hpp"
#include "bench/cli/signals.hpp"
#include "bench/workload/output.hpp"
#include "bench/workload/record_file.hpp"
#include "bench/workload/workload.hpp"
#include "core/check.hpp"
#include "measure/stopwatch.hpp"

namespace switchback::bench {

namespace {

/// The directory for the records of compare-builds. It is removed with its files, unless the user
/// wants to keep it.
class Place {
 public:
  explicit Place(const std::string& keep) : kept_(!keep.empty()) {
    std::error_code error;
    if (kept_) {
      path_ = keep;
      std::filesystem::create_directories(path_, error);
      if (error)
        core::fail(Status::io_error, "--keep '{}': the directory cannot be created: {}", keep,
                   error.message());
      core::require(std::filesystem::is_empty(path_, error) && !error,
                    "--keep '{}': it must be a new or an empty directory", keep);
      return;
    }
    const std::filesystem::path base = std::filesystem::temp_directory_path(error);
    std::string name = ((error ? "/tmp" : base) / "switchback-compare-builds-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr)
      core::fail(Status::io_error, "{}: it cannot be created: {}", name, std::strerror(errno));
    path_ = name;
  }
  ~Place() {
    std::error_code ignored;
    if (!kept_) std::filesystem::remove_all(path_, ignored);
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  [[nodiscard]] std::string of(const char* name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
  bool kept_;
};

std::string last_line(const std::string& path) {
  const std::vector<std::string> lines = split_list(read_file(path), '\n');
  return lines.empty() ? "it printed nothing" : lines.back();
}

void check_command(const std::vector<std::string>& command) {
  core::require(!command.empty() && !command.front().starts_with('-'),
                "compare-builds: give a workload and its options after '--', such as: -- run "
                "--shape 64,512,512");
  for (const std::string& word : command)
    for (const char* own : {"--out", "--append", "--resume", "--dry-run"})
      core::require(word != own && !word.starts_with(std::string(own) + "="),
                    "compare-builds: {}: leave this option out; compare-builds chooses the record "
                    "files itself (--keep DIR keeps them)",
                    own);
}

class Pairs {
 public:
  Pairs(const CompareBuildsOptions& options, const Place& place)
      : options_(options), place_(place) {}

  /// Runs side A or B once. Returns false if the user interrupted it.
  bool run(bool is_b) const {
    const Contender& contender = is_b ? options_.b : options_.a;
    std::vector<std::string> arguments = options_.command;
    for (const std::string& word :
         {std::string("--out"), path(is_b), std::string("--append"), std::string("--quiet")})
      arguments.push_back(word);
    const std::string errors = place_.of("stderr.txt");
    const ChildEnd end = run_child(contender, arguments, errors);
    if (end.interrupted) return false;
    if (end.code != 0)
      core::fail(Status::device_error, "compare-builds: {} ended with exit code {}: {}",
                 contender.text, end.code, last_line(errors));
    return true;
  }
  [[nodiscard]] std::string path(bool is_b) const {
    return place_.of(is_b ? "b.jsonl" : "a.jsonl");
  }

 private:
  const CompareBuildsOptions& options_;
  const Place& place_;
};

}  // namespace

SideComparison compare_pairs(Side a, Side b, const CompareSelection& selection,
                             const VerdictRules& rules) {
  SideComparison result = compare(std::move(a), std::move(b), selection, rules);
  for (CaseComparison& c : result.cases) {
    const auto other = std::find_if(result.now.cases.begin(), result.now.cases.end(),
                                    [&](const CaseTimes& x) { return same_case(c.ref, x); });
    for (FieldComparison& f : c.fields) {
      const FieldTimes& before = *c.ref.field(f.field);
      const FieldTimes& after = *other->field(f.field);
      std::vector<double> ref_ms, new_ms;
      for (std::size_t i = 0; i < std::min(before.runs.size(), after.runs.size()); ++i) {
        ref_ms.push_back(before.runs[i].median_ms);
        new_ms.push_back(after.runs[i].median_ms);
      }
      f.evidence = weigh_pairs(ref_ms, new_ms);
    }
    add_relative(c, c.ref, *other);
  }
  judge_all(result.cases, rules);
  return result;
}

CompareBuildsResult run_compare_builds(const CompareBuildsOptions& options,
                                       const CompareSelection& selection, const VerdictRules& rules,
                                       StatusLine& out) {
  check_command(options.command);
  const measure::Clock::time_point start = measure::Clock::now();
  const auto elapsed_s = [&] { return measure::seconds_between(start, measure::Clock::now()); };
  const StopSignals signals;
  const Place place(options.keep);
  const Pairs pairs(options, place);
  std::mt19937_64 random(options.seed);
  CompareBuildsResult result;
  for (int pair = 0; pair < options.pairs; ++pair) {
    const double each_s = pair > 0 ? elapsed_s() / pair : 0;
    if (options.deadline_s && pair > 0 && elapsed_s() + each_s > *options.deadline_s) {
      result.end = CompareBuildsEnd::deadline;
      break;
    }
    const bool b_first = (random() >> 63) != 0;
    out.status(fmt::format(
        "pair {} of {}{}", pair + 1, options.pairs,
        pair > 0 ? ", about " + format_duration(each_s * (options.pairs - pair)) + " left" : ""));
    const double begun_s = elapsed_s();
    if (StopSignals::requested() || !pairs.run(b_first) || !pairs.run(!b_first)) {
      result.end = CompareBuildsEnd::interrupted;
      break;
    }
    ++result.pairs;
    out.clear();
    out.note(fmt::format("[{}/{}] {} first, {}", result.pairs, options.pairs, b_first ? "B" : "A",
                         format_duration(elapsed_s() - begun_s)));
  }
  out.clear();
  if (result.pairs == 0) throw Interrupted{};
  Side a = load_side(pairs.path(false)), b = load_side(pairs.path(true));
  a.path = "A = " + options.a.text;
  b.path = "B = " + options.b.text;
  result.comparison = compare_pairs(std::move(a), std::move(b), selection, rules);
  return result;
}

}  // namespace switchback::bench
