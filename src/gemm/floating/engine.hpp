// SPDX-License-Identifier: Apache-2.0
// Engine zone: the floating point engines: what each can run, why not where it cannot, and how to
// run it.
//
// The library engines use the instruction set their library finds, whatever ContextOptions::isa
// says: oneDNN knows only a process-wide bound (ONEDNN_MAX_CPU_ISA), OpenBLAS chooses once when it
// is loaded. A capped Context bounds our own loops (widening, rounding, bias) and nothing else; a
// caller who wants the same bits everywhere forces "reference". Without OpenMP in this build the
// libraries also keep their own number of threads.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/context_state.hpp"
#include "gemm/floating/problem.hpp"
#include "switchback/matrix.hpp"

namespace switchback::floating {

/// The memory of a Problem. bias has null data if the Problem has none.
struct Operands {
  const void* a = nullptr;
  const void* b = nullptr;
  void* d = nullptr;
  ConstAnyMatrix bias;
};

struct Engine {
  EngineId id;
  std::string_view name;
  /// Why this engine cannot run anything on this machine; empty if it can.
  std::string (*unavailable)();
  /// Why it does not take this configuration of this problem; empty if it does. m, n and k are at
  /// least 1.
  std::string (*refuses)(const Problem& problem, const Config& config);
  /// Runs a problem it does not refuse. Throws Error if the library fails.
  void (*run)(ContextState& context, const Problem& problem, const Config& config,
              const Operands& operands);

  // Of an engine with a library's algorithms; null for the others. What is said of them in
  // gemm/int8/engine.hpp goes for these.
  std::string (*refuses_config)(const Problem& problem, const Config& config,
                                const ContextState& state) = nullptr;
  std::string (*provenance)(const Problem& problem, const Config& config,
                            const ContextState& state) = nullptr;
  /// Its configurations, the default first.
  void (*candidates)(const Problem& problem, const ContextState& state,
                     std::vector<Config>& out) = nullptr;
};

/// All engines of a kind of device, also those that cannot run here, in the order in which they are
/// listed to users.
std::span<const Engine* const> engines(DeviceKind device) noexcept;
/// Null if the device has none of that number or name.
const Engine* find_engine(DeviceKind device, EngineId id) noexcept;
const Engine* find_engine(DeviceKind device, std::string_view name) noexcept;

/// Makes the engines of a kind of device known; tests do it for the emulated one.
void install_engines(DeviceKind device, std::span<const Engine* const> list) noexcept;

/// Why this configuration cannot run the problem here; empty when it can. m, n and k are at
/// least 1.
std::string check_config(const Problem& problem, const Config& config, const ContextState& state);
/// What a library calls the configuration, to be recorded beside it; empty: nothing to add.
std::string provenance(const Problem& problem, const Config& config, const ContextState& state);
/// Runs a problem as one configuration says. Throws Error(unsupported) with the reason if it
/// cannot; operands are not validated.
void run(Context& context, const Problem& problem, const Config& config, const Operands& operands);

extern const Engine onednn_sgemm_engine;
extern const Engine onednn_matmul_engine;
extern const Engine openblas_engine;
extern const Engine reference_engine;

}  // namespace switchback::floating
