// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: a Problem is one operation with its sizes and types, the tuner's key.
#pragma once

#include <cstdint>
#include <string>

#include "core/check.hpp"
#include "core/config_source.hpp"
#include "core/cpu/isa.hpp"
#include "core/device_kind.hpp"
#include "quant/ops.hpp"
#include "switchback/matrix.hpp"

namespace switchback::quant {

/// What is to be done. rows and cols are those of the untransposed matrix.
struct Problem {
  Op op = Op::rowwise;
  DType dtype = DType::f32;  ///< of the matrix of floats
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  DeviceKind device = DeviceKind::cpu;
  int threads = 1;                    ///< of the CPU; 1 on another device
  core::Isa isa = core::Isa::scalar;  ///< of the CPU
  std::int64_t alignment = 0;  ///< core::alignment_class of the matrices and of the rows of floats

  friend bool operator==(const Problem&, const Problem&) = default;
};

std::string to_string(const Problem& problem);
ConfigQuery to_query(const Problem& problem) noexcept;
/// The inverse; false for words that are no problem.
bool from_query(const ConfigQuery& query, Problem& problem) noexcept;

}  // namespace switchback::quant

/// to_string()
template <>
struct fmt::formatter<switchback::quant::Problem>
    : switchback::core::DescribedFormatter<switchback::quant::Problem,
                                           switchback::quant::to_string> {};
