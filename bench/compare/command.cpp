// SPDX-License-Identifier: Apache-2.0
// Bench: the options of the `compare` subcommand, which compares two files of records.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>

#include "bench/cli/cli.hpp"
#include "bench/cli/terminal.hpp"
#include "bench/compare/compare.hpp"
#include "core/check.hpp"

namespace switchback::bench {

void add_verdict_options(CLI::App& command, VerdictOptions& options) {
  add_percentage_option(command, "--threshold", options.rules.threshold, 0, 100,
                        "percent: smaller differences are ignored (default 2)");
  add_percentage_option(command, "--run-noise", options.rules.run_noise, 0, 100,
                        "percent by which two runs of one program may differ: with fewer than five "
                        "runs on a side, a smaller difference is undecided (default 10)");
  add_text_option(command, "--fields", "LIST",
                  "fields to compare, separated by commas: names, sums or groups from 'list "
                  "fields'; default: all",
                  [&options](const std::string& text) {
                    options.selection.fields = split_list(text);
                    core::require(!options.selection.fields.empty(),
                                  "--fields '{}': it must name at least one field", text);
                  });
  command
      .add_option("--filter", options.selection.filters,
                  "only these cases. For records of 'run': terms as in 'run --filter'. For other "
                  "workloads: MEMBER=VALUE of the key, or a part of the name, separated by commas. "
                  "If repeated: cases that match any of them")
      ->type_name("EXPR")
      ->allow_extra_args(false);
  add_text_option(command, "--format", "NAME", "table (default) or json",
                  [&options](const std::string& text) {
                    core::require(text == "table" || text == "json",
                                  "--format '{}' is not one of table, json", text);
                    options.json = text == "json";
                  });
  command.add_flag("--strict", options.strict, "exit with 4 if something is undecided");
}

void finish_comparison(const SideComparison& comparison, const VerdictOptions& options) {
  if (options.json)
    fmt::print("{}\n", comparison_json(comparison)
                           .dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  else
    fmt::print("{}", comparison_table(comparison, terminal_columns(stdout)));
  set_exit_code(comparison_exit_code(comparison.counts(), options.strict));
}

void add_compare_command(CLI::App& app) {
  struct Arguments {
    std::string ref, now;
    VerdictOptions options;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand(
      "compare", "Compare two files of records and tell what is faster or slower");
  command->add_option("REF", arguments->ref, "reference records of any workload, or published ones")
      ->required();
  command->add_option("NEW", arguments->now, "the records to judge; - is standard input")
      ->required();
  add_verdict_options(*command, arguments->options);
  command->footer(
      "Ratios are NEW's time over REF's: above 1 is slower. The samples are in the run file next "
      "to each file of records. Several records of a case (run --append) are several runs of it. "
      "With five or more runs on each side, the runs are compared, pair by pair if they "
      "alternated. With fewer, the calls are compared. So few runs do not show how much two runs "
      "of one program differ on this machine; SLOW and FAST then also need a difference above "
      "--run-noise, and the fastest calls and the difference from the case's other fields must "
      "agree.\n\n"
      "SAME: the interval lies within the threshold. SLOW, FAST: the interval excludes 1, the "
      "ratio is beyond the threshold, and the Mann-Whitney test is significant after Holm's "
      "correction for all fields compared. AMBG: anything else, also if other programs disturbed "
      "one side; the table gives the reason.\n\n"
      "Exit codes: 0 nothing is slower; 3 something is; 4 with --strict, something is undecided; 1 "
      "a file cannot be read; 2 usage, or a file that is not a record file.\n\n"
      "Examples:\n"
      "  switchback-bench compare before.jsonl after.jsonl --threshold 3 --fields gemm\n"
      "  switchback-bench compare data/reference/switchback_a100_2023.jsonl mine.jsonl --fields "
      "time_rowwise");
  command->callback([arguments] {
    core::require(arguments->ref != "-" || arguments->now != "-",
                  "REF and NEW are both '-': one of them must be a file");
    finish_comparison(compare(load_side(arguments->ref), load_side(arguments->now),
                              arguments->options.selection, arguments->options.rules),
                      arguments->options);
  });
}

}  // namespace switchback::bench
