// SPDX-License-Identifier: Apache-2.0
// Tuner: the operations that can be tuned. A new one is one line in operations.cpp.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "autotune/task.hpp"
#include "core/tunable.hpp"

namespace switchback::autotune {

struct Operation {
  const core::Tunable* tunable;
  /// Throws Error(invalid_argument) for a query that is no problem.
  std::unique_ptr<Task> (*make_task)(Context& context, const ConfigQuery& query, Purpose purpose);
};
std::span<const Operation> operations() noexcept;

/// Of an operation that is none: one without words, whose every query is no problem.
const core::Tunable& tunable_of(ConfigOp op) noexcept;
/// By name; null if there is none.
const core::Tunable* find_tunable(std::string_view name) noexcept;

}  // namespace switchback::autotune
