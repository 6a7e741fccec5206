// SPDX-License-Identifier: Apache-2.0
// Bench: the options of the `compare-builds` subcommand, which measures two programs alternately.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <filesystem>
#include <memory>

#include "bench/cli/cli.hpp"
#include "bench/compare/compare.hpp"
#include "bench/compare/compare_builds.hpp"
#include "bench/workload/workload.hpp"
#include "core/check.hpp"

namespace switchback::bench {

namespace {

struct CompareBuildsArguments {
  std::string a, b;
  CompareBuildsOptions options;
  VerdictOptions verdicts;
  bool quiet = false;
};

void run_compare_builds_command(CompareBuildsArguments& arguments) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  arguments.options.a = parse_contender(arguments.a, self);
  arguments.options.b = parse_contender(arguments.b, self);
  StatusLine out(arguments.quiet);
  CompareBuildsResult result;
  try {
    result = run_compare_builds(arguments.options, arguments.verdicts.selection,
                                arguments.verdicts.rules, out);
  } catch (const Interrupted&) {
    out.warning("interrupted before the first pair was complete");
    set_exit_code(exit_codes::interrupted);
    return;
  }
  finish_comparison(result.comparison, arguments.verdicts);
  if (result.end == CompareBuildsEnd::interrupted) {
    out.warning(fmt::format("interrupted: {} of {} pairs were measured", result.pairs,
                            arguments.options.pairs));
    set_exit_code(exit_codes::interrupted);
  }
  if (result.end == CompareBuildsEnd::deadline)
    out.warning(fmt::format("the deadline was reached: {} of {} pairs were measured", result.pairs,
                            arguments.options.pairs));
}

}  // namespace

void add_compare_builds_command(CLI::App& app) {
  auto arguments = std::make_shared<CompareBuildsArguments>();
  CompareBuildsOptions& options = arguments->options;
  CLI::App* command = app.add_subcommand(
      "compare-builds",
      "Measure two builds or two configurations alternately, and tell which is slower");
  command
      ->add_option("A", arguments->a,
                   "[NAME=VALUE …] [PROGRAM] [ARGUMENT …] as one word: environment, program "
                   "(default: this one) and arguments that follow the common ones")
      ->required();
  command->add_option("B", arguments->b, "the same for the side that is judged")->required();
  command->add_option("COMMAND", options.command, "after '--': a workload and its options")
      ->required();
  add_integer_option(
      *command, "--pairs", [&options](std::uint64_t n) { options.pairs = static_cast<int>(n); }, 1,
      100000, "pairs of runs (default 20)");
  add_duration_option(
      *command, "--deadline", [&options](double s) { options.deadline_s = s; },
      "start no pair that would end later than this (90, 90s, 1.5m, 2h)");
  command
      ->add_option("--keep", options.keep, "keep the records of both sides in this new directory")
      ->type_name("DIR");
  add_seed_option(*command, options.seed);
  command->get_option("--seed")->description(
      "seed of the random order within the pairs (default 1)");
  add_verdict_options(*command, arguments->verdicts);
  command->add_flag("--quiet", arguments->quiet, "print no progress");
  command->footer(
      "Each pair runs A and B once, in random order, in separate processes. Their medians are "
      "compared pair by pair (Wilcoxon's signed rank test, Holm's correction for the number of "
      "fields), so a slow minute of the machine affects both sides. Verdicts are those of "
      "'compare', with REF = A and NEW = B. Keep pairs short, so that the machine is in the same "
      "state for both runs: use few shapes and 'run --no-ceilings'.\n\n"
      "Exit codes: those of 'compare'; 130 interrupted (the verdicts of the complete pairs are "
      "printed).\n\n"
      "Examples:\n"
      "  switchback-bench compare-builds old/switchback-bench new/switchback-bench -- run --shape "
      "64,512,512 --no-ceilings\n"
      "  switchback-bench compare-builds --pairs 30 -- '--engine onednn_sgemm' '--engine openblas' "
      "run --fields standard_fwd   (A and B that begin with - come after the --)\n"
      "  switchback-bench compare-builds OMP_WAIT_POLICY=active OMP_WAIT_POLICY=passive -- run");
  command->callback([arguments] { run_compare_builds_command(*arguments); });
}

}  // namespace switchback::bench
