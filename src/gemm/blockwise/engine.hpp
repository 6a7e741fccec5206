// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: the interface of an engine of the blockwise int8 product, and the table of all
// engines.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/context_state.hpp"
#include "core/device_table.hpp"
#include "gemm/blockwise/problem.hpp"

namespace switchback::blockwise {

inline std::string_view takes_every_problem(const BlockwiseProblem&) {
  return {};
}

/// The values of tile_n that an engine can choose from, the best first. A fixed array, because a
/// product must not run out of memory after an operation has written other results.
struct Tiles {
  std::array<std::int32_t, 2> tile_n = {};
  std::size_t count = 0;

  [[nodiscard]] const std::int32_t* begin() const noexcept { return tile_n.data(); }
  [[nodiscard]] const std::int32_t* end() const noexcept { return tile_n.data() + count; }
};
inline Tiles without_tiles(const BlockwiseProblem&, const ContextState&) noexcept {
  return {};
}

/// One implementation of the blockwise int8 product.
struct Engine {
  EngineId id;
  std::string_view name;
  bool is_oracle = false;  ///< whether it is the reference that tests compare with
  /// Whether the engine's kernels may fail on a machine on which they never ran. Such an engine
  /// runs by default only if a committed record shows that its kernels are right on this GPU
  /// generation.
  bool needs_trust = false;
  /// The record that shows the kernels right (gemm/cuda/seen.hpp); empty if there is none
  std::string_view seen = {};
  /// Why the engine cannot run on this machine in this Context; empty if it can.
  std::string_view (*unavailable)(const ContextState& state);
  /// Why the engine's kernels cannot compute this problem; empty if they can. If they cannot, the
  /// last engine of the device computes it, even if a caller named this engine.
  std::string_view (*unsupported)(const BlockwiseProblem& problem) = takes_every_problem;
  /// The tiles in which the engine can compute the problem; empty if it offers no choice.
  Tiles (*tiles)(const BlockwiseProblem& problem,
                 const ContextState& state) noexcept = without_tiles;
  /// Computes the problem. n, k and padded_m are above zero, except that the last engine of a
  /// device also accepts zero. May throw Error(out_of_memory) before it writes d.
  void (*run)(ContextState& state, const BlockwiseProblem& problem, const BlockwiseConfig& config,
              const BlockwiseOperands& operands);

  /// Whether the engine runs only if a caller names it, or if a tuner has validated its kernels.
  [[nodiscard]] constexpr bool needs_validation() const noexcept {
    return needs_trust && seen.empty();
  }
};

/// All engines of this build, in order of preference. The last engine of a device accepts every
/// problem.
core::EngineTable<Engine>& engine_table() noexcept;

extern const Engine reference_engine;

/// The engines of the CPU: one for each tile kernel of the int8 product, the preferred one first,
/// then the reference.
std::span<const Engine* const> cpu_engines() noexcept;

}  // namespace switchback::blockwise
