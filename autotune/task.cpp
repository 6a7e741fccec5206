// SPDX-License-Identifier: Apache-2.0
#include "autotune/task.hpp"

#include <fmt/format.h>

#include "autotune/problem.hpp"
#include "autotune/tasks/tasks.hpp"
#include "autotune/words.hpp"
#include "core/check.hpp"
#include "core/context_state.hpp"
#include "core/cpu/memory.hpp"
#include "core/device.hpp"

namespace switchback::autotune {

namespace {

[[noreturn]] void no_problem(const ConfigQuery& query) {
  core::fail(Status::invalid_argument, "tune: the query of op {} is no problem",
             static_cast<std::int64_t>(query.op));
}

// What of the Context a query was made in.
struct Origin {
  DeviceKind device;
  std::int64_t threads;
  std::int64_t isa;  ///< -1: it does not matter
};
Origin origin_of(const ConfigQuery& query) noexcept {
  const auto& w = query.words;
  const auto device = static_cast<DeviceKind>(w[device_word(query.op)]);
  switch (query.op) {
    case ConfigOp::quantize:
      return {device, w[4], w[5]};
    case ConfigOp::gemm_int8:
      return {device, w[11], w[10]};
    case ConfigOp::gemm_floating:
      return {device, w[9], -1};
    case ConfigOp::layer_mode:
      return {device, w[8], w[9]};
  }
  return {device, 0, -1};
}

struct Size {
  double elements = 0;    ///< of the operands and results
  double operations = 0;  ///< of the product
};

Size size_of(const ConfigQuery& query) noexcept {
  const auto& w = query.words;
  const auto word = [&](std::size_t i) { return static_cast<double>(w[i]); };
  switch (query.op) {
    case ConfigOp::quantize:
      return {word(2) * word(3), 0};
    case ConfigOp::gemm_int8:
    case ConfigOp::gemm_floating:
      return {word(0) * word(2) + word(1) * word(2) + word(0) * word(1),
              2 * word(0) * word(1) * word(2)};
    case ConfigOp::layer_mode:
      return {word(2) * word(4) + word(3) * word(4) + word(2) * word(3),
              2 * word(2) * word(3) * word(4)};
  }
  return {};
}

}  // namespace

bool matches(const ConfigQuery& query, const ContextState& state) noexcept {
  const Origin origin = origin_of(query);
  if (origin.device != state.device.kind) return false;
  if (!state.on_cpu()) return true;
  return origin.threads == state.threads.count() &&
         (origin.isa < 0 || origin.isa == static_cast<std::int64_t>(state.features.level()));
}

std::unique_ptr<Task> make_task(Context& context, const ConfigQuery& query) {
  core::require(matches(query, context.state()),
                "tune: {} is a problem of another device, number of threads or instruction set "
                "than this Context's ({}, {} threads, {})",
                query, context.state().device, context.threads(), context.isa());
  switch (query.op) {
    case ConfigOp::quantize: {
      quant::Problem p;
      if (!quant::from_query(query, p)) no_problem(query);
      return make_quantize_task(context, p);
    }
    case ConfigOp::gemm_int8: {
      gemm_int8::GemmProblem p;
      if (!gemm_int8::from_query(query, p)) no_problem(query);
      return make_int8_task(context, p);
    }
    case ConfigOp::gemm_floating: {
      floating::Problem p;
      if (!floating::from_query(query, p)) no_problem(query);
      return make_floating_task(context, p);
    }
    case ConfigOp::layer_mode: {
      linear::PassProblem p;
      if (!linear::from_query(query, p)) no_problem(query);
      return make_layer_task(context, p);
    }
  }
  no_problem(query);
}

double task_bytes(const ConfigQuery& query) noexcept {
  // Floats of 4 bytes, the images of results and what engines take besides.
  const double layers = query.op == ConfigOp::layer_mode ? 3 : 1;
  return size_of(query).elements * 12 * layers;
}

std::string too_large(const ConfigQuery& query, const ContextState& state) {
  const std::size_t free =
      state.runtime != nullptr ? state.runtime->free_bytes() : core::available_memory_bytes();
  // Where the system does not tell, the allocations will.
  if (free == 0 || task_bytes(query) <= static_cast<double>(free)) return {};
  return fmt::format("it takes {:.1f} GB, and there are {:.1f} GB", task_bytes(query) * 1e-9,
                     static_cast<double>(free) * 1e-9);
}

double task_cost(const ConfigQuery& query) noexcept {
  const Size size = size_of(query);
  // In operations: an element costs memory what some tens of them cost a core; making operands and
  // proving candidates costs something whatever the size.
  // Layers take it three times, and what they choose matters most.
  const double modes = query.op == ConfigOp::layer_mode ? 4 : 1;
  return (size.operations + 64 * size.elements) * modes + 2e8;
}

}  // namespace switchback::autotune
