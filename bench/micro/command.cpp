// SPDX-License-Identifier: Apache-2.0
// Bench: the `micro` subcommand: options in, tables of ratios or one JSON object a line out.
#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>

#include "bench/cli/cli.hpp"
#include "bench/cli/table.hpp"
#include "bench/cli/terminal.hpp"
#include "bench/machine/cpu_load.hpp"
#include "bench/machine/machine.hpp"
#include "bench/micro/call.hpp"
#include "bench/micro/micro.hpp"
#include "core/check.hpp"
#include "core/context_state.hpp"

namespace switchback::bench {

namespace {

struct MicroArguments {
  ContextOptions context;
  MicroOptions options;
  std::vector<std::string> benches;
  std::vector<std::string> shapes;
  std::vector<std::string> outputs;
  std::string dtype;
  std::string min_time;
  std::string out;
  bool quick = false;
  bool json = false;
  bool targets = false;
};

constexpr const char* bench_names[] = {"gemm", "layer", "activation", "quantize", "call", "tuner"};

std::string shape_text(const MicroShape& s) {
  return s.dim_out > 0 ? fmt::format("{}x{}x{}", s.batch, s.dim_in, s.dim_out)
                       : fmt::format("{}x{}", s.batch, s.dim_in);
}

std::string target_text(const std::optional<Target>& t) {
  return t ? fmt::format("{} ({}, {})", t->target, t->floor, t->stretch) : "";
}

std::string percent(const measure::Middle& share, std::int64_t samples) {
  return samples < 3 ? fmt::format("{:.0f} %", 100 * share.median)
                     : fmt::format("{:.0f} ± {:.0f} %", 100 * share.median, 100 * share.mad);
}

// The columns that lead a table, and are repeated where it does not fit.
std::size_t keys_of(std::string_view bench) {
  return bench == "layer" || bench == "activation" ? 3 : bench == "gemm" ? 2 : 1;
}

Table table_for(std::string_view bench, bool targets) {
  const std::string target = "reference target";
  std::vector<std::string> header, left;
  if (bench == "gemm") {
    header = {"MxKxN", "engine",     "output",       "ms",
              "GOP/s", "of ceiling", "of reading W", ": best f32"};
    left = {"engine", "output"};
  } else if (bench == "layer") {
    header = {"MxKxN", "what", "mode", "ms", "best rival", "rival ms", "ratio"};
    left = {"what", "mode", "best rival"};
  } else if (bench == "activation") {
    return Table({"size", "what", "activation", "ms", "rival", "rival ms", "ratio"},
                 {"what", "activation", "rival"});
  } else {
    header = {"data", "dtype", "operation", "ms", "GB/s", "best copy", "ratio"};
    left = {"dtype", "operation", "best copy"};
  }
  if (targets) {
    header.insert(header.end(), {target, "verdict"});
    left.insert(left.end(), {target, "verdict"});
  }
  return Table(std::move(header), std::move(left));
}

// For the columns of table_for(); what has no column there is dropped.
std::vector<std::string> cells(const MicroRow& r) {
  const std::int64_t samples = r.subject_ms.count;
  const std::string time = number_with_spread(r.subject_ms.median_ms, r.subject_ms.mad_ms, samples);
  const std::string rival_time =
      number_with_spread(r.rival_ms.median_ms, r.rival_ms.mad_ms, r.rival_ms.count);
  const std::string ratio =
      samples < 3 ? number(r.ratio.median) : number_with_spread(r.ratio.median, r.ratio.mad);
  const std::string judged = verdict(r.target, r.bench == "gemm" ? r.share.median : r.ratio.median);
  const std::string dtype(dtype_name(r.dtype));
  if (r.bench == "gemm")
    return {shape_text(r.shape),
            r.variant + " " + r.subject,
            std::string(dtype_name(r.output)),
            time,
            number(r.gop_s),
            percent(r.share, samples),
            r.read_share ? percent(*r.read_share, samples) : "",
            ratio,
            target_text(r.target),
            judged};
  if (r.bench == "layer")
    return {shape_text(r.shape),   r.subject, r.variant, time, r.rival, rival_time, ratio,
            target_text(r.target), judged};
  if (r.bench == "activation")
    return {shape_text(r.shape), r.subject, r.variant, time, r.rival, rival_time, ratio};
  return {r.variant + " " + shape_text(r.shape),
          dtype,
          r.subject,
          time,
          number(r.gb_s),
          r.rival,
          ratio,
          target_text(r.target),
          judged};
}

const char* explanation(std::string_view bench) {
  if (bench == "gemm")
    return "int8 engines with W packed, scales and rounded output included; f32 engines X·Wᵀ. "
           "Share "
           "of the\nrate of the best int8 (or f32) instruction in registers, and time of reading "
           "as "
           "many bytes as W has\ncodes over the engine's, measured in the same rounds.";
  if (bench == "layer")
    return "int8 layer (quantize, product, dequantize) against the fastest floating point product "
           "of the same\ndtype: the best engine of each pass. A full step is forward, dX and dW "
           "with a new W.";
  if (bench == "activation")
    return "GELU fused with quantization against the two by themselves, and the training step of "
           "an MLP\n(Linear K -> N, GELU, Linear N -> K, weights new, mode rowwise) with the one, "
           "the "
           "other, and standard layers.";
  return "operation against a copy that reads and writes as many bytes once, plain or streaming "
         "stores,\nwhichever is faster. An absmax over all of W, or a column of it, needs a second "
         "read.";
}

// Tables are on standard output or, beside JSON, on standard error.
void flush(std::FILE* tables) {
  if (tables == stdout) flush_stdout();
}

void run_tuner(Context& context, const MicroOptions& options, std::FILE* tables,
               const std::function<void(const nlohmann::ordered_json&)>& write) {
  Table table({"what", "measured", "unit", "bar", "verdict", "note"}, {"unit", "verdict", "note"});
  micro_tuner(context, options, [&](const TunerRow& row) {
    const bool met = row.bar > 0 ? row.value.median <= row.bar : row.value.median >= -row.bar;
    table.add({row.what, number_with_spread(row.value.median, row.value.mad), row.unit,
               row.bar == 0  ? "-"
               : row.bar > 0 ? fmt::format("below {:g}", row.bar)
                             : fmt::format("from {:g}", -row.bar),
               row.bar == 0 ? ""
               : met        ? "met"
                            : "missed",
               row.note});
    write({{"type", "micro"},
           {"bench", "tuner"},
           {"what", row.what},
           {"value", row.value.median},
           {"mad", row.value.mad},
           {"unit", row.unit},
           {"bar", row.bar},
           {"note", row.note}});
    fmt::print(stderr, "micro tuner: {}: {} {}\n", row.what, number(row.value.median), row.unit);
  });
  fmt::print(tables, "\nmicro tuner\n\n{}", table.text_for(tables));
  flush(tables);
}

void run_call(Context& context, const MicroOptions& options, std::FILE* tables,
              const std::function<void(const nlohmann::ordered_json&)>& write) {
  Table table({"8x64x64", "through", "ns", "allocations"}, {"through"});
  micro_call(context, options, [&](const CallRow& row) {
    table.add({row.what, row.how, number_with_spread(row.ns.median, row.ns.mad),
               row.allocations ? number(*row.allocations) : "-"});
    nlohmann::ordered_json json = {{"type", "micro"},       {"bench", "call"},
                                   {"what", row.what},      {"through", row.how},
                                   {"ns", row.ns.median},   {"mad_ns", row.ns.mad},
                                   {"allocations", nullptr}};
    if (row.allocations) json["allocations"] = *row.allocations;
    write(json);
  });
  fmt::print(tables,
             "\nmicro call: a layer with next to nothing to compute (mode rowwise, f32, bias), so "
             "that what\nremains is what a call costs; a step is weight_updated, forward and "
             "backward. Through Python:\npython/benchmarks/overhead.py.\n\n{}",
             table.text_for(tables));
  flush(tables);
}

void run_micro(const MicroArguments& arguments) {
  MicroOptions options = arguments.options;
  for (const std::string& text : arguments.shapes)
    options.shapes.push_back(parse_verify_shape(text));
  if (!arguments.dtype.empty()) {
    options.dtype = parse_dtype(arguments.dtype);
    core::require(options.dtype == DType::f32 || dtype_size_bytes(options.dtype) == 2,
                  "--dtype '{}' is not one of f32, f16, bf16", arguments.dtype);
    options.quantize_dtypes = {options.dtype};
  }
  if (!arguments.outputs.empty()) options.outputs.clear();
  for (const std::string& text : arguments.outputs) {
    options.outputs.push_back(parse_dtype(text));
    core::require(
        options.outputs.back() == DType::f32 || dtype_size_bytes(options.outputs.back()) == 2,
        "--output '{}' is not one of f32, f16, bf16", text);
  }
  if (!arguments.min_time.empty())
    options.min_time_s = parse_duration_s("--min-time", arguments.min_time);
  if (arguments.quick) options.time_factor = 0.2;
  for (const std::string& name : arguments.benches)
    core::require(
        std::find(std::begin(bench_names), std::end(bench_names), name) != std::end(bench_names),
        "micro '{}' is not one of gemm, layer, activation, quantize, call, tuner", name);

  Context context(arguments.context);
  if (context.state().runtime != nullptr)
    core::fail(Status::unsupported,
               "micro compares the CPU's engines; on {} use run, with --cold and --graph",
               context.device());
  std::ofstream out;
  if (!arguments.out.empty()) {
    out.open(arguments.out, std::ios::trunc);
    if (!out) core::fail(Status::io_error, "--out '{}': cannot be written", arguments.out);
  }
  const auto write = [&](const nlohmann::ordered_json& json) {
    if (arguments.json) {
      fmt::print("{}\n", json.dump());
      flush_stdout();
    }
    if (out.is_open()) out << json.dump() << '\n' << std::flush;
  };
  nlohmann::ordered_json start;
  start["type"] = "micro_start";
  start["v"] = 1;
  start["seed"] = options.seed;
  start["timer"] = "std::chrono::steady_clock, medians of interleaved rounds";
  start["machine"] = machine_json(context);
  start["warning"] = busy_warning();
  write(start);
  if (const std::string warning = busy_warning(); !warning.empty())
    fmt::print(stderr, "{}\n", warning);
  std::FILE* tables = arguments.json ? stderr : stdout;
  fmt::print(tables, "{} on {}, isa {}, {} threads\n", tool_name(),
             printable(start["machine"]["cpu"].get<std::string>()), context.isa(),
             context.threads());
  fmt::print(tables,
             "Medians ± median absolute deviations; ratios above 1 are for the int8 side.\n");
  if (arguments.targets)
    fmt::print(tables,
               "Reference targets, as target (floor, stretch), were set on a two-core Cascade Lake "
               "machine.\n");
  LoadMonitor load(context.threads());

  for (const char* bench : bench_names) {
    // The tuner makes no claim about a machine: it is measured when it is asked for.
    const bool asked = std::find(arguments.benches.begin(), arguments.benches.end(), bench) !=
                       arguments.benches.end();
    const bool is_tuner = bench == std::string_view("tuner");
    if (!asked && (is_tuner || !arguments.benches.empty())) continue;
    if (is_tuner) {
      run_tuner(context, options, tables, write);
      continue;
    }
    if (bench == std::string_view("call")) {
      run_call(context, options, tables, write);
      continue;
    }
    Table table = table_for(bench, arguments.targets);
    const MicroSink sink = [&](const MicroRow& row) {
      table.add(cells(row));
      write(to_json(row));
      fmt::print(stderr, "micro {}: {} {} {}: {}\n", bench, shape_text(row.shape), row.variant,
                 row.subject,
                 number_with_spread(row.ratio.median, row.ratio.mad, row.subject_ms.count));
    };
    if (bench == std::string_view("gemm")) micro_gemm(context, options, sink);
    if (bench == std::string_view("layer")) micro_layer(context, options, sink);
    if (bench == std::string_view("activation")) micro_activation(context, options, sink);
    if (bench == std::string_view("quantize")) micro_quantize(context, options, sink);
    fmt::print(tables, "\nmicro {}: {}\n\n{}", bench, explanation(bench),
               table.text_for(tables, keys_of(bench)));
    flush(tables);
  }
  const std::optional<double> others = load.others_cores_overall();
  nlohmann::ordered_json end;
  end["type"] = "micro_end";
  end["others_cores"] = others ? nlohmann::ordered_json(*others) : nullptr;
  end["disturbed"] = load.disturbs(others);
  write(end);
  if (load.disturbs(others))
    fmt::print(tables, "\nDo not trust these numbers: {} meanwhile.\n",
               load_text(*others, load.cores()));
  if (out.is_open() && !out.flush())
    core::fail(Status::io_error, "--out '{}': could not be written to the end", arguments.out);
}

}  // namespace

void add_micro_command(CLI::App& app) {
  auto arguments = std::make_shared<MicroArguments>();
  CLI::App* command = app.add_subcommand(
      "micro", "Measures the claims of speed: products, layers and quantize against their rivals");
  command
      ->add_option("bench", arguments->benches,
                   "gemm, layer, activation, quantize, call (default: these five), tuner")
      ->type_name("NAME");
  add_context_options(*command, arguments->context);
  command
      ->add_option("--shape", arguments->shapes,
                   std::string(shape_help) + ", of gemm, layer and activation; may be given again")
      ->type_name("M,K,N")
      ->allow_extra_args(false);
  command
      ->add_option("--dtype", arguments->dtype,
                   "f32, f16 or bf16 of layers and their rivals (default f32) and of quantize "
                   "(default: all)")
      ->type_name("NAME");
  command
      ->add_option(
          "--output", arguments->outputs,
          "f32, f16 or bf16 out of the int8 products of gemm (default f32); may be repeated")
      ->type_name("NAME");
  command->add_flag("--cold", arguments->options.cold,
                    "gemm: W and all else from memory, not from caches");
  command
      ->add_option("--min-time", arguments->min_time,
                   "time of each group of rivals (default 4s products, 2s forwards, 4s steps, "
                   "300ms quantize)")
      ->type_name("TIME");
  add_integer_option(
      *command, "--quantize-bytes",
      [arguments](std::uint64_t n) {
        arguments->options.quantize_bytes = static_cast<std::int64_t>(n);
      },
      0, std::uint64_t{1} << 50,
      "floats and codes of a quantize, in place of sizes past L3 and in it (0: those)")
      ->type_name("BYTES");
  command->add_flag("--quick", arguments->quick, "a fifth of the time");
  add_seed_option(*command, arguments->options.seed);
  command->add_flag("--targets", arguments->targets,
                    "for those who work on the kernels: the ratios they are held to, and whether "
                    "these are met");
  command->add_flag("--json", arguments->json,
                    "one JSON object a line on stdout, tables on stderr");
  command->add_option("--out", arguments->out, "the JSON objects into a file")->type_name("FILE");
  command->callback([arguments] { run_micro(*arguments); });
}

}  // namespace switchback::bench
