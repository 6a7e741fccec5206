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

/// The tile_n values that an engine can choose from, the best first. (It allocates no memory: a
/// product must not run out of memory after an operation has written other results.)
struct Tiles {
  std::array<std::int32_t, 2> tile_n = {};
  std::size_t count = 0;

  [[nodiscard]] const std::int32_t* begin() const noexcept { return tile_n.data(); }
  [[nodiscard]] const std::int32_t* end() const noexcept { return tile_n.data() + count; }
};
inline Tiles without_tiles(const BlockwiseProblem&, const ContextState&) noexcept {
  return {};
}

/// One implementation.
struct Engine {
  EngineId id;
  std::string_view name;
  bool is_oracle = false;  ///< see gemm_int8::Engine
  /// Whether its kernels may fail on a machine on which they never ran. Such an engine runs by
  /// default only if its kernels are in a committed record of that generation.
  bool needs_trust = false;
  std::string_view seen = {};  ///< that record (gemm/cuda/seen.hpp); empty if there is none
  /// Why it cannot run on this machine in this Context; empty if it can.
  std::string_view (*unavailable)(const ContextState& state);
  /// Why its kernels cannot compute this problem; empty if they can. Otherwise the last engine of
  /// the device computes it, even if this engine is named.
  std::string_view (*unsupported)(const BlockwiseProblem& problem) = takes_every_problem;
  /// The tiles in which it can compute the problem; empty if it has no choice.
  Tiles (*tiles)(const BlockwiseProblem& problem,
                 const ContextState& state) noexcept = without_tiles;
  /// Computes the problem. n, k and padded_m are above zero, except that the last engine of a
  /// device also accepts zero. May throw Error(out_of_memory) before it writes d.
  void (*run)(ContextState& state, const BlockwiseProblem& problem, const BlockwiseConfig& config,
              const BlockwiseOperands& operands);

  /// Whether it runs only where it is named, or where a tuner has validated its kernels.
  [[nodiscard]] constexpr bool needs_validation() const noexcept {
    return needs_trust && seen.empty();
  }
};

/// All engines of this build, in order of preference. The last engine of a device accepts every
/// problem.
core::EngineTable<Engine>& engine_table() noexcept;

extern const Engine reference_engine;

/// One engine for each tile kernel of the int8 product, the preferred one first, then the
/// reference.
std::span<const Engine* const> cpu_engines() noexcept;

}  // namespace switchback::blockwise
