// SPDX-License-Identifier: Apache-2.0
#include "bench/workload/workload.hpp"

#include <fmt/format.h>
#include <stdlib.h>  // NOLINT: getloadavg is not of C++

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <thread>

#include "autotune/tune.hpp"
#include "bench/cli/cli.hpp"
#include "bench/cli/signals.hpp"
#include "bench/machine/machine.hpp"
#include "bench/workload/disturbance.hpp"
#include "bench/workload/output.hpp"
#include "bench/workload/schedule.hpp"
#include "core/check.hpp"

namespace switchback::bench {

namespace {

constexpr int run_file_version = 1;

Json load_json(std::optional<double> others_cores) {
  Json json;
  json["others_cores"] = others_cores ? Json(*others_cores) : Json(nullptr);
  double average = 0;
  json["average_1min"] = ::getloadavg(&average, 1) == 1 ? Json(average) : Json(nullptr);
  return json;
}

// Refuses to resume a file of records whose last run had other settings.
void check_setting(const Workload& workload, const Session& session, const RunOutput& output) {
  if (output.records().empty()) return;
  Json last;
  for (const std::string& line : output.run_lines())
    if (Json json = Json::parse(line); text_at(json, "type") == "run_start") last = std::move(json);
  if (last.is_null()) return;
  const Json now_more = workload.setting();
  Json was_more = Json::object();
  for (const auto& [key, value] : now_more.items())
    was_more[key] = last.value(key, Json());
  const std::vector<std::string> was = setting_of(last.value("machine", Json()), was_more);
  const std::vector<std::string> now = setting_of(session.machine(), now_more);
  for (std::size_t i = 0; i < now.size(); ++i)
    core::require(was[i] == now[i],
                  "{}: its records were measured with {}, but this run uses {}; --append mixes "
                  "them, another --out keeps them apart",
                  session.options().out, was[i], now[i]);
}

// Whether this shard (one part of a divided run) measures case number i. A shard measures every
// count-th case, because neighbours in the order of work take about the same time.
bool in_shard(const SessionOptions& options, std::size_t i) {
  return i % options.shard_count == options.shard - 1;
}

int dry_run(Workload& workload, Session& session) {
  std::vector<CasePlan> plans;
  for (std::size_t i = 0; CasePlan & plan : workload.plan(session))
    if (in_shard(session.options(), i++)) plans.push_back(std::move(plan));
  const Schedule schedule(std::move(plans));
  const auto memory = static_cast<double>(session.free_bytes());
  bool repeats = false, estimated = false;
  for (const CasePlan& plan : schedule.cases()) {
    repeats = repeats || plan.repeat > 0;
    estimated = estimated || plan.total_s > 0;
  }
  std::vector<std::string> headings = {"case", "memory", "about", "note"};
  if (repeats) headings.insert(headings.begin() + 1, "repeat");
  Table table(headings, {"note"});
  double total_s = 0;
  std::size_t too_large = 0;
  for (const CasePlan& plan : schedule.cases()) {
    const bool fits = memory <= 0 || plan.bytes <= memory;
    if (fits)
      total_s += plan.total_s;
    else
      ++too_large;
    std::vector<std::string> row = {plan.id, plan.bytes > 0 ? format_bytes(plan.bytes) : "-",
                                    fits && plan.total_s > 0 ? format_duration(plan.total_s) : "-",
                                    fits ? "" : "more than the available memory"};
    if (repeats) row.insert(row.begin() + 1, std::to_string(plan.repeat));
    table.add(std::move(row));
  }
  fmt::print("{}{} cases", table.text_for(stdout), schedule.cases().size());
  if (estimated)
    fmt::print(", about {} (roughly {} to {} on a quiet machine)", format_duration(total_s),
               format_duration(total_s / estimate_doubt),
               format_duration(total_s * estimate_doubt));
  fmt::print(
      ", {} of memory available{}\n", format_bytes(memory),
      too_large > 0 ? fmt::format("; {} cases need more and would be skipped", too_large) : "");
  const std::optional<double> others = session.load().others_cores();
  if (session.load().disturbs(others))
    fmt::print("Just now {}: the run will take longer.\n",
               measure::load_text(*others, session.load().cores()));
  return exit_codes::ok;
}

// The load from other programs before the first case. If planning was short, waits for a moment,
// which the system needs to measure the load.
std::optional<double> load_before(Session& session) {
  std::optional<double> others = session.load().others_cores();
  if (others || session.options().quiet) return others;
  std::this_thread::sleep_for(
      std::chrono::duration<double>(measure::LoadMonitor::shortest_window_s));
  return session.load().others_cores();
}

std::string left_text(double left_s) {
  return left_s > 0 ? fmt::format("  about {} left", format_duration(left_s)) : "";
}

// Shows the progress of a run on stderr: one line per case, and on a terminal also a status line
// that is redrawn.
class Progress {
 public:
  // `quiet`: report only cases that are not ok.
  Progress(StatusLine& out, std::int64_t total, bool quiet)
      : out_(out), total_(total), quiet_(quiet) {}

  // Shows that a case has begun. `left_s` is the remaining time of the run; 0: not known.
  void begin(std::int64_t number, const std::string& id, double left_s) {
    out_.status(heading(number, id) + " ..." + left_text(left_s));
  }
  void done(std::int64_t number, const std::string& id, const CaseOutcome& outcome, double left_s) {
    const bool ok = outcome.status == CaseStatus::ok;
    if (quiet_ && ok) return;
    std::string text = heading(number, id);
    if (!ok) text += fmt::format("  {}: {}", status_text(outcome.status), outcome.why);
    if (!outcome.summary.empty()) text += "  " + outcome.summary;
    if (number < total_) text += left_text(left_s);
    out_.line(text);
  }
  // Reports a case that was not measured, and why.
  void skipped(std::int64_t number, const std::string& id, const std::string& why) {
    out_.line(fmt::format("{}  skipped: {}", heading(number, id), why));
  }

 private:
  [[nodiscard]] std::string heading(std::int64_t number, const std::string& id) const {
    return fmt::format("[{}/{}] {}", number, total_, id);
  }

  StatusLine& out_;
  std::int64_t total_;
  bool quiet_;
};

/// How many cases of a run ended with each status.
struct Tally {
  std::int64_t measured = 0, resumed = 0, wrong = 0, unsupported = 0, oom = 0;
};

class Drive {
 public:
  Drive(Workload& workload, Session& session, RunOutput& output, const RecordFormat& format)
      : workload_(workload),
        session_(session),
        options_(session.options()),
        output_(output),
        format_(format),
        schedule_(workload.plan(session)),
        progress_(session.status_line(), static_cast<std::int64_t>(cases().size()), options_.quiet),
        load_at_start_(load_before(session)) {
    output.reserve(cases().size());
  }

  int execute() {
    for (const std::string& note : output_.notes())
      session_.warning(note);
    if (options_.out.empty())
      session_.note("switchback-bench: the records are not kept; --out FILE keeps them");
    output_.write_run_line(start_line());
    take_existing();
    warn_of_load(load_at_start_);

    std::string reason = "complete";
    try {
      reason = run_cases();
    } catch (...) {
      // The run file records that the run ended with an error, if it can still be written. The
      // error itself is reported in any case.
      try {
        output_.write_run_line(end_line("error"));
      } catch (const Error&) {
      }
      throw;
    }
    output_.write_run_line(end_line(reason));
    // The report for users goes to standard error if the records go to standard output.
    if (!options_.quiet) print_report(output_.to_stdout() ? stderr : stdout);
    return exit_code_of(reason);
  }

 private:
  [[nodiscard]] const std::vector<CasePlan>& cases() const noexcept { return schedule_.cases(); }

  // The first line of a run in the run file. If the workload's describe_run() sets keys that are
  // also set after it, they keep the places that it gave them.
  [[nodiscard]] Json start_line() const {
    Json line;
    line["type"] = "run_start";
    line["schema"] = run_file_version;
    line["time"] = autotune::time_now();
    line["tool"] = tool_version();
    line["commit"] = tool_commit();
    line["machine"] = session_.machine();
    workload_.describe_run(session_, line);
    line.update(workload_.setting());
    line["seed"] = options_.seed;
    line["arguments"] = options_.arguments;
    line["cases"] = cases().size();
    if (options_.shard_count > 1)
      line["shard"] = fmt::format("{}/{}", options_.shard, options_.shard_count);
    line["load"] = load_json(load_at_start_);
    return line;
  }

  [[nodiscard]] Json case_line(std::size_t i, CaseStatus status, const std::string& why) const {
    Json line;
    line["type"] = "case";
    line["case"] = i + 1;
    line["id"] = cases()[i].id;
    line["status"] = status_text(status);
    line["why"] = why.empty() ? Json(nullptr) : Json(why);
    return line;
  }

  void write_not_begun(std::size_t i, CaseStatus status, const std::string& why) {
    Json line = case_line(i, status, why);
    workload_.describe_case(i, false, line);
    output_.write_run_line(line);
  }

  // Prints the sentence on rows in doubt, then the table, in which each such row is marked.
  void print_report(std::FILE* to) const {
    Doubt doubt;
    std::vector<Column> columns = workload_.columns();
    for (const ShownRow& row : shown_)
      doubt.add(row.disturbed ? others_were_running : "");
    const std::string sentence = doubt.sentence();
    if (!sentence.empty()) columns.push_back({.name = "!", .meaning = "in doubt", .is_text = true});
    Table table = table_of(columns);
    for (const ShownRow& row : shown_) {
      std::vector<std::string> cells = row.cells;
      if (row.disturbed) cells.emplace_back("!");
      table.add(std::move(cells));
    }
    workload_.print_report(session_, table, sentence, to);
  }

  [[nodiscard]] Json end_line(const std::string& reason) const {
    Json line;
    line["type"] = "run_end";
    line["time"] = autotune::time_now();
    line["reason"] = reason;
    line["cases"] = cases().size();
    line["measured"] = tally_.measured;
    line["resumed"] = tally_.resumed;
    line["wrong"] = tally_.wrong;
    line["unsupported"] = tally_.unsupported;
    line["oom"] = tally_.oom;
    line["wall_s"] = session_.elapsed_s();
    const std::optional<double> others = session_.load().others_cores_overall();
    line["others_cores"] = others ? Json(*others) : Json(nullptr);
    workload_.describe_end(line);
    return line;
  }

  // Takes over the cases that are already in the files. They are a part of the report, and when
  // resuming they are not measured again.
  void take_existing() {
    std::map<std::string, bool> disturbed;  // whether the last run of each case was disturbed
    for (const std::string& line : output_.run_lines())
      if (const Json json = Json::parse(line); text_at(json, "type") == "case")
        disturbed[text_at(json, "id")] = json.value("disturbed", Json()) == true;
    workload_.take_existing(output_.records(), output_.run_lines(), [&](Row row) {
      const bool mark = !row.line.empty() && disturbed[format_.read(row.line).id];
      shown_.push_back({std::move(row.cells), mark});
    });
    std::set<std::string> there;
    for (const std::string& line : output_.records()) {
      const RecordedCase recorded = format_.read(line);
      there.insert(recorded.id);
      if (options_.resume && recorded.complete) done_.insert(recorded.id);
    }
    // If the end of the file was lost, the last case in it may be incomplete, so it is measured
    // again.
    if (output_.records_torn() && !format_.one_line_a_case && !output_.records().empty())
      done_.erase(format_.read(output_.records().back()).id);
    // A second record of a case in the file is allowed, because readers use the last one.
    const auto again = std::count_if(cases().begin(), cases().end(),
                                     [&](const CasePlan& plan) { return there.contains(plan.id); });
    if (options_.append && again > 0)
      session_.warning(
          fmt::format("{}: it already has records of {} of these {}; both are kept, and the last "
                      "one counts in 'report' (--resume would skip them)",
                      options_.out, again, workload_.cases_noun()));
  }

  // Warns of other programs' load, once, so that the user can stop the run now.
  void warn_of_load(std::optional<double> others) {
    if (load_warned_ || !session_.load().disturbs(others)) return;
    load_warned_ = true;
    session_.note(fmt::format(
        "switchback-bench: {}: times measured meanwhile do not show what this machine can do",
        measure::load_text(*others, session_.load().cores())));
  }

  // Measures the cases in order. Returns why the run ended.
  std::string run_cases() {
    for (std::size_t i = 0; i < cases().size(); ++i) {
      const CasePlan& plan = cases()[i];
      const auto number = static_cast<std::int64_t>(i) + 1;
      if (!in_shard(options_, i)) continue;
      if (Session::interrupted()) return "interrupted";
      if (done_.contains(plan.id)) {
        ++tally_.resumed;
        continue;
      }
      if (options_.deadline_s &&
          session_.elapsed_s() + schedule_.shortest_s(i) > *options_.deadline_s) {
        write_not_begun(i, CaseStatus::timeout, "by estimate it would end after the deadline");
        return "deadline";
      }
      // The free memory is queried for each case, because other programs use this machine too.
      const std::size_t free_bytes = session_.free_bytes();
      const auto memory = static_cast<double>(free_bytes + session_.context().workspace_bytes());
      if (free_bytes > 0 && plan.bytes > memory) {
        const std::string why = fmt::format("needs {}; {} of memory is available",
                                            format_bytes(plan.bytes), format_bytes(memory));
        ++tally_.oom;
        std::vector<Row> rows;
        workload_.skip(i, memory, [&](Row row) { rows.push_back(std::move(row)); });
        write_rows(rows, false);
        write_not_begun(i, CaseStatus::oom, why);
        progress_.skipped(number, plan.id, why);
        continue;
      }
      progress_.begin(number, plan.id, schedule_.left_s(i));
      try {
        measure(i);
      } catch (const Interrupted&) {
        return "interrupted";
      }
    }
    return "complete";
  }

  // The samples of each row, in the order of the case's records; null if no row has samples.
  [[nodiscard]] static Json samples_of(std::vector<Row>& rows) {
    Json all = Json::array();
    bool any = false;
    for (Row& row : rows) {
      any = any || !row.samples.empty();
      all.push_back(std::move(row.samples));
    }
    return any ? all : Json();
  }

  void write_rows(std::vector<Row>& rows, bool disturbed) {
    output_.write_records(rows);
    for (Row& row : rows)
      shown_.push_back({std::move(row.cells), disturbed});
  }

  void measure(std::size_t i) {
    const double start_s = session_.elapsed_s();
    session_.disturbance().reset();
    // The rows are kept until the case is complete, so that all of them are written or none.
    std::vector<Row> rows;
    const CaseOutcome outcome =
        workload_.measure(session_, i, [&](Row row) { rows.push_back(std::move(row)); });
    const double wall_s = session_.elapsed_s() - start_s;
    schedule_.took(i, outcome, wall_s);
    measure::LoadMonitor& load = session_.load();
    const std::optional<double> others = load.others_cores();
    warn_of_load(others);
    const measure::Disturbance& disturbance = session_.disturbance().total();
    const bool disturbed = load.disturbs(others) || disturbance.in_doubt();
    if (outcome.status == CaseStatus::oom) {
      ++tally_.oom;
    } else {
      ++tally_.measured;
      if (outcome.status == CaseStatus::wrong) ++tally_.wrong;
      if (outcome.status == CaseStatus::unsupported) ++tally_.unsupported;
      write_rows(rows, disturbed);
    }
    Json samples = samples_of(rows);
    Json line = case_line(i, outcome.status, outcome.why);
    workload_.describe_case(i, true, line);
    line["planned_bytes"] = cases()[i].bytes;
    line["wall_s"] = wall_s;
    line["load"] = load_json(others);
    if (disturbance.rounds > 0) put_disturbance(disturbance, line);
    line["disturbed"] = disturbed;
    if (!samples.is_null()) line["samples"] = std::move(samples);
    output_.write_run_line(line);
    progress_.done(static_cast<std::int64_t>(i) + 1, cases()[i].id, outcome,
                   schedule_.left_s(i + 1));
  }

  int exit_code_of(const std::string& reason) {
    if (reason == "interrupted") {
      session_.warning(
          fmt::format("interrupted: {} cases were measured and kept", tally_.measured));
      return exit_codes::interrupted;
    }
    if (tally_.wrong > 0 || tally_.unsupported > 0) {
      session_.warning(fmt::format("{} cases with a wrong result, {} unsupported", tally_.wrong,
                                   tally_.unsupported));
      return exit_codes::failed;
    }
    if (reason == "deadline") {
      session_.warning(fmt::format("the deadline was reached: {} of {} cases were measured",
                                   tally_.measured, cases().size()));
      return exit_codes::deadline;
    }
    if (tally_.oom > 0)
      session_.warning(fmt::format("{} cases were skipped: they need more memory than is available",
                                   tally_.oom));
    return tally_.oom > 0 && tally_.measured + tally_.resumed == 0 ? exit_codes::failed
                                                                   : exit_codes::ok;
  }

  Workload& workload_;
  Session& session_;
  const SessionOptions& options_;
  RunOutput& output_;
  const RecordFormat& format_;
  Schedule schedule_;
  Progress progress_;
  struct ShownRow {
    std::vector<std::string> cells;
    bool disturbed = false;
  };
  std::vector<ShownRow> shown_;
  std::set<std::string> done_;
  Tally tally_;
  std::optional<double> load_at_start_;
  bool load_warned_ = false;
};

}  // namespace

int run_workload(Workload& workload, const SessionOptions& options) {
  const measure::Clock::time_point start = measure::Clock::now();
  workload.check_options();
  Session session(options, start);
  workload.open(session);
  if (options.dry_run) return dry_run(workload, session);
  const StopSignals signals;
  const RecordFormat format = workload.format();
  const OpenMode mode = options.append || options.resume ? OpenMode::append : OpenMode::create;
  RunOutput output(options.out, mode, format);
  if (options.resume) check_setting(workload, session, output);
  return Drive(workload, session, output, format).execute();
}

}  // namespace switchback::bench
