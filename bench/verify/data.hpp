// SPDX-License-Identifier: Apache-2.0
// Bench: the inputs `verify` uses: plain random ones, and ones that break careless kernels.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "switchback/context.hpp"
#include "switchback/matrix.hpp"

namespace switchback::bench {

enum class Data {
  normal,     ///< iid normal, standard deviation 1
  outliers,   ///< some rows 100 times larger, single elements of 1000
  zeros,      ///< zero rows, zero columns, negative zeros
  ties,       ///< scaled values half way between two codes
  subnormal,  ///< rows of subnormal numbers, and rows with a few among normal ones
  nonfinite,  ///< rows with a NaN, an Inf, a −Inf, several of them; the others normal
};

std::span<const Data> all_data() noexcept;
std::string_view data_name(Data data) noexcept;
/// Throws Error(invalid_argument) that lists the names.
Data parse_data(std::string_view name);

/// Fills m (f32, f16 or bf16), the same for any thread count.
void fill(Context& context, AnyMatrix m, Data data, std::uint64_t seed);

}  // namespace switchback::bench
