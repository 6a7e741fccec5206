// SPDX-License-Identifier: Apache-2.0
// Bench: the columns of a report for programs: the members of a record and what follows from them.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/report/source.hpp"

namespace switchback::bench {

struct ReportColumn {
  std::string name;
  /// A number, a text, a truth, or null.
  std::function<nlohmann::ordered_json(const ReportSource&, const ReportRow&)> value;
};
const std::vector<ReportColumn>& report_columns();

}  // namespace switchback::bench
