// SPDX-License-Identifier: Apache-2.0
// Measure: kinds of operands for checking operations: plain random data, and data that breaks
// careless kernels.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "switchback/context.hpp"
#include "switchback/matrix.hpp"

namespace switchback::measure {

enum class Data {
  normal,     ///< iid normal, standard deviation 1
  outliers,   ///< normal data with some rows 100 times larger, single elements of 1000
  zeros,      ///< normal data with rows and columns of zeros, and negative zeros
  ties,       ///< values that are half way between two codes when scaled
  subnormal,  ///< rows of subnormal numbers, and rows with a few among normal ones
  nonfinite,  ///< rows with a NaN, an Inf, a −Inf, several of them; the other rows normal
};

inline constexpr std::array data_kinds = {Data::normal, Data::outliers,  Data::zeros,
                                          Data::ties,   Data::subnormal, Data::nonfinite};
constexpr std::span<const Data> all_data() noexcept {
  return data_kinds;
}
std::string_view data_name(Data data) noexcept;

/// Fills m (f32, f16, bf16, or codes), in memory of the Context's device, with a kind of data. The
/// values are the same for any device and thread count. For kinds other than normal, codes are
/// ±127: they saturate a kernel that adds pairs in 16 bits.
void fill(Context& context, AnyMatrix m, Data data, std::uint64_t seed);
/// Fills the scales of codes. For the kind nonfinite, the second scale is 0 and the third NaN or
/// Inf.
void fill_scales(Context& context, std::span<float> scales, Data data, std::uint64_t seed);

}  // namespace switchback::measure
