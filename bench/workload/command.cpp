// SPDX-License-Identifier: Apache-2.0
#include "bench/workload/command.hpp"

#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include "bench/cli/cli.hpp"
#include "bench/workload/axis.hpp"
#include "bench/workload/workload.hpp"
#include "core/check.hpp"

namespace switchback::bench {

namespace {

std::string quoted(const std::string& argument) {
  const bool plain =
      !argument.empty() &&
      argument.find_first_not_of(
          "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+./,:=@%") ==
          std::string::npos;
  return plain ? argument : "'" + argument + "'";
}

// The command line in a form that a user could type again.
std::string arguments_of(const CLI::App& command) {
  std::string all = command.get_name();
  for (const CLI::Option* option : command.get_options())
    for (const std::string& result : option->results())
      all += option->get_items_expected_max() == 0
                 ? fmt::format(" {}", option->get_name())
                 : fmt::format(" {} {}", option->get_name(), quoted(result));
  return all;
}

}  // namespace

CLI::Option* add_deadline_option(CLI::App& command, SessionOptions& options) {
  return add_duration_option(
      command, "--deadline", [&options](double s) { options.deadline_s = s; },
      "stop the whole run after this time (90, 90s, 1.5m, 2h): a case that would probably end "
      "later is not started");
}

CLI::Option* add_output_options(CLI::App& command, SessionOptions& options) {
  add_text_option(
      command, "--shard", "I/N",
      "I/N: measure every Nth case, starting with the Ith, so that N machines or processes share "
      "the work; 'merge' merges their records",
      [&options](const std::string& text) {
        const std::size_t slash = text.find('/');
        core::require(slash != std::string::npos, "--shard '{}': it must be I/N, such as 2/4",
                      text);
        options.shard_count = parse_integer("--shard", text.substr(slash + 1), 1, 100000);
        options.shard = parse_integer("--shard", text.substr(0, slash), 1, options.shard_count);
      });
  command
      .add_option("--out", options.out,
                  "record file, or - for standard output (default, unless that is a terminal); "
                  "NAME.run.jsonl is written next to it. A file with content is refused unless "
                  "--append or --resume is given")
      ->type_name("FILE");
  CLI::Option* append =
      command.add_flag("--append", options.append, "add to the records in the file");
  CLI::Option* resume =
      command.add_flag("--resume", options.resume,
                       "like --append, but skip cases whose records in the file are complete");
  append->excludes(resume);
  return resume;
}

CLI::Option* add_dry_run_and_quiet(CLI::App& command, SessionOptions& options) {
  CLI::Option* dry_run =
      command.add_flag("--dry-run", options.dry_run,
                       "only print the cases, with estimates of their memory and time if possible");
  command.add_flag("--quiet", options.quiet,
                   "print only errors: no progress, no table and no remarks on noise");
  return dry_run;
}

void add_session_options(CLI::App& command, SessionOptions& options) {
  add_context_options(command, options.context);
  add_deadline_option(command, options);
  add_output_options(command, options);
  add_dry_run_and_quiet(command, options);
  add_seed_option(command, options.seed);
}

void add_workload_command(CLI::App& app, const std::shared_ptr<Workload>& workload) {
  const auto options = std::make_shared<SessionOptions>();
  const auto axes = std::make_shared<std::vector<std::string>>();
  CLI::App* command =
      app.add_subcommand(std::string(workload->command()), std::string(workload->about()));
  workload->add_options(*command, *options);
  const std::vector<std::string> single =
      workload->another() != nullptr ? single_options(*command) : std::vector<std::string>();
  add_axis_option(*command, *axes, single);
  command->footer(workload->footer());
  command->callback([workload, options, axes, command, single] {
    core::require(!(options->append || options->resume) || options->out != "-",
                  "--{} needs --out FILE: standard output has no records to continue from",
                  options->append ? "append" : "resume");
    // Records are not written to a terminal, where they would appear between the lines of progress.
    if (command->get_option("--out")->empty() && !options->quiet && !options->dry_run &&
        ::isatty(STDOUT_FILENO) == 1)
      options->out.clear();
    // The arguments are noted as the user typed them, before axes are expanded.
    options->arguments = arguments_of(*command);
    const std::vector<Combination> combinations = apply_axes(*command, *axes, single);
    const std::shared_ptr<Workload> whole =
        combinations.empty() ? workload : make_product(*workload, *command, combinations);
    set_exit_code(run_workload(*whole, *options));
  });
}

}  // namespace switchback::bench
