// SPDX-License-Identifier: Apache-2.0
#include "bench/run/log.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "bench/run/operands.hpp"
#include "bench/workload/disturbance.hpp"
#include "bench/workload/output.hpp"
#include "bench/workload/statistic.hpp"

namespace switchback::bench {

namespace {

/// Writes the rate of a field's work, and its share of the machine's upper limit, to the run file.
struct AddRates {
  Json& out;
  const Case& shape;
  DType dtype;
  double seconds;
  const Ceilings& ceilings;

  void operator()(const FloatingProduct&) const { add_operations(ceilings.f32_tflops); }
  void operator()(const EvalForward&) const { add_operations(ceilings.f32_tflops); }
  void operator()(const Int8Product&) const { add_operations(ceilings.s8_tops); }
  void operator()(const Quantize& quantize) const { add_bytes(quantize.x); }
  void operator()(const Cast& cast) const { add_bytes(cast.x); }

 private:
  void add_operations(double ceiling) const {
    add("tops", 2 * shape.macs() / seconds * 1e-12, ceiling);
  }
  // The bytes of a quantize or a cast: each element is read once and each code is written once.
  void add_bytes(Operand x) const {
    const double bytes = elements_of(x, shape) * static_cast<double>(dtype_size_bytes(dtype) + 1);
    add("gb_s", bytes / seconds * 1e-9, ceilings.copy_gb_s);
  }
  void add(const char* key, double rate, double ceiling) const {
    out[key] = rate;
    if (ceiling > 0) out["percent_of_ceiling"] = 100 * rate / ceiling;
  }
};

std::optional<double> number_at(const Json& object, const char* key) {
  if (!object.is_object()) return std::nullopt;
  const auto at = object.find(key);
  if (at == object.end() || !at->is_number()) return std::nullopt;
  return at->get<double>();
}

RunLog::Noise noise_of(const Json& line) {
  RunLog::Noise noise;
  if (const auto load = line.find("load"); load != line.end())
    noise.others_cores = number_at(*load, "others_cores");
  if (const auto disturbed = line.find("disturbed");
      disturbed != line.end() && disturbed->is_boolean())
    noise.disturbed = disturbed->get<bool>();
  const auto fields = line.find("fields");
  if (fields == line.end() || !fields->is_object()) return noise;
  for (std::size_t i = 0; i < record_fields; ++i) {
    const auto field = fields->find(std::string(field_table()[i].name));
    if (field == fields->end()) continue;
    measure::Stats& stats = noise.parts[i];
    stats.count = static_cast<std::int64_t>(number_at(*field, "count").value_or(0));
    stats.p20_ms = number_at(*field, "p20_ms").value_or(0);
    stats.median_ms = number_at(*field, "median_ms").value_or(0);
    stats.p80_ms = number_at(*field, "p80_ms").value_or(0);
  }
  return noise;
}

}  // namespace

void put_header(const RunHeader& header, const Ceilings& ceilings, Json& line) {
  line["driver"] = nullptr;  // both members are always null: the values of a GPU are in "machine"
  line["compute_capability"] = nullptr;
  line["dtype"] = dtype_name(header.dtype);
  line["timer"] = "std::chrono::steady_clock around one call";
  line["statistic"] = "median";
  line["cache"] = header.cache;
  line["seed"] = nullptr;  // reserves the place of a member that the caller sets for every run
  line["grids"] = header.grids;
  line["arguments"] = nullptr;
  Json fields = Json::array();
  for (std::size_t i = 0; i < all_fields; ++i)
    if (header.fields[i]) fields.push_back(field_table()[i].name);
  line["fields"] = std::move(fields);
  line["cases"] = nullptr;
  line["mode"] = header.mode;
  line["load"] = nullptr;
  line["ceilings"] = {{"s8_tops", ceilings.s8_tops},
                      {"f32_tflops", ceilings.f32_tflops},
                      {"copy_gb_s", ceilings.copy_gb_s},
                      {"copy_l3_gb_s", ceilings.copy_l3_gb_s},
                      {"core_to_core_ns", to_json(ceilings.core_to_core)},
                      {"s8_instruction", ceilings.s8_instruction},
                      {"f32_instruction", ceilings.f32_instruction}};
}

void put_shape(const Case& c, Json& line) {
  line["batch_size"] = c.batch_size;
  line["dim_out"] = c.dim_out;
  line["dim_in"] = c.dim_in;
}

void put_result(const CaseResult& result, DType dtype, const Ceilings& ceilings, Json& line) {
  line["repeat"] = result.repeat;
  line["rounds"] = result.rounds;
  put_disturbance({}, line);  // reserves the place of members that the caller sets for every case
  line["preemptions"] = result.preemptions;
  line["planned_bytes"] = nullptr;
  if (result.copied_bytes > 0) line["copied_bytes"] = result.copied_bytes;
  line["setup_s"] = result.setup_s;
  line["wall_s"] = nullptr;
  line["load"] = nullptr;
  line["disturbed"] = nullptr;
  for (const Field field : {Field::fwd_packed, Field::bwd_packed, Field::standard_fwd_packed}) {
    const std::optional<double> ms = result.median_ms(field);
    line[std::string(field_name(field)) + "_ms"] = ms ? Json(*ms) : Json(nullptr);
  }
  Json fields = Json::object();
  for (std::size_t i = 0; i < all_fields; ++i) {
    const FieldResult& field = result.fields[i];
    if (field.status == CaseStatus::skipped) continue;
    Json out;
    out["status"] = status_text(field.status);
    if (!field.why.empty()) out["why"] = field.why;
    if (!field.engine.empty()) out["engine"] = field.engine;
    out["error"] = field.error;
    const measure::Stats& s = field.stats;
    out["count"] = s.count;
    if (s.count > 0) {
      put_stats(s, out);
      out["times_ms"] = samples_json(field.times_ms);
      if (s.median_ms > 0)
        std::visit(AddRates{out, result.shape, dtype, s.median_ms * 1e-3, ceilings},
                   field_table()[i].work);
    }
    if (field.default_stats.count > 0) {
      out["default_median_ms"] = field.default_stats.median_ms;
      out["default_mad_ms"] = field.default_stats.mad_ms;
      out["tuned"] = field.tuned;
      out["tuned_speedup"] = field.tuned_speedup.median;
      out["tuned_speedup_mad"] = field.tuned_speedup.mad;
    }
    fields[std::string(field_table()[i].name)] = std::move(out);
  }
  line["fields"] = std::move(fields);
  if (result.layer) {
    const LayerResult& layer = *result.layer;
    Json out;
    out["standard_step_ms"] = layer.standard_step.median_ms;
    out["auto_step_ms"] = layer.auto_step.median_ms;
    out["auto_step_speedup"] = layer.step_speedup.median;
    out["auto_step_speedup_mad"] = layer.step_speedup.mad;
    out["auto_forward_mode"] = layer.forward_mode;
    out["auto_dx_mode"] = layer.dx_mode;
    out["standard_eval_ms"] = layer.standard_forward.median_ms;
    out["auto_eval_ms"] = layer.auto_forward.median_ms;
    out["auto_eval_speedup"] = layer.forward_speedup.median;
    out["auto_eval_speedup_mad"] = layer.forward_speedup.mad;
    out["auto_eval_mode"] = layer.eval_mode;
    line["layer"] = std::move(out);
  }
}

std::string machine_text(const Json& machine, std::string_view dtype) {
  return fmt::format("{}, {}, {} threads, {}", text_at(machine, "cpu"), text_at(machine, "isa"),
                     text_at(machine, "threads"), dtype);
}

RunLog parse_run_log(const std::vector<std::string>& lines) {
  RunLog log;
  for (const std::string& text : lines) {
    const Json line = Json::parse(text, nullptr, false);
    const std::string type = text_at(line, "type");
    if (type == "run_start") {
      const auto machine = line.find("machine");
      const Json empty;
      const Json& on = machine != line.end() ? *machine : empty;
      const std::string dtype = text_at(line, "dtype");
      log.setting = setting_of(on, {{"dtype", dtype}});
      log.machine = machine_text(on, dtype);
      if (const auto ceilings = line.find("ceilings"); ceilings != line.end()) {
        if (const auto tops = number_at(*ceilings, "s8_tops"); tops && *tops > 0)
          log.s8_tops = tops;
        if (const auto tflops = number_at(*ceilings, "f32_tflops"); tflops && *tflops > 0)
          log.f32_tflops = tflops;
      }
    } else if (type == "case") {
      if (const auto ms = number_at(line, "fwd_packed_ms"); ms && *ms > 0)
        log.fwd_packed_ms[text_at(line, "id")] = *ms;
      if (const auto ms = number_at(line, "standard_fwd_packed_ms"); ms && *ms > 0)
        log.standard_fwd_packed_ms[text_at(line, "id")] = *ms;
      log.noise[text_at(line, "id")] = noise_of(line);
    }
  }
  return log;
}

}  // namespace switchback::bench
