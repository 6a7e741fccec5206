// SPDX-License-Identifier: Apache-2.0
#include "bench/micro/micro.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/device_table.hpp"

namespace switchback::bench {

namespace {

nlohmann::ordered_json stats_json(const std::string& name, const measure::Stats& s) {
  return {{"name", name},       {"count", s.count},         {"min_ms", s.min_ms},
          {"p20_ms", s.p20_ms}, {"median_ms", s.median_ms}, {"p80_ms", s.p80_ms},
          {"max_ms", s.max_ms}, {"mad_ms", s.mad_ms}};
}

}  // namespace

const std::vector<MicroShape>& default_micro_shapes() {
  static const std::vector<MicroShape> shapes = {
      {1, 4096, 4096},    {16, 4096, 4096},   {256, 1024, 4096}, {1024, 1024, 4096},
      {1024, 4096, 1024}, {4096, 1408, 6144}, {2048, 4096, 4096}};
  return shapes;
}

std::string verdict(const std::optional<Target>& target, double value) {
  if (!target) return {};
  if (value >= target->stretch) return "above stretch";
  if (value >= target->target) return "above target";
  if (value >= target->floor) return "above floor";
  return "BELOW FLOOR";
}

std::vector<std::string> fast_engines(const std::vector<EngineInfo>& infos) {
  std::vector<std::string> names;
  for (const EngineInfo& info : infos)
    if (info.available && info.name != core::oracle_name) names.push_back(info.name);
  // A machine with nothing else is measured as it is.
  for (const EngineInfo& info : infos)
    if (names.empty() && info.available) names.push_back(info.name);
  return names;
}

nlohmann::ordered_json to_json(const MicroRow& row) {
  nlohmann::ordered_json json;
  json["type"] = "micro";
  json["v"] = 1;
  json["bench"] = row.bench;
  json["variant"] = row.variant;
  json["dtype"] = std::string(dtype_name(row.dtype));
  json["batch"] = row.shape.batch;
  json["dim_in"] = row.shape.dim_in;
  json["dim_out"] = row.shape.dim_out;
  json["subject"] = stats_json(row.subject, row.subject_ms);
  json["rival"] = nullptr;
  json["ratio"] = nullptr;
  json["ratio_mad"] = nullptr;
  if (!row.rival.empty()) {
    json["rival"] = stats_json(row.rival, row.rival_ms);
    json["ratio"] = row.ratio.median;
    json["ratio_mad"] = row.ratio.mad;
  }
  json["gop_s"] = nullptr;
  json["gb_s"] = nullptr;
  if (row.gop_s > 0) json["gop_s"] = row.gop_s;
  if (row.gb_s > 0) json["gb_s"] = row.gb_s;
  json["ceiling"] = nullptr;
  json["share_of_ceiling"] = nullptr;
  json["share_mad"] = nullptr;
  if (!row.ceiling.empty()) {
    json["ceiling"] = row.ceiling;
    json["share_of_ceiling"] = row.share.median;
    json["share_mad"] = row.share.mad;
  }
  json["output"] = nullptr;
  json["share_of_reading_w"] = nullptr;
  json["share_of_reading_w_mad"] = nullptr;
  if (row.bench == "gemm") json["output"] = std::string(dtype_name(row.output));
  if (row.read_share) {
    json["share_of_reading_w"] = row.read_share->median;
    json["share_of_reading_w_mad"] = row.read_share->mad;
  }
  json["reference_target"] = nullptr;
  if (row.target)
    json["reference_target"] = {{"of", row.bench == "gemm" ? "share_of_ceiling" : "ratio"},
                                {"floor", row.target->floor},
                                {"target", row.target->target},
                                {"stretch", row.target->stretch},
                                {"set_on", "Cascade Lake, 2 cores"}};
  return json;
}

}  // namespace switchback::bench
