// SPDX-License-Identifier: Apache-2.0
// Bench: the options of `switchback-bench tune`, and the hidden subcommand that checks candidate
// configurations for it in another process.
#include <unistd.h>

#include <CLI/CLI.hpp>

#include <memory>

#include "autotune/validation/validator.hpp"
#include "bench/cli/cli.hpp"
#include "bench/run/plan.hpp"
#include "bench/tune/tune.hpp"
#include "core/check.hpp"
#include "switchback/validate.hpp"

namespace switchback::bench {

namespace {

constexpr const char* tune_footer =
    R"(For every shape, 'tune' measures the products, quantize operations and whole passes of a
layer that quantizes, with each engine and configuration that may be the fastest. Each is first
validated on random data. The winner replaces the default only if it is significantly faster, by at
least 4 %, in two comparisons: alternating with all others, and alternating with the default alone.
The second one uses operands elsewhere in memory, and other data passes through the caches between
calls. Winners are stored in the cache immediately: an interrupted run loses nothing, and the next
one continues.

On a GPU, cuBLASLt has hundreds of algorithms for a product; the first eight of its own ranking are
measured. --effort thorough measures all of them, and also problems that only some layers have:
forward and dX in floating point, an int8 dW of f32 weights, and those of 'switchback-bench run',
layers without a bias and products whose weights are not packed (--records adds only these). To tune
the problems of a program, record them with SWITCHBACK_TUNE=record.

Programs use the cache by attaching a tuner (switchback/tuner.hpp; in C and Python it is attached by
default). 'switchback-bench run --mode tuned' measures the gain. SWITCHBACK_TUNE_CACHE names another
directory; SWITCHBACK_TUNE is off, read (default), record, tune or require.

Exit codes: 0 done, also if the budget was used up; 1 not everything could be stored; 2 usage; 5 no
such device; 6 the budget was too short for one measurement; 130 interrupted (what was measured is
kept).

Examples:
  switchback-bench tune --grid quick --budget 60s
  switchback-bench tune --shape 512,4096,11008 --dtype bf16 --bias
  switchback-bench tune --shape 1024,4096,1408 --groups 8
  SWITCHBACK_TUNE=record ./my-server; switchback-bench tune --recorded ~/.cache/switchback/recorded.jsonl
  switchback-bench tune --grid llm --budget 10m --records tuned.jsonl
  switchback-bench tune --device cuda:0 --validate)";

autotune::Effort parse_effort(std::string_view name) {
  for (const autotune::Effort effort :
       {autotune::Effort::quick, autotune::Effort::normal, autotune::Effort::thorough})
    if (autotune::effort_name(effort) == name) return effort;
  core::fail(Status::invalid_argument, "--effort '{}' is not one of quick, normal, thorough", name);
}

}  // namespace

void add_tune_command(CLI::App& app) {
  struct Text {
    TuneOptions options;
    std::string dtype = "f32", effort = "normal";
    int max_candidates = 0;
    bool validate = false;
  };
  auto text = std::make_shared<Text>();
  TuneOptions& options = text->options;
  CLI::App* command = app.add_subcommand(
      "tune",
      "Find the fastest engine and configuration of each problem, and store them in the cache");
  add_selection_options(*command, options.cases);
  add_context_options(*command, options.context);
  command
      ->add_option("--recorded", options.recorded,
                   "a file of problems that programs did not find in the cache "
                   "(SWITCHBACK_TUNE=record), or another cache; may be repeated")
      ->type_name("FILE")
      ->allow_extra_args(false);
  command->add_option("--dtype", text->dtype, "type of the shapes: f32, f16 or bf16 (default f32)")
      ->type_name("NAME");
  command->add_flag("--bias", options.bias, "the layers have a bias (default: no bias)");
  command
      ->add_option("--groups", options.groups,
                   "the shapes are of grouped layers with this number of groups, and their rows "
                   "are those of all groups together; default: single layers")
      ->type_name("G");
  CLI::Option* budget = add_duration_option(
      *command, "--budget", [&options](double seconds) { options.limits.budget_s = seconds; },
      "stop after this time (90, 90s, 1.5m, 2h), including warm-up and checks; default: no limit");
  command
      ->add_option("--max-candidates", text->max_candidates,
                   "number of configurations to try in addition to the default; 0 (default): all "
                   "that may win")
      ->type_name("N");
  command
      ->add_option("--effort", text->effort,
                   "quick, normal (default) or thorough: 7, 15 or 41 rounds in the final "
                   "comparison; thorough also tries everything (see below)")
      ->type_name("NAME");
  command
      ->add_flag("--validate", text->validate,
                 "instead of tuning, validate the device's kernels that no committed record "
                 "covers, each in another process, and store the results in the cache")
      ->excludes(budget);
  command->add_flag("--force", options.limits.force,
                    "also measure problems that are already in the cache");
  command->add_option("--cache", options.cache, "cache directory")->type_name("DIR");
  command
      ->add_option(
          "--records", options.records,
          "then run the shapes with the tuned configurations and write timing records to this file")
      ->type_name("FILE");
  command->add_flag("--json", options.json, "print the summary as one JSON object");
  command->add_flag("--dry-run", options.dry_run, "count the problems and measure nothing");
  command->add_flag("--quiet", options.quiet, "print only warnings");
  command->footer(tune_footer);
  command->callback([text] {
    TuneOptions& o = text->options;
    o.dtype = parse_dtype(text->dtype);
    core::require(o.dtype == DType::f32 || o.dtype == DType::f16 || o.dtype == DType::bf16,
                  "--dtype {}: it must be f32, f16 or bf16", text->dtype);
    core::require(o.groups >= 0, "--groups {}: it must not be negative", o.groups);
    core::require(o.groups == 0 || o.records.empty(),
                  "--records {}: it supports only single layers; leave out --groups", o.records);
    o.effort = parse_effort(text->effort);
    o.has_cases = !o.cases.grids.empty() || !o.cases.shapes.empty();
    core::require(text->max_candidates >= 0, "--max-candidates {}: it must not be negative",
                  text->max_candidates);
    o.limits.max_candidates = text->max_candidates;
    o.arguments = "tune";
    set_exit_code(text->validate ? validate_command(o) : tune_command(o));
  });
}

autotune::ValidatorOptions this_program_as_validator() {
  autotune::ValidatorOptions options;
  options.command = {"/proc/self/exe", "tune-validate"};
  return options;
}

void add_validate_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("tune-validate", "");
  command->group("");  // hidden from the help, because users do not run it
  command->callback([] { set_exit_code(validate_candidates(STDIN_FILENO, STDOUT_FILENO)); });
}

}  // namespace switchback::bench
