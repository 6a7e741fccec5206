// SPDX-License-Identifier: Apache-2.0
#include "autotune/tasks/sums.hpp"

#include <fmt/format.h>

#include <vector>

#include "core/unaligned.hpp"
#include "measure/data.hpp"

namespace switchback::autotune {

// Freivalds 1977: sums · r = a · (bᵀ · r) for a random vector r, in integers modulo 2^64. An error
// e in a row escapes only if the sum of e · r over that row is 0 modulo 2^64, which for random odd
// and even r of 64 bits happens once in 2^(64 - z) where 2^z divides e, z < 32.
std::string check_sums(MatrixView<const std::int8_t> a, MatrixView<const std::int8_t> b,
                       MatrixView<const std::int32_t> sums) {
  const std::int64_t k = a.cols;
  std::vector<std::uint64_t> r(static_cast<std::size_t>(sums.cols));
  for (std::size_t j = 0; j < r.size(); ++j)
    r[j] = measure::random_bits(77, j);
  std::vector<std::uint64_t> b_r(static_cast<std::size_t>(k), 0);
  const auto product = [](std::int64_t number, std::uint64_t random) {
    return static_cast<std::uint64_t>(number) * random;
  };
  for (std::int64_t j = 0; j < sums.cols; ++j)
    for (std::int64_t p = 0; p < k; ++p)
      b_r[static_cast<std::size_t>(p)] +=
          product(b.data[j * b.stride + p], r[static_cast<std::size_t>(j)]);
  for (std::int64_t i = 0; i < sums.rows; ++i) {
    std::uint64_t want = 0;
    for (std::int64_t p = 0; p < k; ++p)
      want += product(a.data[i * a.stride + p], b_r[static_cast<std::size_t>(p)]);
    std::uint64_t got = 0;
    for (std::int64_t j = 0; j < sums.cols; ++j)
      got += product(core::load(sums.data, i * sums.stride + j), r[static_cast<std::size_t>(j)]);
    if (got != want) return fmt::format("the int32 sums of row {} are wrong", i);
  }
  return {};
}

}  // namespace switchback::autotune
