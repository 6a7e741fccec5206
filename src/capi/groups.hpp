// SPDX-License-Identifier: Apache-2.0
// C ABI: reads groups of rows.
#pragma once

#include <cstdint>
#include <string_view>

#include "capi/arguments.hpp"
#include "switchback/context.hpp"
#include "switchback/groups.hpp"

namespace switchback::capi {

/// The groups that a C struct describes, and the row of x that each slot (row of the result) reads.
struct Grouping {
  Groups groups;
  GroupedRows rows;
};

inline Grouping read_groups(std::string_view op, const Context& context,
                            const switchback_groups* given_groups, std::int64_t slots) {
  const auto given = read_struct(op, "groups", given_groups);
  core::require(given.count >= 0, "{}: groups.count = {}; it must not be negative", op,
                given.count);
  const bool has_arrays =
      given.ends != nullptr || given.rows_of != nullptr || given.row_index != nullptr;
  const bool on_device = read_flag(op, "groups.on_device", given.on_device);
  if (has_arrays && !on_device && context.device() != "cpu")
    core::fail(Status::unsupported,
               "{}: groups.on_device = 0 on {}; the arrays must be in the device's memory, with "
               "on_device = 1",
               op, context.device());
  Grouping result;
  Groups& groups = result.groups;
  groups.count = given.count;
  if (given.ends != nullptr) groups.ends = read_span(given.ends, given.count);
  groups.rows = given.row_stride;
  if (given.rows_of != nullptr) groups.used = read_span(given.rows_of, given.count);
  if (given.row_index != nullptr) result.rows.index = read_span(given.row_index, slots);
  result.rows.column_stride = given.column_stride;
  return result;
}

}  // namespace switchback::capi
