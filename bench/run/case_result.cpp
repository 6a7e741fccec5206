// SPDX-License-Identifier: Apache-2.0
#include "bench/run/case.hpp"

namespace switchback::bench {

std::optional<double> CaseResult::median_ms(Field f) const {
  const FieldResult& result = field(f);
  if (result.status != CaseStatus::ok || result.stats.count == 0) return std::nullopt;
  return result.stats.median_ms;
}

Record CaseResult::record() const {
  Record record;
  record.repeat = rounds > 0 ? rounds : repeat;
  record.shape = shape;
  for (std::size_t i = 0; i < record_fields; ++i)
    record.times_ms[i] = median_ms(static_cast<Field>(i));
  return record;
}

}  // namespace switchback::bench
