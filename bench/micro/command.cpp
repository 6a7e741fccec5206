// SPDX-License-Identifier: Apache-2.0
// Bench: the `micro` subcommand: parses its options, and prints tables of ratios or one JSON object
// per line.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "bench/cli/cli.hpp"
#include "bench/cli/table.hpp"
#include "bench/cli/terminal.hpp"
#include "bench/machine/ceilings.hpp"
#include "bench/machine/machine.hpp"
#include "bench/micro/micro.hpp"
#include "bench/workload/disturbance.hpp"
#include "bench/workload/output.hpp"
#include "bench/workload/session.hpp"
#include "bench/workload/whole_file.hpp"
#include "core/check.hpp"
#include "measure/cpu_load.hpp"

namespace switchback::bench {

namespace {

struct MicroArguments {
  ContextOptions context;
  MicroOptions options;
  std::vector<std::unique_ptr<MicroBench>> benches;
  std::vector<std::string> named;
  std::string out;
  bool json = false, force = false;
};

// Flushes the tables if they go to standard output. (If JSON goes there, tables go to standard
// error.)
void flush(std::FILE* tables) {
  if (tables == stdout) flush_stdout();
}

// The names of the benches that run by default, or of those that run only if named: "gemm, layer,
// …".
std::string names_of(const MicroArguments& arguments, bool only_if_named) {
  std::string names;
  for (const auto& bench : arguments.benches)
    if (bench->only_if_named() == only_if_named)
      names += (names.empty() ? "" : ", ") + std::string(bench->name());
  return names;
}

// The benches to measure. A bench that the user named must support this device.
std::vector<MicroBench*> chosen_benches(const MicroArguments& arguments, const Context& context) {
  const std::vector<std::string>& named = arguments.named;
  std::vector<MicroBench*> chosen;
  for (const auto& bench : arguments.benches) {
    const bool asked = std::find(named.begin(), named.end(), bench->name()) != named.end();
    const bool has_rows = arguments.options.only.empty() || bench->has_operations();
    if (!asked && (bench->only_if_named() || !named.empty() || !has_rows)) continue;
    const std::string why = bench->refuses(context);
    if (asked && !why.empty())
      core::fail(Status::unsupported, "micro {}: not available on {}: {}", bench->name(),
                 context.device(), why);
    if (why.empty()) chosen.push_back(bench.get());
  }
  return chosen;
}

void check_names(const MicroArguments& arguments) {
  for (const std::string& name : arguments.named)
    if (std::none_of(arguments.benches.begin(), arguments.benches.end(),
                     [&](const auto& bench) { return bench->name() == name; }))
      core::fail(Status::invalid_argument, "micro '{}' is not one of {}, {}", name,
                 names_of(arguments, false), names_of(arguments, true));
}

void run_micro(MicroArguments& arguments) {
  check_names(arguments);
  SessionOptions session_options;
  session_options.context = arguments.context;
  session_options.seed = arguments.options.seed;
  Session session(session_options, measure::Clock::now());
  Context& context = session.context();
  // Removes the pointer to the session's watch when the session ends, because the options live
  // longer.
  struct Watched {
    MicroOptions& options;
    ~Watched() { options.watch = nullptr; }
  } const watched{arguments.options};
  arguments.options.watch = &session.disturbance();
  if (arguments.options.cold && session.on_cpu())
    arguments.options.cold_bytes = measure::cold_bytes();
  const std::vector<MicroBench*> benches = chosen_benches(arguments, context);
  NewLines out("--out", arguments.out, arguments.force);
  const auto write = [&](const std::string& line) {
    if (arguments.json) {
      fmt::print("{}\n", line);
      flush_stdout();
    }
    out.write(line);
  };
  Json start;
  start["type"] = "micro_start";
  start["v"] = 1;
  start["seed"] = arguments.options.seed;
  start["timer"] =
      session.on_cpu()
          ? "std::chrono::steady_clock, medians of interleaved rounds"
          : "events of the device around one call (micro call: std::chrono::steady_clock until "
            "the device was done), medians of interleaved rounds";
  if (arguments.options.cold) start["caches"] = "cold";
  start["machine"] = session.machine();
  if (session.on_cpu()) start["core_to_core_ns"] = to_json(measure_core_latency(context));
  start["warning"] = busy_warning();
  write(json_line(start));
  if (const std::string warning = busy_warning(); !warning.empty())
    fmt::print(stderr, "{}\n", warning);
  std::FILE* tables = arguments.json ? stderr : stdout;
  fmt::print(tables, "{} on {}, isa {}, {} threads\n", tool_name(),
             printable(start["machine"]["cpu"].get<std::string>()), context.isa(),
             context.threads());
  fmt::print(tables,
             "Medians ± median absolute deviations. A ratio above 1 means that the int8 side is "
             "faster.\n");
  measure::LoadMonitor load(session.on_cpu() ? context.threads() : 1);

  Doubt doubt;
  std::size_t rows = 0, marked = 0;
  for (MicroBench* bench : benches) {
    Table table = bench->table();
    const Sink sink = [&](const Row& row) {
      table.add(row.cells);
      ++rows;
      const bool disturbed = Json::parse(row.line).value("disturbed", false);
      marked += disturbed ? 1 : 0;
      doubt.add(disturbed ? others_were_running : "");
      write(row.line);
      if (!row.summary.empty()) fmt::print(stderr, "micro {}: {}\n", bench->name(), row.summary);
    };
    const std::size_t cases = bench->plan(session).size();
    for (std::size_t i = 0; i < cases; ++i)
      bench->measure(session, i, sink);
    const std::string_view explanation = bench->explanation();
    fmt::print(tables, "\nmicro {}{}{}\n\n{}", bench->name(), explanation.empty() ? "" : ": ",
               explanation, table.text_for(tables, bench->key_columns()));
    flush(tables);
  }
  if (rows == 0 && !arguments.options.only.empty())
    core::fail(Status::invalid_argument,
               "--only '{}': no operation of models or quantize has this text in its name",
               fmt::join(arguments.options.only, "' or '"));
  const std::optional<double> others = load.others_cores_overall();
  Json end;
  end["type"] = "micro_end";
  end["others_cores"] = others ? Json(*others) : Json(nullptr);
  end["disturbed"] = load.disturbs(others);
  if (session.on_cpu()) end["core_to_core_ns"] = to_json(measure_core_latency(context));
  const measure::Disturbance& disturbance = session.disturbance().total();
  put_disturbance(disturbance, end);
  end["disturbed_rows"] = marked;
  write(json_line(end));
  if (const std::string text = doubt.sentence() + disturbance_text(disturbance); !text.empty())
    fmt::print(tables, "\n{}", text);
  if (load.disturbs(others))
    fmt::print(tables, "\nDo not trust these numbers: {} meanwhile.\n",
               measure::load_text(*others, load.cores()));
}

}  // namespace

void add_micro_command(CLI::App& app) {
  auto arguments = std::make_shared<MicroArguments>();
  MicroOptions& options = arguments->options;
  arguments->benches = make_micro_benches(options);
  CLI::App* command = app.add_subcommand(
      "micro", "Compare the speed of products, layers and quantize operations with their rivals");
  command
      ->add_option("bench", arguments->named,
                   fmt::format("{} (default: these), {}", names_of(*arguments, false),
                               names_of(*arguments, true)))
      ->type_name("NAME");
  add_context_options(*command, arguments->context);
  command
      ->add_option_function<std::vector<std::string>>(
          "--shape",
          [&options](const std::vector<std::string>& shapes) {
            for (const std::string& text : shapes)
              options.shapes.push_back(parse_verify_shape(text));
          },
          std::string(shape_help) + ", for gemm, layer and activation; may be repeated")
      ->type_name("M,K,N")
      ->allow_extra_args(false);
  add_text_option(*command, "--dtype", "NAME",
                  "type of layers and their rivals (default f32) and of quantize (default: all): "
                  "f32, f16 or bf16",
                  [&options](const std::string& text) {
                    options.dtype = parse_dtype(text);
                    core::require(
                        *options.dtype == DType::f32 || dtype_size_bytes(*options.dtype) == 2,
                        "--dtype '{}' is not one of f32, f16, bf16", text);
                  });
  command
      ->add_option("--only", options.only,
                   "of models and quantize, measure only operations with this text in their names; "
                   "may be repeated")
      ->type_name("TEXT")
      ->allow_extra_args(false);
  SessionOptions ignored;
  for (const auto& bench : arguments->benches)
    bench->add_options(*command, ignored);
  add_duration_option(
      *command, "--min-time", [&options](double s) { options.min_time_s = s; },
      "time for each group of rivals (default: products 4s, forwards 2s, steps 4s, quantize "
      "300ms)");
  command->add_flag_callback(
      "--quick", [&options] { options.time_factor = 0.2; }, "take a fifth of the time");
  add_seed_option(*command, options.seed);
  command->add_flag(
      "--cold", options.cold,
      "calls find no operand in a cache. On the CPU, successive calls use different copies, which "
      "take twice as many bytes as the last-level cache holds. On a device, its L2 cache is "
      "emptied before each call. For gemm, dw, layer, activation and experts; models is always "
      "cold, and quantize has separate rows for it");
  command->add_flag("--json", arguments->json,
                    "print one JSON object per line on stdout, and tables on stderr");
  command->add_option("--out", arguments->out, "write the JSON objects to a new file")
      ->type_name("FILE");
  command->add_flag("--force", arguments->force, "replace the file of --out if it exists");
  command->callback([arguments] { run_micro(*arguments); });
}

}  // namespace switchback::bench
