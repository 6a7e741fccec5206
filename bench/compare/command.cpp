// SPDX-License-Identifier: Apache-2.0
// Bench: the `compare` subcommand.
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
                        "percent: a smaller difference does not matter (default 2)");
  add_percentage_option(
      command, "--run-noise", options.rules.run_noise, 0, 100,
      "percent that two runs of one program may differ by: with fewer than five runs on a side "
      "a smaller difference is undecided (default 10)");
  add_percentage_option(
      command, "--alpha", options.rules.alpha, 0.0001, 50,
      "percent: how often, at most, anything of an unchanged program is called faster or "
      "slower (default 5)");
  add_text_option(
      command, "--fields", "LIST",
      "fields to compare, with commas between: names, sums, or groups of 'list fields'; "
      "default all",
      [&options](const std::string& text) {
        options.selection.fields = split_list(text);
        core::require(!options.selection.fields.empty(), "--fields '{}': no field", text);
      });
  command
      .add_option(
          "--filter", options.selection.filters,
          "only these cases: of 'run' as in 'run --filter'; of other workloads MEMBER=VALUE "
          "of the key or a part of the name, with commas between. Given again: either")
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
      "compare", "Say what is faster or slower in one file of records than in another");
  command->add_option("REF", arguments->ref, "records of any workload, or published ones")
      ->required();
  command->add_option("NEW", arguments->now, "the records to judge; - is standard input")
      ->required();
  add_verdict_options(*command, arguments->options);
  command->footer(
      "Ratios are NEW's time over REF's: above 1 is slower. The evidence is in the run file next "
      "to each file of records. Several records of a case (run --append) are several runs of it: "
      "from "
      "five on each side the runs are compared, pair by pair if they were made in turns. With "
      "fewer their calls are, and then a verdict also needs a difference above --run-noise, and "
      "the fastest calls and the difference from the case's other fields to agree, because so few "
      "runs do not show how much two runs of one program differ on this machine.\n\n"
      "SAME: the interval lies within the threshold. SLOW, FAST: the interval excludes 1, the "
      "ratio is beyond the threshold, and the Mann-Whitney test says so among all fields compared "
      "(Holm). AMBG: anything else, and what other programs disturbed on either side; the table "
      "says why.\n\n"
      "Exit codes: 0 nothing is slower; 3 something is; 4 with --strict, something is undecided; 1 "
      "a file cannot be read; 2 usage, or a file that is not a record file.\n\n"
      "Examples:\n  switchback-bench compare before.jsonl after.jsonl --threshold 3 --fields gemm\n"
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
