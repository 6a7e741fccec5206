// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/groups.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <string_view>

namespace switchback::core::cuda {

std::string describe(ReportedArray array, Report report) {
  std::string_view name;
  std::string_view rule;
  switch (array) {
    case ReportedArray::ends:
      name = "groups.ends";
      rule = "ends must not decrease, and must be from 0 to the number of slots M";
      break;
    case ReportedArray::used:
      name = "groups.used";
      rule = "it must be from 0 to groups.rows";
      break;
    case ReportedArray::index:
      name = "x.index";
      rule = "it must be from 0 to the last row of x";
      break;
    case ReportedArray::slots:
      name = "slots";
      rule = "it must be at most the last row of y (a negative value means no slot)";
      break;
  }
  return fmt::format("{}[{}] = {}; {}", name, report >> 32,
                     static_cast<std::int32_t>(static_cast<std::uint32_t>(report)), rule);
}

}  // namespace switchback::core::cuda
