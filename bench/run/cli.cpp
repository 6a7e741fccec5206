// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>

#include "bench/cli/cli.hpp"
#include "bench/grid/filter.hpp"
#include "bench/run/run.hpp"
#include "bench/run/select.hpp"
#include "core/check.hpp"

namespace switchback::bench {

namespace {

constexpr const char* run_footer =
    R"(Fields. X[M,K], W[N,K] and G[M,N] are seeded normal data; M is batch_size, K dim_in, N dim_out.
Each field is checked on that data before it is timed, then all take turns, repeat/2 rounds to warm
up and `repeat` timed ones; a record holds medians in ms, null for what was not measured or is
wrong. rowwise_* and global_* include packing W's codes, as in a training step, where W is new each
time; the run file beside the records has them with W packed before, and everything else there is to
know. 'switchback-bench list fields' explains them all. Cases are measured, and records written, in
the order of their work, the smallest first.

Other programs spoil a measurement. What they use is watched and written into the run file, and the
table marks rows whose times differ too much; where those are many the last sentence says so.

Exit codes: 0 done; 1 a wrong result, a failed case or file; 2 usage; 5 no such device or engine
here; 6 the deadline came first; 130 interrupted (what was measured is kept).

Examples:
  switchback-bench run                                       a minute: does int8 pay here?
  switchback-bench run --grid llm --filter 'batch_size<=256' --out llm.jsonl
  switchback-bench run --grid reference --deadline 2h --out reference.jsonl --resume
  switchback-bench run --shape 1,4096,11008 --shape 512,4096,11008 --dtype bf16 --repeat 30
  switchback-bench run --grid my.yaml --dry-run)";

std::string quoted(const std::string& argument) {
  const bool plain = !argument.empty() && argument.find_first_not_of(
                                              "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                              "0123456789_-+./,:=@%") == std::string::npos;
  return plain ? argument : "'" + argument + "'";
}

}  // namespace

void add_selection_options(CLI::App& command, CaseSelection& selection) {
  command
      .add_option("--grid", selection.grids,
                  "a YAML file of shapes, or a built-in grid (quick, vit, llm, reference); may be "
                  "given again. Default without --shape: quick")
      ->type_name("FILE")
      ->allow_extra_args(false);
  command.add_option("--shape", selection.shapes, std::string(shape_help) + "; may be given again")
      ->type_name("M,K,N")
      ->allow_extra_args(false);
  command.add_option("--filter", selection.filters, filter_help)
      ->type_name("EXPR")
      ->allow_extra_args(false);
}

void add_run_command(CLI::App& app) {
  struct Text {
    RunOptions options;
    std::string dtype = "f32", fields = "all", deadline, min_time, mode = "default";
  };
  auto text = std::make_shared<Text>();
  RunOptions& options = text->options;
  CLI::App* command = app.add_subcommand(
      "run", "Time the parts of standard and int8 layers over a grid, one record a shape");
  add_selection_options(*command, options.cases);
  add_context_options(*command, options.context);
  command->add_option("--dtype", text->dtype, "input type: f32, f16 or bf16 (default f32)")
      ->type_name("NAME");
  add_integer_option(
      *command, "--repeat",
      [text](std::uint64_t n) { text->options.cases.repeat = static_cast<int>(n); }, 1,
      grid_limits::repeat, "timed calls a field (default: the grid's)");
  command
      ->add_option("--min-time", text->min_time,
                   "time each shape at least so long, with more rounds than --repeat if need be")
      ->type_name("TIME");
  command
      ->add_option("--deadline", text->deadline,
                   "end the whole run within so long (90, 90s, 1.5m, 2h): a shape that by estimate "
                   "would end later is not begun, and the last one gets fewer rounds, at least 3")
      ->type_name("TIME");
  command
      ->add_option("--fields", text->fields,
                   "which fields to time: names, sums or groups (all, standard, rowwise, global, "
                   "gemm, quantize, cast, packed) with commas between; default all")
      ->type_name("LIST");
  command
      ->add_option("--engine", options.engines,
                   "force an engine by name ('list engines') for the products it offers; may be "
                   "given again. Default: the library's choice for int8 products, the fastest by "
                   "trial for floating point ones")
      ->type_name("NAME")
      ->allow_extra_args(false);
  command
      ->add_option("--out", options.out,
                   "record file, or - for standard output (default); NAME.run.jsonl is written "
                   "beside it. A file with content is refused without --append or --resume")
      ->type_name("FILE");
  CLI::Option* append =
      command->add_flag("--append", options.append, "add to the records in the file");
  CLI::Option* resume = command->add_flag("--resume", options.resume,
                                          "as --append, skipping shapes the file has in full");
  append->excludes(resume);
  command->add_flag("--graph", options.graphs,
                    "on a CUDA device: time each call as a replayed CUDA graph, without what "
                    "queueing its kernels costs the host");
  command->add_flag("--cold", options.cold_cache,
                    "on a CUDA device: empty the L2 cache before every timed call");
  command
      ->add_option(
          "--mode", text->mode,
          "default, or tuned: configurations from the tuning cache ('tune' fills it), each "
          "field timed beside its default one, and layers in mode auto beside standard")
      ->type_name("NAME");
  command->add_option("--cache", options.cache, "directory of the tuning cache")->type_name("DIR");
  command->add_flag("--dry-run", options.dry_run,
                    "print the shapes with their memory and a rough estimate of their time, from "
                    "measuring one small shape");
  command->add_flag("--quiet", options.quiet,
                    "no progress, no table and no word on noise, only what went wrong");
  add_seed_option(*command, options.seed);
  command->footer(run_footer);
  command->callback([text, &app] {
    RunOptions& o = text->options;
    o.dtype = parse_dtype(text->dtype);
    core::require(o.dtype == DType::f32 || o.dtype == DType::f16 || o.dtype == DType::bf16,
                  "--dtype '{}': it must be f32, f16 or bf16", text->dtype);
    core::require(!(o.append || o.resume) || o.out != "-",
                  "--{} needs --out FILE: standard output holds no records to go on from",
                  o.append ? "append" : "resume");
    o.fields = parse_fields(text->fields);
    core::require(text->mode == "default" || text->mode == "tuned",
                  "--mode '{}' is not one of default, tuned", text->mode);
    o.tuned = text->mode == "tuned";
    core::require(o.cache.empty() || o.tuned, "--cache {}: it is for --mode tuned", o.cache);
    core::require(!o.tuned || o.engines.empty(),
                  "--engine and --mode tuned: a forced engine is not the tuned one");
    if (!text->min_time.empty()) o.min_time_s = parse_duration_s("--min-time", text->min_time);
    if (!text->deadline.empty()) o.deadline_s = parse_duration_s("--deadline", text->deadline);
    o.arguments = "run";
    for (const CLI::Option* option : app.get_subcommand("run")->get_options()) {
      const auto& results = option->results();
      for (const std::string& result : results)
        o.arguments += option->get_items_expected_max() == 0
                           ? fmt::format(" {}", option->get_name())
                           : fmt::format(" {} {}", option->get_name(), quoted(result));
    }
    set_exit_code(run_command(o));
  });
}

}  // namespace switchback::bench
