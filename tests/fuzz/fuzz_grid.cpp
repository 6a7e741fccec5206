// SPDX-License-Identifier: Apache-2.0
// Parses the input as a grid file. Required: no crash, no exception except Error(invalid_argument)
// with a message, and an accepted grid keeps the promises of bench/grid/grid.hpp.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "bench/grid/grid.hpp"
#include "fuzz/input.hpp"
#include "switchback/error.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace bench = switchback::bench;
  namespace limits = switchback::bench::grid_limits;
  try {
    const bench::Grid grid =
        bench::parse_grid(std::string_view(reinterpret_cast<const char*>(data), size), "fuzz.yaml");
    FUZZ_REQUIRE(grid.repeat >= 1 && grid.repeat <= limits::repeat, "repeat %d", grid.repeat);
    FUZZ_REQUIRE(!grid.cases.empty() && grid.cases.size() <= limits::cases, "%zu cases",
                 grid.cases.size());
    for (const bench::Case& c : grid.cases) {
      FUZZ_REQUIRE(c.batch_size >= 1 && c.batch_size <= limits::batch_size, "batch");
      FUZZ_REQUIRE(c.dim_in >= 1 && c.dim_out >= 1, "dims");
      FUZZ_REQUIRE(c.wm > 0 && c.wm <= limits::wm, "wm %g", c.wm);
      FUZZ_REQUIRE(c.narrows == (c.dim_out < c.dim_in), "the direction of a case");
      FUZZ_REQUIRE(!bench::case_id(c).empty(), "case_id");
    }
    FUZZ_REQUIRE(std::is_sorted(grid.cases.begin(), grid.cases.end(), bench::case_less), "order");
    FUZZ_REQUIRE(std::adjacent_find(grid.cases.begin(), grid.cases.end()) == grid.cases.end(),
                 "a case twice");
  } catch (const switchback::Error& error) {
    FUZZ_REQUIRE(error.status() == switchback::Status::invalid_argument, "status %d: %s",
                 static_cast<int>(error.status()), error.what());
    FUZZ_REQUIRE(error.what()[0] != '\0', "an error without a message");
  }
  return 0;
}
