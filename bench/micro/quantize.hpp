// SPDX-License-Identifier: Apache-2.0
// Bench: `micro quantize`: each operation against a copy that reads and writes as many bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "bench/micro/race_row.hpp"

namespace switchback::bench {

struct QuantizeOptions : MicroOptions {
  std::int64_t quantize_bytes = 0;  ///< read and written past the caches; 0: enough
};

struct QuantizeRow : RaceRow {
  using RaceRow::RaceRow;
  double gb_s = 0;  ///< bytes read and written a second, in 1e9
};
Json to_json(const QuantizeRow& row);

void micro_quantize(Context& context, const QuantizeOptions& options,
                    const std::function<void(const QuantizeRow&)>& sink);
std::unique_ptr<MicroBench> make_micro_quantize(const MicroOptions& shared);

}  // namespace switchback::bench
