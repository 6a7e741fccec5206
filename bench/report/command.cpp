// SPDX-License-Identifier: Apache-2.0
// Bench: the options of the `report` subcommand, which shows files of records as tables, pictures
// or text for other programs.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>
#include <sstream>

#include "bench/cli/cli.hpp"
#include "bench/cli/terminal.hpp"
#include "bench/report/formats.hpp"
#include "bench/report/workload_report.hpp"
#include "bench/workload/record_file.hpp"
#include "bench/workload/whole_file.hpp"
#include "bench/workload/workload.hpp"
#include "core/check.hpp"

namespace switchback::bench {

namespace {

struct ReportArguments {
  std::string path;
  std::vector<std::string> with;
  std::optional<ReportFormat> format;
  std::optional<PublishedFigure> figure;
  std::optional<std::int64_t> batch_size;
  std::string sort, out;
  bool force = false;
};

template <class AnySources>
std::string in_format(const ReportArguments& arguments, const AnySources& sources) {
  switch (arguments.format.value_or(ReportFormat::table)) {
    case ReportFormat::markdown:
      return report_markdown(sources);
    case ReportFormat::csv:
      return report_csv(sources);
    case ReportFormat::json:
      return report_json(sources);
    case ReportFormat::html:
      return report_html(sources);
    default:
      return report_text(sources, arguments.out.empty() ? terminal_columns(stdout) : 0);
  }
}

// The records of these files compared with the published figures of their workload, as text.
std::string published_beside(const ReportArguments& arguments, const std::string& kind,
                             const std::vector<std::string>& contents) {
  core::require(arguments.format.value_or(ReportFormat::table) == ReportFormat::table,
                "--with published: for records of {} it requires --format table", kind);
  std::vector<Json> records;
  for (const std::string& text : contents) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);)
      if (!line.empty()) records.push_back(Json::parse(line));
  }
  if (const auto workload = make_workload(kind); workload != nullptr)
    if (std::string text = workload->published_beside(records); !text.empty()) return text;
  core::fail(
      Status::invalid_argument,
      "--with published: records of {} have no published figures other than those that their "
      "own table shows",
      kind);
}

void run_report(const ReportArguments& arguments) {
  core::require(!arguments.figure || !arguments.format,
                "--figure and --format: a figure is always SVG; give only one of them");
  core::require(arguments.figure || !arguments.batch_size, "--batch: it requires --figure");
  std::vector<std::string> paths = {arguments.path}, contents;
  bool with_published = false;
  for (const std::string& with : arguments.with)
    if (with == "published")
      with_published = true;
    else
      paths.push_back(with);
  if (!arguments.out.empty()) {
    for (const std::string& path : paths)
      check_not_the_same("--out", arguments.out, path);
    check_new_file("--out", arguments.out, arguments.force);
  }
  for (const std::string& path : paths)
    contents.push_back(read_file(path));
  const std::string kind = kind_of_records(contents.front());
  for (std::size_t i = 1; i < paths.size(); ++i)
    if (const std::string other = kind_of_records(contents[i]); other != kind)
      core::fail(
          Status::invalid_argument,
          "--with {}: its records are of {}, those of {} are of {}; a report shows only one kind",
          paths[i], other, paths.front(), kind);
  std::string text;
  if (kind == "run") {
    Sources sources;
    for (std::size_t i = 0; i < paths.size(); ++i)
      sources.push_back(load_source(paths[i], contents[i]));
    if (with_published) sources.push_back(published_source());
    if (!arguments.sort.empty()) sort_rows(sources, arguments.sort);
    text = arguments.figure ? published_figure(*arguments.figure, sources, arguments.batch_size)
                            : in_format(arguments, sources);
  } else {
    core::require(!arguments.figure, "--figure: it requires records of run; {} has records of {}",
                  arguments.path, kind);
    WorkloadSources sources;
    for (std::size_t i = 0; i < paths.size(); ++i)
      sources.push_back(load_workload_source(paths[i], kind, contents[i]));
    if (!arguments.sort.empty()) sort_rows(sources, arguments.sort);
    text = in_format(arguments, sources);
    if (with_published) text += "\n" + published_beside(arguments, kind, contents);
  }
  if (arguments.out.empty())
    fmt::print("{}", text);
  else
    write_new_file(arguments.out, text);
  set_exit_code(exit_codes::ok);
}

}  // namespace

void add_report_command(CLI::App& app) {
  auto arguments = std::make_shared<ReportArguments>();
  CLI::App* command = app.add_subcommand(
      "report", "Show a record file as a table, a page or a figure, and tell whether int8 pays");
  command
      ->add_option("FILE", arguments->path,
                   "records of any workload of this program, the output of 'micro --out', or "
                   "published records with or without the three casts; - is standard input")
      ->required();
  command
      ->add_option("--with", arguments->with,
                   "another file for comparison, or 'published' for the figures of the workload's "
                   "source; may be repeated")
      ->type_name("FILE")
      ->allow_extra_args(false);
  add_text_option(
      *command, "--format", "NAME",
      "table (default), markdown, csv, json or html (one file with pictures, without scripts)",
      [arguments](const std::string& text) { arguments->format = parse_report_format(text); });
  add_text_option(*command, "--figure", "NAME",
                  "one picture (SVG) like those that the script of the published records draws: "
                  "speedup or parts over dim, or quantize (the share of quantizing)",
                  [arguments](const std::string& text) { arguments->figure = parse_figure(text); });
  add_integer_option(
      *command, "--batch",
      [arguments](std::uint64_t n) { arguments->batch_size = static_cast<std::int64_t>(n); }, 1,
      static_cast<std::uint64_t>(grid_limits::batch_size),
      "batch_size of a figure (default: those of the published script if there are records of "
      "them, otherwise all)");
  command
      ->add_option("--sort", arguments->sort,
                   "sort the rows by this column of --format csv, or in descending order with - "
                   "before its name; default: by work")
      ->type_name("COLUMN");
  command->add_option("--out", arguments->out, "write it to this file instead of standard output")
      ->type_name("FILE");
  command->add_flag("--force", arguments->force, "replace the file of --out if it exists");
  command->footer(
      "Rows are sorted by work, the smallest first. If a shape has several records, the last one "
      "counts. If the run file NAME.run.jsonl is in the folder of NAME.jsonl, the table names the "
      "machine and marks the rows in doubt: their times differ too much, or other programs were "
      "running.\n\n"
      "Examples:\n"
      "  switchback-bench report data/reference/switchback_a100_2023.jsonl\n"
      "  switchback-bench run --out - | switchback-bench report -\n"
      "  switchback-bench report mine.jsonl --with theirs.jsonl --format html --out page.html\n"
      "  switchback-bench report mine.jsonl --figure speedup --out speedup.svg");
  command->callback([arguments] { run_report(*arguments); });
}

}  // namespace switchback::bench
