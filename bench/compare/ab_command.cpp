// SPDX-License-Identifier: Apache-2.0
// Bench: the `ab` subcommand.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <filesystem>
#include <memory>

#include "bench/cli/cli.hpp"
#include "bench/compare/ab.hpp"
#include "bench/compare/compare.hpp"
#include "bench/workload/workload.hpp"
#include "core/check.hpp"

namespace switchback::bench {

namespace {

struct AbArguments {
  std::string a, b;
  AbOptions options;
  VerdictOptions verdicts;
  bool quiet = false;
};

void run_ab_command(AbArguments& arguments) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  arguments.options.a = parse_contender(arguments.a, self);
  arguments.options.b = parse_contender(arguments.b, self);
  StatusLine out(arguments.quiet);
  AbResult result;
  try {
    result = run_ab(arguments.options, arguments.verdicts.selection, arguments.verdicts.rules, out);
  } catch (const Interrupted&) {
    out.warning("interrupted before the first pair was complete");
    set_exit_code(exit_codes::interrupted);
    return;
  }
  finish_comparison(result.comparison, arguments.verdicts);
  if (result.end == AbEnd::interrupted) {
    out.warning(fmt::format("interrupted: {} of {} pairs were measured", result.pairs,
                            arguments.options.pairs));
    set_exit_code(exit_codes::interrupted);
  }
  if (result.end == AbEnd::deadline)
    out.warning(fmt::format("the deadline came first: {} of {} pairs were measured", result.pairs,
                            arguments.options.pairs));
}

}  // namespace

void add_ab_command(CLI::App& app) {
  auto arguments = std::make_shared<AbArguments>();
  AbOptions& options = arguments->options;
  CLI::App* command = app.add_subcommand(
      "ab", "Measure two builds or two configurations in turns, and say which is slower");
  command
      ->add_option("A", arguments->a,
                   "[NAME=VALUE …] [PROGRAM] [ARGUMENT …] as one word: environment, program "
                   "(default: this one) and arguments that it gets behind the common ones")
      ->required();
  command->add_option("B", arguments->b, "the same of the side that is judged")->required();
  command->add_option("COMMAND", options.command, "behind '--': a workload and its options")
      ->required();
  add_integer_option(
      *command, "--pairs", [&options](std::uint64_t n) { options.pairs = static_cast<int>(n); }, 1,
      100000, "pairs of runs (default 20)");
  add_duration_option(
      *command, "--deadline", [&options](double s) { options.deadline_s = s; },
      "begin no pair that would end later than this (90, 90s, 1.5m, 2h)");
  command
      ->add_option("--keep", options.keep, "keep the records of both sides in this new directory")
      ->type_name("DIR");
  add_seed_option(*command, options.seed);
  command->get_option("--seed")->description("of the order within the pairs (default 1)");
  add_verdict_options(*command, arguments->verdicts);
  command->add_flag("--quiet", arguments->quiet, "no progress");
  command->footer(
      "Each pair runs A and B once, in random order, as processes of their own; their medians are "
      "compared pair by pair (Wilcoxon's signed rank test, Holm's correction for the number of "
      "fields), so that a slow minute of the machine is no difference. Verdicts are those of "
      "'compare', with REF = A and NEW = B. A pair should be short, because the machine must be "
      "the same for both of its runs: a few shapes, 'run --no-ceilings'.\n\n"
      "Exit codes: those of 'compare'; 130 interrupted (the verdicts of the complete pairs are "
      "printed).\n\n"
      "Examples:\n  switchback-bench ab old/switchback-bench new/switchback-bench -- run --shape "
      "64,512,512 --no-ceilings\n"
      "  switchback-bench ab --pairs 30 -- '--engine onednn_sgemm' '--engine openblas' run "
      "--fields standard_fwd   (arguments alone, which begin with -, come behind the --)\n"
      "  switchback-bench ab OMP_WAIT_POLICY=active OMP_WAIT_POLICY=passive -- run");
  command->callback([arguments] { run_ab_command(*arguments); });
}

}  // namespace switchback::bench
