// SPDX-License-Identifier: Apache-2.0
// Bench: the shapes `verify` and `micro` take from their command line.
#include <charconv>
#include <system_error>

#include "bench/cli.hpp"
#include "bench/grid.hpp"
#include "bench/verify.hpp"
#include "core/check.hpp"

namespace switchback::bench {

VerifyShape parse_verify_shape(std::string_view text) {
  constexpr std::int64_t largest = std::int64_t{1} << 30;
  std::vector<std::int64_t> sizes;
  for (const std::string& part : split_list(text)) {
    std::int64_t size = 0;
    const char* end = part.data() + part.size();
    const auto [rest, error] = std::from_chars(part.data(), end, size);
    core::require(error == std::errc() && rest == end && size >= 1 && size <= largest,
                  "--shape '{}': '{}' is not a number from 1 to {}", text, part, largest);
    sizes.push_back(size);
  }
  core::require(sizes.size() == 3, "--shape '{}': it must be batch,dim_in,dim_out", text);
  return {sizes[0], sizes[1], sizes[2]};
}

std::vector<VerifyShape> verify_shapes_of_grid(const std::string& file_or_name) {
  std::vector<VerifyShape> shapes;
  for (const Case& c : load_grid(file_or_name).cases)
    shapes.push_back({c.batch_size, c.dim_in, c.dim_out});
  return shapes;
}

}  // namespace switchback::bench
