// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: what an engine of the int8 product is, and the list of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/context_state.hpp"
#include "gemm/int8/config.hpp"
#include "gemm/int8/problem.hpp"
#include "switchback/matrix.hpp"

namespace switchback::gemm_int8 {

/// One implementation. To add one: write its file, name it in engines() and in EngineId.
struct Engine {
  EngineId id;
  std::string_view name;

  /// Why it cannot run on this machine in this Context; empty when it can. Each condition has its
  /// own words.
  std::string_view (*unavailable)(const ContextState& state);
  /// Why it refuses this problem where it is available; empty when it accepts.
  std::string_view (*rejects)(const GemmProblem& problem);

  /// Bytes of B[n,k] in its own layout, and the rearrangement. The layout depends on n and k alone.
  std::size_t (*packed_bytes)(std::int64_t n, std::int64_t k);
  void (*pack)(ContextState& state, MatrixView<const std::int8_t> b, void* out);

  /// The configuration to use when nothing better is known, and those worth trying, default first.
  GemmConfig (*default_config)(const GemmProblem& problem, const ContextState& state);
  void (*candidates)(const GemmProblem& problem, const ContextState& state,
                     std::vector<GemmConfig>& out);

  /// Computes it. m, n, k > 0 (the last engine of a device: k >= 0); may throw Error(out_of_memory)
  /// before it writes d.
  void (*run)(ContextState& state, const GemmProblem& problem, const GemmConfig& config,
              const GemmOperands& operands);

  /// Whose packed layout this engine reads; its own, unless engines of a device share one.
  EngineId layout;

  /// The stride of a packed B[n,k] where that is its rows with zeros around them, so that codes can
  /// be written to it directly; null for an engine that rearranges them.
  std::int64_t (*packed_stride)(std::int64_t n, std::int64_t k) = nullptr;

  /// Why it cannot run a problem it accepts as a configuration within its limits says; empty if it
  /// can. Null for an engine that has nothing to ask: one without a library's algorithms. May ask
  /// the library; the answer is kept.
  std::string (*refuses_config)(const GemmProblem& problem, const GemmConfig& config,
                                const ContextState& state) = nullptr;
  /// See gemm_int8::provenance(); null: nothing to add.
  std::string (*provenance)(const GemmProblem& problem, const GemmConfig& config,
                            const ContextState& state) = nullptr;

  /// Runs where it is named or a tuner has proven it, and never by default.
  bool only_tuned = false;
};

/// All engines of this build for a kind of device, in order of preference. The last one takes every
/// problem, also one with k = 0.
std::span<const Engine* const> engines(DeviceKind device) noexcept;
/// By number or name; null when there is none.
const Engine* find_engine(DeviceKind device, EngineId id) noexcept;
const Engine* find_engine(DeviceKind device, std::string_view name) noexcept;

/// Whether an engine reads what was packed for another.
bool reads_layout(DeviceKind device, const Engine& engine, EngineId packed_for) noexcept;

/// The engine that weights are packed for when nobody names one: the first that runs here.
const Engine& packing_engine(const ContextState& state) noexcept;

/// Makes the engines of a kind of device known; tests do it for the emulated one.
void install_engines(DeviceKind device, std::span<const Engine* const> list) noexcept;

extern const Engine avx512_vnni_engine;
extern const Engine avx_vnni_engine;
#if defined(SWITCHBACK_HAVE_ONEDNN)
extern const Engine onednn_engine;
#endif
extern const Engine avx2_engine;
extern const Engine reference_engine;

}  // namespace switchback::gemm_int8
