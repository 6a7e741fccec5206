// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: quantize operations as the tuner sees them: the names of the members of a Problem
// and a Config in caches, and their allowed values.
#include <fmt/format.h>

#include <cstddef>

#include "core/tunable.hpp"
#include "quant/config.hpp"
#include "quant/problem.hpp"

namespace switchback::quant {

std::string_view op_name(Op op) noexcept {
  const auto index = static_cast<std::size_t>(op);
  return index < all_ops.size() ? all_ops[index].name : "unknown";
}

std::string describe(const Problem& p) {
  const std::string on = p.device == DeviceKind::cpu
                             ? fmt::format("threads {} {}", p.threads, core::isa_name(p.isa))
                             : "cuda";
  return fmt::format("{} {} [{},{}] {}", op_name(p.op), dtype_name(p.dtype), p.rows, p.cols, on);
}

core::ProblemSize size_of(const Problem& p) noexcept {
  core::ProblemSize size;
  size.is_empty = p.rows == 0 || p.cols == 0;
  size.elements = static_cast<double>(p.rows) * static_cast<double>(p.cols);
  size.tokens = "rows";
  return size;
}

namespace {

using core::number;
using core::row;
using core::value_name;

constexpr core::WordTable problem_table(
    row<&Problem::op>({.name = "operation",
                       .most = number(Op::cast_to_int8),
                       .value_name = value_name<op_name, Op>}),
    row<&Problem::dtype>({.name = "dtype",
                          .most = number(DType::bf16),
                          .value_name = value_name<dtype_name, DType>}),
    row<&Problem::rows>({.name = "rows"}), row<&Problem::cols>({.name = "cols"}),
    row<&Problem::alignment>({.name = "alignment", .most = 16}));

constexpr core::WordTable config_table(
    row<&Config::engine>({.name = "engine",
                          .most = number(Engine::cuda),
                          .value_name = value_name<engine_name, Engine>}),
    row<&Config::task_elements>({.name = "task_elements"}),
    row<&Config::stream>({.name = "stream", .most = 1}),
    row<&Config::tile_rows>({.name = "tile_rows"}), row<&Config::tile_cols>({.name = "tile_cols"}),
    row<&Config::panel_cols>({.name = "panel_cols"}),
    row<&Config::block_threads>({.name = "block_threads"}));

bool is_tile(std::int64_t n) noexcept {
  return n > 0 && n <= Config::largest_tile && n % 64 == 0;
}

}  // namespace

constinit const core::Tunable tunable =
    core::make_tunable<Problem, Config, problem_table, config_table>(ConfigOp::quantize, "quantize",
                                                                     "");

ConfigQuery to_query(const Problem& problem) noexcept {
  return core::make_query(ConfigOp::quantize, problem, problem_table, problem);
}

bool from_query(const ConfigQuery& query, Problem& problem) noexcept {
  return core::read_query(ConfigOp::quantize, problem_table, query, problem);
}

ConfigChoice to_choice(const Config& config) noexcept {
  return core::make_choice(config_table, config);
}

bool from_choice(const ConfigChoice& choice, Config& config) noexcept {
  Config found;
  if (!config_table.read(choice.words, found)) return false;
  switch (found.engine) {
    case Engine::reference:
      break;
    case Engine::highway:
      if (!is_tile(found.tile_rows) || !is_tile(found.tile_cols) ||
          found.panel_cols % found.tile_cols != 0)
        return false;
      break;
    case Engine::cuda:
      if (found.block_threads > 1024 || found.block_threads % 32 != 0) return false;
      break;
  }
  config = found;
  return true;
}

}  // namespace switchback::quant
