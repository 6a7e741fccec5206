// SPDX-License-Identifier: Apache-2.0
#include "bench/report/source.hpp"

#include <algorithm>

#include "bench/cli/cli.hpp"
#include "bench/run/fields.hpp"
#include "bench/workload/output.hpp"
#include "bench/workload/record_file.hpp"
#include "core/assert.hpp"

namespace switchback::bench {

namespace {

double number_in(const Json& object, const char* key) {
  const auto at = object.find(key);
  return at != object.end() && at->is_number() ? at->get<double>() : 0;
}

// The name of an engine without its configuration: "avx512_vnni" for "avx512_vnni plain mc=6
// nc=256".
std::string engine_name(const std::string& engine) {
  return engine.substr(0, engine.find(' '));
}

void add_engines(ReportSource& source, const Json& fields) {
  for (std::size_t i = 0; i < all_fields; ++i) {
    const std::string name(field_name(static_cast<Field>(i)));
    const auto field = fields.find(name);
    if (field == fields.end()) continue;
    const std::string engine = engine_name(text_at(*field, "engine"));
    if (engine.empty()) continue;
    auto at = std::find_if(source.engines.begin(), source.engines.end(),
                           [&](const auto& known) { return known.first == name; });
    if (at == source.engines.end()) at = source.engines.insert(source.engines.end(), {name, {}});
    at->second.insert(engine);
  }
}

void take_run_file(ReportSource& source) {
  for (Json& line : run_file_lines(source.path)) {
    const std::string type = text_at(line, "type");
    if (type == "run_start") {
      source.dtype = line.value("dtype", Json()).is_string() ? text_at(line, "dtype") : "";
      if (const auto at = line.find("ceilings"); at != line.end() && at->is_object()) {
        Ceilings& c = source.ceilings.emplace();
        c.copy_gb_s = number_in(*at, "copy_gb_s");
        c.copy_l3_gb_s = number_in(*at, "copy_l3_gb_s");
        c.s8_tops = number_in(*at, "s8_tops");
        c.f32_tflops = number_in(*at, "f32_tflops");
        c.s8_instruction = text_at(*at, "s8_instruction");
        c.f32_instruction = text_at(*at, "f32_instruction");
      }
      source.start = std::move(line);
    } else if (const auto fields = line.find("fields");
               type == "case" && fields != line.end() && fields->is_object()) {
      add_engines(source, *fields);
    }
  }
}

}  // namespace

double ReportSource::element_bytes() const {
  return dtype == "f16" || dtype == "bf16" ? 2 : 4;
}

std::string source_label(const std::string& path) {
  if (path == "-") return "records";
  std::string name = path.substr(path.find_last_of('/') + 1);
  if (const std::size_t dot = name.rfind(".jsonl"); dot != std::string::npos && dot > 0)
    name.resize(dot);
  return name;
}

std::vector<Json> run_file_lines(const std::string& path) {
  std::vector<Json> lines;
  for (const std::string& text : run_file_texts(path))
    lines.push_back(Json::parse(text, nullptr, false));
  return lines;
}

ReportSource load_source(const std::string& path, const std::string& text) {
  ReportSource source;
  source.path = path;
  source.label = source_label(path);
  source.report = load_report(path, text);
  take_run_file(source);
  return source;
}

const ReportSource& published_source() {
  static const ReportSource published = [] {
    ReportSource source;
    source.path = "switchback_a100_2023.jsonl";
    source.label = "A100, published";
    source.dtype = "f16";
    for (const Record& record : parse_records(published_records(), source.path))
      source.report.add({record});
    SWITCHBACK_ASSERT(!source.report.rows.empty());
    return source;
  }();
  return published;
}

}  // namespace switchback::bench
