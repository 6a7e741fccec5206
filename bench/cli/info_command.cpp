// SPDX-License-Identifier: Apache-2.0
// Bench: the `info` subcommand. It shows this machine, the engines (implementations of operations)
// that can run on it, and how close they come to the machine's measured limits.
#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <cstdio>
#include <memory>

#include "bench/cli/cli.hpp"
#include "bench/cli/table.hpp"
#include "bench/cli/terminal.hpp"
#include "bench/machine/ceilings.hpp"
#include "bench/machine/machine.hpp"
#include "bench/micro/benches.hpp"
#include "core/context_state.hpp"
#include "core/device.hpp"
#include "measure/cpu_load.hpp"
#include "switchback/gemm.hpp"
#include "switchback/quant.hpp"

namespace switchback::bench {

namespace {

struct InfoArguments {
  ContextOptions context;
  bool json = false;
  bool measure = true;
};

// The shape of the products that `info` times: large enough for full speed, small enough to take
// milliseconds.
constexpr MicroShape medium = {512, 2048, 2048};
constexpr double ceilings_budget_s = 1.0;
constexpr double products_budget_s = 1.0;

struct EngineList {
  const char* operations;
  std::vector<EngineInfo> engines;
};

std::vector<EngineList> engine_lists(const Context& context) {
  return {{"int8 products", gemm_engines(context)},
          {"blockwise int8 products", gemm_blockwise_engines(context)},
          {"floating point products", gemm_standard_engines(context)},
          {"quantize", quantize_engines(context)}};
}

nlohmann::ordered_json engines_json(const std::vector<EngineList>& lists) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const EngineList& list : lists) {
    auto& array = json[list.operations] = nlohmann::ordered_json::array();
    for (const EngineInfo& engine : list.engines)
      array.push_back(
          {{"name", engine.name}, {"available", engine.available}, {"reason", engine.reason}});
  }
  return json;
}

std::string config_source(const Context& context) {
  return context.state().config_source ? "tuned configurations" : "none: the library's defaults";
}

std::string cell(const nlohmann::ordered_json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_null()) return "none seen";
  if (value.is_boolean()) return value.get<bool>() ? "on" : "off";
  if (!value.is_array()) return value.dump();
  std::string text;
  for (const auto& item : value)
    text += (text.empty() ? "" : " ") + item.get<std::string>();
  return text.empty() ? "none" : text;
}

void print_machine(const nlohmann::ordered_json& machine) {
  Table table({"machine", "value"}, {"value"});
  for (const auto& [key, value] : machine.items()) {
    if (value.is_object())
      for (const auto& [library, version] : value.items())
        table.add({library, cell(version)});
    else if (key.ends_with("_bytes"))
      table.add({key.substr(0, key.size() - 6), format_bytes(value.get<double>())});
    else
      table.add({key, cell(value)});
  }
  fmt::print("{}\n", table.text_for(stdout));
}

void print_engines(const std::vector<EngineList>& lists) {
  Table table({"operations", "engine", "available", "why not"}, {"engine", "available", "why not"});
  for (const EngineList& list : lists)
    for (const EngineInfo& engine : list.engines)
      table.add({list.operations, engine.name, engine.available ? "yes" : "no", engine.reason});
  fmt::print("{}\n", table.text_for(stdout, 2));
}

std::string latency_text(const CoreLatency& latency) {
  const std::string most = fmt::format("{:.0f} ns", latency.most_ns);
  if (latency.most_ns < 1.2 * latency.least_ns) return most;
  return fmt::format("{:.0f} to {}", latency.least_ns, most);
}

void run_info(const InfoArguments& arguments) {
  Context context(arguments.context);
  const nlohmann::ordered_json machine = machine_json(context);
  const std::vector<EngineList> lists = engine_lists(context);
  nlohmann::ordered_json json;
  json["type"] = "info";
  json["v"] = 1;
  json["machine"] = machine;
  json["config_source"] = config_source(context);
  const std::string_view no_int8 = core::why_no_int8(context.state());
  if (!no_int8.empty()) json["why_no_int8"] = no_int8;
  json["engines"] = engines_json(lists);
  if (!arguments.json) {
    print_machine(machine);
    fmt::print("tuned configurations: {}\n\n", config_source(context));
    if (!no_int8.empty()) fmt::print("layers in mode auto use mode standard: {}\n\n", no_int8);
    print_engines(lists);
    flush_stdout();
  }
  if (arguments.measure) {
    const bool device = context.state().runtime != nullptr;
    measure::LoadMonitor load(device ? 1 : context.threads());
    fmt::print(stderr, "measuring what this machine can do …\n");
    const Ceilings c = measure_ceilings(context, ceilings_budget_s);
    std::string warning;
    if (const std::optional<double> others = load.others_cores(); load.disturbs(others))
      warning = fmt::format(
          "warning: {} meanwhile; the true ceilings of the machine are higher than those measured",
          measure::load_text(*others, load.cores()));
    json["warning"] = warning;
    if (!warning.empty()) fmt::print(stderr, "{}\n", warning);
    json["ceilings"] = {{"copy_gb_s", c.copy_gb_s},   {"copy_l3_gb_s", c.copy_l3_gb_s},
                        {"s8_tops", c.s8_tops},       {"s8_instruction", c.s8_instruction},
                        {"f32_tflops", c.f32_tflops}, {"f32_instruction", c.f32_instruction}};
    if (device)
      json["ceilings"]["bf16_tflops"] = c.bf16_tflops;
    else
      json["ceilings"]["core_to_core_ns"] = to_json(c.core_to_core);
    if (!arguments.json) {
      Table table({"ceiling", "rate", "of"}, {"of"});
      table.add({"copy past the caches", number(c.copy_gb_s) + " GB/s", "bytes read and written"});
      const std::string where = device ? "" : " in registers";
      if (!device)
        table.add({"copy in L3",
                   c.copy_l3_gb_s > 0 ? number(c.copy_l3_gb_s) + " GB/s" : "L3 unknown",
                   "bytes read and written"});
      table.add({"int8", number(c.s8_tops) + " TOPS", c.s8_instruction + where});
      if (device)
        table.add({"bf16", number(c.bf16_tflops) + " TFLOP/s", "bf16 product of the same size"});
      table.add({"f32", number(c.f32_tflops) + " TFLOP/s", c.f32_instruction + where});
      if (c.core_to_core.most_ns > 0)
        table.add({"core to core", latency_text(c.core_to_core),
                   "a cache line, from the first thread's core to the nearest and farthest"});
      fmt::print("{}\n", table.text_for(stdout));
      flush_stdout();
    }
    if (device) {
      if (arguments.json) fmt::print("{}\n", json.dump(2));
      return;
    }
    fmt::print(stderr, "measuring a product of shape {}x{}x{} (MxKxN) …\n", medium.batch,
               medium.dim_in, medium.dim_out);
    GemmOptions options;
    options.shapes = {medium};
    options.min_time_s = products_budget_s;
    Table table({"product", "engine", "GOP/s", "of ceiling", "/ best f32"}, {"engine"});
    json["products"] = nlohmann::ordered_json::array();
    micro_gemm(context, options, [&](const RaceRow& row) {
      json["products"].push_back(to_json(row));
      table.add({row.variant, row.subject, number(row.gop_s),
                 row.share ? percent_text(row.share->median) : "",
                 number_with_spread(row.ratio.median, row.ratio.mad)});
    });
    if (!arguments.json) fmt::print("{}", table.text_for(stdout));
  }
  if (arguments.json) fmt::print("{}\n", json.dump(2));
}

}  // namespace

void add_info_command(CLI::App& app) {
  auto arguments = std::make_shared<InfoArguments>();
  CLI::App* command = app.add_subcommand(
      "info",
      "Show the machine, its engines and why others are unavailable, and measure the ceilings");
  add_context_options(*command, arguments->context);
  command->add_flag("--json", arguments->json, "print one JSON document on stdout");
  command->add_flag_callback(
      "--no-ceilings", [arguments] { arguments->measure = false; },
      "skip measuring the ceilings, which takes 3 seconds");
  command->callback([arguments] { run_info(*arguments); });
}

}  // namespace switchback::bench
