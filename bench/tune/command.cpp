// SPDX-License-Identifier: Apache-2.0
// Bench: the options of `switchback-bench tune`, and the subcommand that validates candidates for
// it.
#include <unistd.h>

#include <CLI/CLI.hpp>

#include <memory>

#include "bench/cli/cli.hpp"
#include "bench/cli/prover.hpp"
#include "bench/run/plan.hpp"
#include "bench/tune/tune.hpp"
#include "core/check.hpp"
#include "switchback/prove.hpp"

namespace switchback::bench {

namespace {

constexpr const char* tune_footer =
    R"(For every shape the products, quantize operations and whole passes of a layer that quantizes are
measured in each engine and configuration that may be the fastest. Each is first proven right on
random data; the winner replaces the default only if it is 4 % faster beyond doubt, among others in turns
and once more beside the default alone, on operands elsewhere in memory and with caches that were
used between calls. Winners go to the cache as they are found: an interrupted run loses nothing,
and the next one goes on from there.

On a GPU cuBLASLt has hundreds of algorithms for a product: the first eight of its own ranking are
measured. --effort thorough measures all of them, and problems that only some layers have: forward
and dX in floating point, an int8 dW of weights in f32, and what 'switchback-bench run' has, layers
without a bias and products whose weights are not packed (--records adds just these). To tune what a
program runs, record it: SWITCHBACK_TUNE=record.

Programs use the cache by attaching a tuner (switchback/tuner.hpp; in C and Python it is on by
default) and 'switchback-bench run --mode tuned' shows what it gains. SWITCHBACK_TUNE_CACHE names
another directory; SWITCHBACK_TUNE is off, read (default), record, tune or require.

Exit codes: 0 done, also when the budget ended it; 1 not all of it could be stored; 2 usage; 5 no such device; 6 the budget was
below one measurement; 130 interrupted (what was measured is kept).

Examples:
  switchback-bench tune --grid quick --budget 60s
  switchback-bench tune --shape 512,4096,11008 --dtype bf16 --bias
  switchback-bench tune --shape 1024,4096,1408 --groups 8
  SWITCHBACK_TUNE=record ./my-server; switchback-bench tune --recorded ~/.cache/switchback/recorded.jsonl
  switchback-bench tune --grid llm --budget 10m --records tuned.jsonl
  switchback-bench tune --device cuda:0 --prove)";

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
    std::string dtype = "f32", effort = "normal", budget, budget_per_key;
    int max_candidates = 0;
    bool prove = false;
  };
  auto text = std::make_shared<Text>();
  TuneOptions& options = text->options;
  CLI::App* command = app.add_subcommand(
      "tune",
      "Find the fastest engine and configuration of each problem, and keep it in the cache");
  add_selection_options(*command, options.cases);
  add_context_options(*command, options.context);
  command
      ->add_option("--recorded", options.recorded,
                   "a file of problems that programs missed (SWITCHBACK_TUNE=record), or another "
                   "cache; may be given again")
      ->type_name("FILE")
      ->allow_extra_args(false);
  command->add_option("--dtype", text->dtype, "type of the shapes: f32, f16 or bf16 (default f32)")
      ->type_name("NAME");
  command->add_flag("--bias", options.bias, "the layers have a bias; default: they have none");
  command
      ->add_option(
          "--groups", options.groups,
          "the shapes are of grouped layers of so many groups, and their rows are those of "
          "all groups; default: single layers")
      ->type_name("G");
  CLI::Option* budget =
      command
          ->add_option("--budget", text->budget,
                       "end within so long (90, 90s, 1.5m, 2h), warm-up and checks included; "
                       "default: until it is done")
          ->type_name("TIME");
  CLI::Option* per_key =
      command->add_option("--budget-per-key", text->budget_per_key, "the most for one problem")
          ->type_name("TIME");
  command
      ->add_option("--max-candidates", text->max_candidates,
                   "configurations to try besides the default; 0: all that may win (default)")
      ->type_name("N");
  command
      ->add_option("--effort", text->effort,
                   "quick, normal (default) or thorough: 7, 15 or 41 rounds of the final; thorough "
                   "also tries all that there is, see below")
      ->type_name("NAME");
  command
      ->add_flag("--prove", text->prove,
                 "tune nothing: try the device's kernels that no committed record has seen right, "
                 "each in another process, and keep the outcomes in the cache")
      ->excludes(budget)
      ->excludes(per_key);
  command->add_flag("--force", options.limits.force, "also what the cache knows already");
  command->add_option("--cache", options.cache, "cache directory")->type_name("DIR");
  command
      ->add_option("--records", options.records,
                   "then run the shapes with everything at its tuned best and write timing records")
      ->type_name("FILE");
  command->add_flag("--json", options.json, "the summary as one JSON object");
  command->add_flag("--dry-run", options.dry_run, "count the problems, measure none");
  command->add_flag("--quiet", options.quiet, "only warnings");
  command->footer(tune_footer);
  command->callback([text, budget, per_key] {
    TuneOptions& o = text->options;
    o.dtype = parse_dtype(text->dtype);
    core::require(o.dtype == DType::f32 || o.dtype == DType::f16 || o.dtype == DType::bf16,
                  "--dtype {}: it must be f32, f16 or bf16", text->dtype);
    core::require(o.groups >= 0, "--groups {}: it must not be negative", o.groups);
    core::require(o.groups == 0 || o.records.empty(),
                  "--records {}: records are of single layers; leave out --groups", o.records);
    o.effort = parse_effort(text->effort);
    o.has_cases = !o.cases.grids.empty() || !o.cases.shapes.empty();
    const auto duration = [](const CLI::Option* option, const char* name,
                             const std::string& value) {
      if (option->count() == 0) return 0.0;
      const double seconds = parse_duration_s(name, value);
      core::require(seconds > 0, "{} {}: it must be more than nothing", name, value);
      return seconds;
    };
    o.limits.budget_s = duration(budget, "--budget", text->budget);
    o.limits.budget_per_key_s = duration(per_key, "--budget-per-key", text->budget_per_key);
    core::require(text->max_candidates >= 0, "--max-candidates {}: it must not be negative",
                  text->max_candidates);
    o.limits.max_candidates = text->max_candidates;
    o.arguments = "tune";
    set_exit_code(text->prove ? prove_command(o) : tune_command(o));
  });
}

autotune::ProverOptions this_program_as_prover() {
  autotune::ProverOptions options;
  options.command = {"/proc/self/exe", "tune-prove"};
  return options;
}

void add_prove_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("tune-prove", "");
  command->group("");  // hidden: not for users
  command->callback([] { set_exit_code(prove_candidates(STDIN_FILENO, STDOUT_FILENO)); });
}

}  // namespace switchback::bench
