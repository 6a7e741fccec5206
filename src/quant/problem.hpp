// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: a Problem is one operation with its sizes and types; it is the tuner's key.
#pragma once

#include <cstdint>
#include <string>

#include "core/check.hpp"
#include "core/config_source.hpp"
#include "core/tunable.hpp"
#include "quant/ops.hpp"
#include "switchback/matrix.hpp"

namespace switchback::quant {

/// One operation on one shape. rows and cols are those of the untransposed matrix.
struct Problem : ConfigOrigin {
  Op op = Op::rowwise;
  DType dtype = DType::f32;  ///< type of the floating-point matrix
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  /// core::alignment_class of the matrices and of the distances of floating-point rows.
  std::int64_t alignment = 0;
  std::int64_t block_rows = 0;  ///< for operations with blockwise codes, else 0

  friend bool operator==(const Problem&, const Problem&) = default;
};

std::string describe(const Problem& problem);
core::ProblemSize size_of(const Problem& problem) noexcept;

// The functions and objects that core/tunable.hpp requires of a tunable operation; the tables are
// in tunable.cpp.
extern const core::Tunable tunable;
ConfigQuery to_query(const Problem& problem) noexcept;
bool from_query(const ConfigQuery& query, Problem& problem) noexcept;

}  // namespace switchback::quant

/// describe()
template <>
struct fmt::formatter<switchback::quant::Problem>
    : switchback::core::DescribedFormatter<switchback::quant::Problem,
                                           switchback::quant::describe> {};
