// SPDX-License-Identifier: Apache-2.0
// Bench: the options of `switchback-bench cache`.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>

#include "bench/cache/cache.hpp"
#include "bench/cli/cli.hpp"
#include "bench/grid/grid.hpp"
#include "core/check.hpp"

namespace switchback::bench {

namespace {

constexpr const char* cache_footer =
    R"(The cache stores the fastest configuration of each problem, as measured by 'switchback-bench
tune'. It has one file for each kind of machine; 'cache path' shows the file of this machine. Each
line describes one problem. A key identifies a problem on a machine. 'cache list' shows the names of
the keys; the first four or more digits of a name are enough if they are unique.

To use winners on another machine, copy the file and 'import' it there, or put it into a directory
that SWITCHBACK_TUNE_SYSTEM names. To forget a problem, delete its line. To forget everything,
delete the file.

If another process holds the cache's lock, 'import' says so and waits at most 60 s. Root reads only
its own files, and files that only their owner can have written.

Exit codes: 0 ok; 1 a file has errors, or it cannot be read or written; 2 usage; 5 no such device;
130 interrupted.

Examples:
  switchback-bench cache list
  switchback-bench cache explain --shape 512,4096,11008
  switchback-bench cache import node7.jsonl)";

constexpr const char* path_footer =
    R"(Example:
  switchback-bench cache path)";

constexpr const char* list_footer =
    R"(Prints one line per key: the winner, its time, its speed-up over the default, and whether
this Context (--device, --threads, --isa) uses it.

Examples:
  switchback-bench cache list --filter gemm_int8
  switchback-bench cache list --all --json)";

constexpr const char* explain_footer =
    R"(For a key: shows every entry that a look-up considers, the result of each check, and the
configuration that runs (from the cache, a near shape or the system list, or the default). For
shapes: prints one line per problem. A winner of higher effort takes precedence, then the later one.
A date more than a day in the future comes from a wrong clock; such a winner comes last. A winner in
doubt is not used.

Examples:
  switchback-bench cache explain 3f2a90
  switchback-bench cache explain --shape 512,4096,11008 --dtype bf16 --threads 4)";

constexpr const char* verify_footer =
    R"(The exit code is 1 if a line cannot be read (unless a newer version wrote it), if a line is
in the file of another machine or, with --validate, if a winner is wrong.

Examples:
  switchback-bench cache verify
  switchback-bench cache verify --validate)";

constexpr const char* import_footer =
    R"(Each entry is added to the file of its machine. If a problem has two winners in the same
environment, one is kept: one that is not in doubt rather than one in doubt, then the one of higher
effort, then the later one. If a file cannot be read, nothing is written. Lines that cannot be read
are skipped, and the exit code is 1. The last lines say how many of the winners this Context
(--device, --threads, --isa) uses, and why it does not use the others.

Examples:
  switchback-bench cache import tuned.jsonl
  switchback-bench cache import node7-cache node8-cache)";

CLI::App* add(CLI::App& parent, const char* name, const char* description, const char* examples,
              CacheOptions& options, bool needs_context) {
  CLI::App* command = parent.add_subcommand(name, description);
  command->add_option("--cache", options.cache, "cache directory; default: that of the library")
      ->type_name("DIR");
  command->add_flag("--json", options.json, "one JSON object per line");
  if (needs_context) add_context_options(*command, options.context);
  command->footer(examples);
  return command;
}

template <class Extra>
struct CacheArguments {
  CacheOptions options;
  Extra extra;
};

// Makes the hexadecimal digits of a key's name lower case, because users may type either case.
std::string lower(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'F') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

void add_list(CLI::App& cache) {
  auto a = std::make_shared<CacheArguments<CacheListOptions>>();
  CLI::App* command = add(cache, "list", "List the keys of this machine, one per line", list_footer,
                          a->options, true);
  command
      ->add_option("--filter", a->extra.filter,
                   "only lines whose problem or winner contains this text, such as gemm_int8")
      ->type_name("TEXT");
  command->add_flag("--all", a->extra.all, "the keys of every machine");
  command->callback([a] { set_exit_code(cache_list(a->options, a->extra)); });
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
  CLI::App* command = add(cache, "explain", "Explain why a configuration is used or refused",
                          explain_footer, a->options, true);
  CLI::Option* key = command->add_option("KEY", a->extra.what.key,
                                         "at least the first four digits of a key's name");
  CLI::Option* shape =
      command
          ->add_option("--shape", a->extra.shapes,
                       "all problems of a layer M,K,N (rows, dim_in, dim_out); may be repeated")
          ->type_name("M,K,N")
          ->allow_extra_args(false)
          ->excludes(key);
  CLI::Option* dtype = command
                           ->add_option("--dtype", a->extra.dtype,
                                        "type of the shapes: f32, f16 or bf16 (default f32)")
                           ->type_name("NAME");
  command->add_flag("--bias", a->extra.bias, "the layers have a bias");
  command
      ->add_option(
          "--groups", a->extra.groups,
          "the shapes are of grouped layers with this number of groups; default: single layers")
      ->type_name("G");
  command->add_flag("--near-shapes", a->extra.what.near_shapes,
                    "as with TunerOptions::near_shapes");
  command->add_flag("--strict", a->extra.what.strict, "as with TunerOptions::strict");
  command->callback([a, key, shape, dtype] {
    core::require(
        key->count() + shape->count() > 0,
        "explain: give a KEY or --shape M,K,N; 'switchback-bench cache list' shows the keys");
    core::require(
        shape->count() > 0 || (dtype->count() == 0 && !a->extra.bias && a->extra.groups == 0),
        "explain {}: --dtype, --bias and --groups require --shape; a key already includes them",
        a->extra.what.key);
    core::require(a->extra.groups >= 0, "--groups {}: it must not be negative", a->extra.groups);
    a->extra.what.key = lower(a->extra.what.key);
    // An empty KEY argument matches no key. It does not mean that KEY was left out.
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
  CLI::App* command =
      add(cache, "verify", "Check every line; with --validate, also validate the winners again",
          verify_footer, a->options, true);
  command->add_flag("--validate", a->extra, "validate every winner of this machine again");
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
  CLI::App* cache = app.add_subcommand("cache", "Show, check and import tuning caches");
  cache->require_subcommand(1);
  cache->footer(cache_footer);
  auto path = std::make_shared<CacheOptions>();
  add(*cache, "path", "Show where the files are, and which setting determines it", path_footer,
      *path, true)
      ->callback([path] { set_exit_code(cache_path(*path)); });
  add_list(*cache);
  add_explain(*cache);
  add_verify(*cache);
  add_import(*cache);
}

}  // namespace switchback::bench
