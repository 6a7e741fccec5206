// SPDX-License-Identifier: Apache-2.0
// Bench: the shapes `verify` and `micro` take from their command line.
#include "bench/grid/grid.hpp"
#include "bench/verify/verify.hpp"

namespace switchback::bench {

VerifyShape parse_verify_shape(std::string_view text) {
  constexpr std::int64_t largest = std::int64_t{1} << 30;
  const auto [batch, dim_in, dim_out] = parse_sides(text, {largest, largest, largest});
  return {batch, dim_in, dim_out};
}

std::vector<VerifyShape> verify_shapes_of_grid(const std::string& file_or_name) {
  std::vector<VerifyShape> shapes;
  for (const Case& c : load_grid(file_or_name).cases)
    shapes.push_back({c.batch_size, c.dim_in, c.dim_out});
  return shapes;
}

}  // namespace switchback::bench
