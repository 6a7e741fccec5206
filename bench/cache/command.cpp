// SPDX-License-Identifier: Apache-2.0
// Bench: the options of `switchback-bench cache`.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>

#include "autotune/operations.hpp"
#include "bench/cache/cache.hpp"
#include "bench/cli/cli.hpp"
#include "bench/grid/grid.hpp"
#include "core/check.hpp"

namespace switchback::bench {

namespace {

constexpr const char* cache_footer =
    R"(A cache holds which configuration is the fastest for each problem, as 'switchback-bench tune'
found it, in one file for each kind of machine: 'cache path' names this machine's. A line is what is
known of one problem. A key is a problem on a machine; 'cache list' shows its name, of which the first
digits are enough, at least four.

To carry winners to another machine, copy that file and 'import' it there, or put it into a directory
that SWITCHBACK_TUNE_SYSTEM names. To forget a problem, delete its line; to forget all, delete the
file.

'import' waits at most 60 s for another process that holds the cache's lock, and says so.
Root reads only its own files, and files that only their owner can have written.

Exit codes: 0 fine; 1 something is wrong in a file, or a file cannot be read or written; 2 usage;
5 no such device; 130 interrupted.

Examples:
  switchback-bench cache list
  switchback-bench cache explain --shape 512,4096,11008
  switchback-bench cache import node7.jsonl)";

constexpr const char* path_footer =
    R"(Example:
  switchback-bench cache path)";

constexpr const char* list_footer =
    R"(One line a key: the winner, its time, how many times as fast as the default it is, and whether
this Context (--device, --threads, --isa) uses it.

Examples:
  switchback-bench cache list --op gemm_int8 --filter onednn
  switchback-bench cache list --all --json)";

constexpr const char* explain_footer =
    R"(Of a key every entry that a look-up comes across, what each check says of it, and what runs: from
the cache, a near shape, the system list, or the default. Of shapes a line for each problem.
A winner of more effort goes first, then the later one; a date more than a day ahead of the clock
is of a clock that was wrong, and goes after all others. A winner in doubt is not used.

Examples:
  switchback-bench cache explain 3f2a90
  switchback-bench cache explain --shape 512,4096,11008 --dtype bf16 --threads 4)";

constexpr const char* verify_footer =
    R"(Exit code 1 if a line cannot be read (unless a newer version wrote it), is in another machine's
file or, with --run, a winner is wrong.

Examples:
  switchback-bench cache verify
  switchback-bench cache verify --run)";

constexpr const char* import_footer =
    R"(Each entry goes to the file of its machine. Of two winners of a problem in the same environment one
stays: first one that is not in doubt, then that of most effort, then the latest. Nothing is
written if a file cannot be read; lines that cannot be read are left out, and the exit code is 1. The
last lines say how many of the winners this Context (--device, --threads, --isa) uses, and why not the
others.

Examples:
  switchback-bench cache import tuned.jsonl
  switchback-bench cache import node7-cache node8-cache)";

CLI::App* add(CLI::App& parent, const char* name, const char* description, const char* examples,
              CacheOptions& options, bool needs_context) {
  CLI::App* command = parent.add_subcommand(name, description);
  command->add_option("--cache", options.cache, "cache directory; default: as the library's")
      ->type_name("DIR");
  command->add_flag("--json", options.json, "one JSON object a line");
  if (needs_context) add_context_options(*command, options.context);
  command->footer(examples);
  return command;
}

template <class Extra>
struct CacheArguments {
  CacheOptions options;
  Extra extra;
};

ConfigOp parse_op(const std::string& name) {
  std::string names;
  for (const autotune::Operation& operation : autotune::operations()) {
    const core::Tunable& tunable = *operation.tunable;
    if (tunable.name == name) return tunable.op;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", tunable.name);
  }
  core::fail(Status::invalid_argument, "--op '{}' is not one of {}", name, names);
}

// Hexadecimal digits are accepted in both cases.
std::string lower(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'F') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

void add_list(CLI::App& cache) {
  struct Extra {
    CacheListOptions what;
    std::string op;
  };
  auto a = std::make_shared<CacheArguments<Extra>>();
  CLI::App* command =
      add(cache, "list", "The keys of this machine, one a line", list_footer, a->options, true);
  command
      ->add_option("--op", a->extra.op,
                   "only quantize, gemm_int8, gemm_blockwise, gemm_standard or layer_mode problems")
      ->type_name("OP");
  command
      ->add_option("--filter", a->extra.what.filter,
                   "only lines with this text in the problem or the winner")
      ->type_name("TEXT");
  command->add_flag("--all", a->extra.what.all, "the keys of every machine");
  command->callback([a] {
    if (!a->extra.op.empty()) a->extra.what.op = parse_op(a->extra.op);
    set_exit_code(cache_list(a->options, a->extra.what));
  });
}

void add_explain(CLI::App& cache) {
  struct Extra {
    CacheExplainOptions what;
    std::vector<std::string> shapes;
    std::string dtype = "f32";
    bool bias = false;
    std::int64_t groups = 0;
  };
  auto a = std::make_shared<CacheArguments<Extra>>();
  CLI::App* command = add(cache, "explain", "Why a configuration is used or refused",
                          explain_footer, a->options, true);
  CLI::Option* key =
      command->add_option("KEY", a->extra.what.key, "the first digits of a key's name");
  CLI::Option* shape =
      command
          ->add_option(
              "--shape", a->extra.shapes,
              "every problem of a layer: M,K,N (rows, dim_in, dim_out); may be given again")
          ->type_name("M,K,N")
          ->allow_extra_args(false)
          ->excludes(key);
  CLI::Option* dtype =
      command
          ->add_option("--dtype", a->extra.dtype, "of the shapes: f32, f16 or bf16 (default f32)")
          ->type_name("NAME");
  command->add_flag("--bias", a->extra.bias, "also what layers with a bias come to");
  command
      ->add_option("--groups", a->extra.groups,
                   "the shapes are of grouped layers of so many groups; default: single layers")
      ->type_name("G");
  command->add_flag("--near-shapes", a->extra.what.near_shapes,
                    "as with TunerOptions::near_shapes");
  command->add_flag("--strict", a->extra.what.strict, "as with TunerOptions::strict");
  command->callback([a, key, shape, dtype] {
    core::require(key->count() + shape->count() > 0,
                  "explain: it needs a KEY or --shape M,K,N; 'switchback-bench cache list' shows "
                  "the keys");
    core::require(
        shape->count() > 0 || (dtype->count() == 0 && !a->extra.bias && a->extra.groups == 0),
        "explain {}: --dtype, --bias and --groups are for --shape; a key has its own",
        a->extra.what.key);
    core::require(a->extra.groups >= 0, "--groups {}: it must not be negative", a->extra.groups);
    a->extra.what.key = lower(a->extra.what.key);
    // An empty KEY matches no key; it does not mean that KEY was left out.
    core::require(key->count() == 0 || !a->extra.what.key.empty(), "KEY '': it must not be empty");
    const DType type = parse_dtype(a->extra.dtype);
    core::require(type == DType::f32 || type == DType::f16 || type == DType::bf16,
                  "--dtype {}: it must be f32, f16 or bf16", a->extra.dtype);
    for (const std::string& text : a->extra.shapes) {
      const Case c = parse_shape(text);
      a->extra.what.shapes.push_back(
          {c.batch_size, c.dim_in, c.dim_out, type, a->extra.bias, a->extra.groups});
    }
    set_exit_code(cache_explain(a->options, a->extra.what));
  });
}

void add_verify(CLI::App& cache) {
  auto a = std::make_shared<CacheArguments<bool>>();
  CLI::App* command = add(cache, "verify", "Read every line; with --run prove the winners again",
                          verify_footer, a->options, true);
  command->add_flag("--run", a->extra, "prove every winner of this machine again");
  command->callback([a] { set_exit_code(cache_verify(a->options, a->extra)); });
}

void add_import(CLI::App& cache) {
  auto a = std::make_shared<CacheArguments<std::vector<std::string>>>();
  CLI::App* command =
      add(cache, "import", "Add files to the cache", import_footer, a->options, true);
  command->add_option("FILE", a->extra, "cache files and cache directories")->required();
  command->callback([a] { set_exit_code(cache_import(a->options, a->extra)); });
}

}  // namespace

void add_cache_command(CLI::App& app) {
  CLI::App* cache =
      app.add_subcommand("cache", "Look into tuning caches, check them, and carry them elsewhere");
  cache->require_subcommand(1);
  cache->footer(cache_footer);
  auto path = std::make_shared<CacheOptions>();
  add(*cache, "path", "Where the files are, and which setting says so", path_footer, *path, true)
      ->callback([path] { set_exit_code(cache_path(*path)); });
  add_list(*cache);
  add_explain(*cache);
  add_verify(*cache);
  add_import(*cache);
}

}  // namespace switchback::bench
