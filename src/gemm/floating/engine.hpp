// SPDX-License-Identifier: Apache-2.0
// Engine zone: the floating point engines: what each can run, the reason if it cannot, and how to
// run it.
//
// Engines that call a library use the instruction set that their library chooses, whatever
// ContextOptions::isa says: oneDNN has only a process-wide limit (ONEDNN_MAX_CPU_ISA), OpenBLAS
// chooses once when it is loaded. A Context with a capped isa limits only our own loops (widening,
// rounding, bias). To get the same bits everywhere, force "reference". In a build without OpenMP
// the libraries also use their own number of threads.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/context_state.hpp"
#include "core/device_table.hpp"
#include "gemm/floating/problem.hpp"
#include "switchback/matrix.hpp"

namespace switchback::floating {

/// The addresses of a Problem's operands. bias has null data if the Problem has none.
struct Operands {
  const void* a = nullptr;
  const void* b = nullptr;
  void* d = nullptr;
  ConstAnyMatrix bias;
};

// The defaults of Engine's function members.
inline std::string available_everywhere() {
  return {};
}
inline std::string accepts_every_problem(const Problem&) {
  return {};
}
inline std::int64_t no_scratch(const Problem&, const Config&) {
  return 0;
}

/// One implementation of the floating point product. Members with the same names as in the int8
/// product's Engine (gemm/int8/engine.hpp) have the same meaning.
struct Engine {
  EngineId id;
  std::string_view name;

  bool is_oracle = false;
  /// Whether the engine can rearrange b before the product (Config::pack_b), and can run on a
  /// weight that was rearranged once (PackedStandardWeight).
  bool packs_b = false;
  /// The relative error of each product of two factors, apart from the rounding of sums. If it is
  /// above zero, the engine computes a different product from the one that was asked for, and runs
  /// only if a caller names it.
  double factor_error = 0;

  std::string (*unavailable)() = available_everywhere;
  /// Why the engine cannot compute a problem, whose m, n and k are at least 1; empty if it can.
  std::string (*unsupported)(const Problem& problem) = accepts_every_problem;

  /// Lists the engine's configurations worth measuring. Null for an engine with a single
  /// configuration, or if config.cpp lists its configurations.
  void (*candidates)(const Problem& problem, const ContextState& state,
                     std::vector<Config>& out) = nullptr;
  /// Lists all configurations of the engine, if only some of them are worth trying. Null:
  /// candidates() lists all.
  void (*all_candidates)(const Problem& problem, const ContextState& state,
                         std::vector<Config>& out) = nullptr;
  std::string (*invalid_config)(const Problem& problem, const Config& config,
                                const ContextState& state) = nullptr;
  std::string (*provenance)(const Problem& problem, const Config& config,
                            const ContextState& state) = nullptr;
  std::int64_t (*scratch_bytes)(const Problem& problem, const Config& config) = no_scratch;

  /// Runs a problem that unsupported() does not reject. Throws Error if the engine's library fails.
  void (*run)(ContextState& context, const Problem& problem, const Config& config,
              const Operands& operands);
};

/// All engines of this build, also those that cannot run here, in the order in which users see
/// them.
core::EngineTable<Engine>& engine_table() noexcept;
inline std::span<const Engine* const> engines(DeviceKind device) noexcept {
  return engine_table().of(device);
}
/// Finds an engine by number or name; null if there is none.
inline const Engine* find_engine(DeviceKind device, EngineId id) noexcept {
  return engine_table().find(device, id);
}
inline const Engine* find_engine(DeviceKind device, std::string_view name) noexcept {
  return engine_table().find(device, name);
}
/// The factor_error of the engine with this name; 0 if there is no such engine.
inline double factor_error(DeviceKind device, std::string_view name) noexcept {
  const Engine* const engine = find_engine(device, name);
  return engine == nullptr ? 0 : engine->factor_error;
}

/// The form in which a library describes the algorithm of a configuration, for records; empty if
/// there is none.
std::string provenance(const Problem& problem, const Config& config, const ContextState& state);
/// Runs a problem with one configuration. Throws Error(unsupported) with the reason if the
/// configuration cannot run it. Operands are not validated.
void run(Context& context, const Problem& problem, const Config& config, const Operands& operands);

extern const Engine onednn_sgemm_engine;
extern const Engine onednn_matmul_engine;
extern const Engine openblas_engine;
extern const Engine reference_engine;

}  // namespace switchback::floating
