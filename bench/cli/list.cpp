// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/cli/cli.hpp"
#include "bench/cli/table.hpp"
#include "bench/grid/grid.hpp"
#include "bench/run/fields.hpp"
#include "bench/run/operands.hpp"
#include "bench/run/plan.hpp"
#include "core/check.hpp"
#include "core/cpu/isa.hpp"
#include "switchback/gemm.hpp"
#include "switchback/quant.hpp"

namespace switchback::bench {

namespace {

using Json = nlohmann::ordered_json;

/// The output of a `list` subcommand: the same rows as a table for users and as JSON for programs.
struct Listing {
  Table table;
  Json json = Json::array();
  std::size_t keys = 1;  ///< the number of leading columns that identify a row
};

Listing list_grids() {
  Listing out{Table({"grid", "cases", "repeat", "description"}, {"description"})};
  for (const BuiltinGrid& builtin : builtin_grids()) {
    const Grid grid = parse_grid(builtin.text, builtin.name);
    out.table.add({grid.name, std::to_string(grid.cases.size()), std::to_string(grid.repeat),
                   grid.description});
    out.json.push_back({{"grid", grid.name},
                        {"cases", grid.cases.size()},
                        {"repeat", grid.repeat},
                        {"description", grid.description}});
  }
  return out;
}

Listing list_engines(const Context& context) {
  Listing out{
      Table({"operation", "engine", "available", "reason"}, {"engine", "available", "reason"})};
  const auto add = [&](std::string_view operation, const std::vector<EngineInfo>& engines) {
    for (const EngineInfo& engine : engines) {
      out.table.add(
          {std::string(operation), engine.name, engine.available ? "yes" : "no", engine.reason});
      out.json.push_back({{"operation", operation},
                          {"engine", engine.name},
                          {"available", engine.available},
                          {"reason", engine.available ? Json(nullptr) : Json(engine.reason)}});
    }
  };
  add("int8 product", gemm_engines(context));
  add("blockwise int8 product", gemm_blockwise_engines(context));
  add("floating point product", gemm_standard_engines(context));
  add("quantize", quantize_engines(context));
  out.keys = 2;
  return out;
}

Listing list_fields() {
  Listing out{Table({"field", "meaning"}, {"meaning"})};
  const auto add = [&](std::string_view name, const std::string& meaning) {
    out.table.add({std::string(name), meaning});
    out.json.push_back({{"field", name}, {"meaning", meaning}});
  };
  for (const FieldSpec& field : field_table())
    add(field.name, std::string(field.meaning));
  for (const SumInfo& sum : sum_table()) {
    std::string parts;
    for (const Field part : sum.parts)
      parts += fmt::format("{}{}", parts.empty() ? "" : " + ", field_name(part));
    add(sum.name, parts);
  }
  return out;
}

Listing list_isas() {
  Listing out{Table({"isa", "available"}, {"available"})};
  const core::Isa best = core::cpu_features().level();
  for (const core::Isa isa : core::all_isas()) {
    // An instruction set is available if capping the CPU's features at it selects exactly it.
    const bool available = core::cpu_features().capped(isa).level() == isa;
    out.table.add({std::string(core::isa_name(isa)), !available    ? "no"
                                                     : isa == best ? "yes, the default"
                                                                   : "yes"});
    out.json.push_back({{"isa", core::isa_name(isa)}, {"available", available}});
  }
  return out;
}

// The width multiplier as JSON, formatted as in records: a whole number has no decimal point.
Json width_json(double wm) {
  return wm == std::floor(wm) ? Json(static_cast<std::int64_t>(wm)) : Json(wm);
}

Listing list_cases(const CaseSelection& selection) {
  Listing out{
      Table({"case", "batch_size", "dim_in", "dim_out", "wm", "switch", "repeat", "memory"})};
  for (const SelectedCase& selected : select_cases(selection)) {
    const Case& c = selected.shape;
    const double bytes = operand_bytes(c, DType::f32, every_field());
    out.table.add({case_id(c), std::to_string(c.batch_size), std::to_string(c.dim_in),
                   std::to_string(c.dim_out), fmt::format("{}", c.wm), c.narrows ? "true" : "false",
                   std::to_string(selected.repeat), format_bytes(bytes)});
    out.json.push_back({{"case", case_id(c)},
                        {"batch_size", c.batch_size},
                        {"dim_in", c.dim_in},
                        {"dim_out", c.dim_out},
                        {"wm", width_json(c.wm)},
                        {"switch", c.narrows},
                        {"repeat", selected.repeat},
                        {"f32_bytes", static_cast<std::int64_t>(bytes)}});
  }
  return out;
}

}  // namespace

void add_list_command(CLI::App& app) {
  struct Options {
    std::string what;
    CaseSelection selection;
    ContextOptions context;
    bool json = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "list", "List built-in grids, engines, fields, instruction sets, or the cases of a grid");
  command->add_option("WHAT", options->what, "grids, engines, fields, isas or cases")->required();
  add_selection_options(*command, options->selection);
  add_context_options(*command, options->context);
  command->add_flag("--json", options->json, "print a JSON array");
  command->footer(
      "Cases are listed in the order in which 'run' measures them: by work, the smallest first.\n\n"
      "Examples:\n"
      "  switchback-bench list engines\n"
      "  switchback-bench list cases --grid llm --filter 'batch_size=1'");
  command->callback([options] {
    const auto listing = [&] {
      if (options->what == "grids") return list_grids();
      if (options->what == "engines") return list_engines(Context(options->context));
      if (options->what == "fields") return list_fields();
      if (options->what == "isas") return list_isas();
      if (options->what == "cases") return list_cases(options->selection);
      core::fail(Status::invalid_argument,
                 "list '{}' is not one of grids, engines, fields, isas, cases", options->what);
    }();
    if (options->json)
      fmt::print("{}\n", listing.json.dump(2, ' ', false, Json::error_handler_t::replace));
    else
      fmt::print("{}", listing.table.text_for(stdout, listing.keys));
    set_exit_code(exit_codes::ok);
  });
}

}  // namespace switchback::bench
