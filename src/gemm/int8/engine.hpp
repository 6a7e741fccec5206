// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: what an engine of the int8 product is, and the table of them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/code_blocks.hpp"
#include "core/context_state.hpp"
#include "core/device_table.hpp"
#include "gemm/int8/config.hpp"
#include "gemm/int8/problem.hpp"
#include "switchback/matrix.hpp"

namespace switchback::gemm_int8 {

/// What only some engines have of a GemmConfig, beside blocks, threads and the place in a ranking.
using ConfigParts = unsigned;
inline constexpr ConfigParts part_cublaslt = 1;  ///< CublasLtChoice
inline constexpr ConfigParts part_clusters = 2;  ///< cluster
inline constexpr ConfigParts part_order = 4;     ///< raster, swizzle

/// The kernels of an engine, as configurations, that are known to be right or wrong here.
struct KnownConfigs {
  std::vector<GemmConfig> right;
  std::vector<GemmConfig> wrong;

  /// Whether such a kernel may run, if trusts() says whether it is trusted.
  template <class Trusts>
  [[nodiscard]] bool allow(const GemmConfig& kernel, const Trusts& trusts) const {
    const auto is_in = [&](const std::vector<GemmConfig>& kernels) {
      return std::find(kernels.begin(), kernels.end(), kernel) != kernels.end();
    };
    return !is_in(wrong) && (is_in(right) || trusts());
  }
};

// The defaults of an engine's members.
inline std::string_view available_everywhere(const ContextState&) {
  return {};
}
inline std::string_view accepts_every_problem(const GemmProblem&, const ContextState&) {
  return {};
}
/// pack_transposed of an engine whose packed form is B's rows without gaps.
void transpose_rows(ContextState& state, std::int64_t n, std::int64_t k, const void* from,
                    void* out);
/// unpack of the same.
void unpack_rows(ContextState& state, const void* from, MatrixView<std::int8_t> b);
inline std::int64_t no_scratch(const GemmProblem&, const GemmConfig&) {
  return 0;
}

/// One implementation. To add one: write its file, name it in engine_table() and in EngineId.
struct Engine {
  EngineId id;
  std::string_view name;

  /// The oracle of tests: written to be right, not fast. It is tuned only where nothing else runs.
  bool is_oracle = false;

  /// Why it cannot run on this machine in this Context; empty if it can. Each condition has its own
  /// message.
  std::string_view (*unavailable)(const ContextState& state) = available_everywhere;
  /// Whether it computes the products of all groups in one call: of groups of any size, also empty
  /// ones; n and k > 0. Other engines never see a problem with groups: on the CPU they run one
  /// group after another, as configured for the mean number of rows; on a device, whose host does
  /// not know the groups, not at all.
  bool takes_groups = false;
  /// Why it refuses this problem although it is available; empty if it accepts.
  std::string_view (*rejects)(const GemmProblem& problem,
                              const ContextState& state) = accepts_every_problem;

  /// Whose packed layout it reads: its own, unless engines of a device share one.
  EngineId layout;
  /// Bytes of B[n,k] in that layout, and the rearrangement. The layout depends on n and k alone.
  std::size_t (*packed_bytes)(std::int64_t n, std::int64_t k);
  void (*pack)(ContextState& state, MatrixView<const std::int8_t> b, void* out);
  /// The reverse of pack: b[n,k] from its packed form.
  void (*unpack)(ContextState& state, const void* from, MatrixView<std::int8_t> b);
  /// From a packed B[n,k] to its packed transpose [k,n].
  void (*pack_transposed)(ContextState& state, std::int64_t n, std::int64_t k, const void* from,
                          void* out);
  /// Packs one block of B[n,k], or of B transposed, [k,n], on the calling thread; null for an
  /// engine that only packs whole matrices.
  void (*pack_rows)(std::int64_t k, const core::CodeBlock& block, void* out,
                    Stores stores) = nullptr;
  void (*pack_columns)(std::int64_t k, const core::CodeBlock& block, void* out,
                       Stores stores) = nullptr;
  /// The stride of a packed B[n,k], for an engine whose packed form is B's rows padded with zeros,
  /// so that codes can be written to it directly; null for an engine that rearranges them.
  std::int64_t (*packed_stride)(std::int64_t n, std::int64_t k) = nullptr;

  /// The configuration to use when nothing better is known, and those worth trying, default first.
  GemmConfig (*default_config)(const GemmProblem& problem, const ContextState& state);
  void (*candidates)(const GemmProblem& problem, const ContextState& state,
                     std::vector<GemmConfig>& out);
  /// All that it has, for an engine of which only some are worth trying; null: the same.
  void (*all_candidates)(const GemmProblem& problem, const ContextState& state,
                         std::vector<GemmConfig>& out) = nullptr;
  /// Why it cannot run a problem it accepts as a configuration within its limits says; empty if it
  /// can. Null for an engine that has nothing to ask. May ask a library; the answer is kept.
  std::string (*refuses_config)(const GemmProblem& problem, const GemmConfig& config,
                                const ContextState& state) = nullptr;
  /// Of an engine with kernels that may fail on a machine on which they never ran (null: it has
  /// none): whether the kernel of a configuration is trusted here without a proof, because a
  /// committed record has seen it right (gemm/cuda/seen.hpp), or because it was compared in this
  /// process; what of a configuration makes its kernel, without what the arguments say; and the
  /// default of the kernels that are trusted or known to be right, false if there is none.
  bool (*is_trusted)(const GemmProblem& problem, const GemmConfig& config,
                     const ContextState& state) = nullptr;
  GemmConfig (*kernel_of)(GemmConfig config) = nullptr;
  bool (*default_among)(const GemmProblem& problem, const ContextState& state,
                        const KnownConfigs& known, GemmConfig& config) = nullptr;
  /// Which parts of a configuration it has.
  ConfigParts config_parts = 0;
  /// See gemm_int8::provenance(); null: none.
  std::string (*provenance)(const GemmProblem& problem, const GemmConfig& config,
                            const ContextState& state) = nullptr;
  /// The most scratch memory that a library may use with a configuration.
  std::int64_t (*scratch_bytes)(const GemmProblem& problem, const GemmConfig& config) = no_scratch;

  /// Computes it. m, n, k > 0 (the last engine of a device: k >= 0); may throw Error(out_of_memory)
  /// before it writes d.
  void (*run)(ContextState& state, const GemmProblem& problem, const GemmConfig& config,
              const GemmOperands& operands);

  /// Whether some of its kernels may need a proof: it runs by default only with those that do not.
  [[nodiscard]] constexpr bool needs_trust() const noexcept { return is_trusted != nullptr; }
};

/// All engines of this build. The last one of a device accepts every problem, also one with k = 0.
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

/// Why the engine cannot run the problem here; empty when it can.
std::string_view refusal(const Engine& engine, const GemmProblem& problem,
                         const ContextState& state);

/// Whether an engine can read a B that was packed for another engine.
bool reads_layout(DeviceKind device, const Engine& engine, EngineId packed_for) noexcept;

/// The engine of that name. Throws Error, in which `op` is the operation's name, if there is none
/// or it cannot run here.
const Engine& named_engine(std::string_view op, std::string_view name, const ContextState& state);

/// The engine for which weights are packed if none is named: the first that runs here, whatever is
/// known of kernels.
const Engine& packing_engine(const ContextState& state) noexcept;
/// The same, or the named one.
const Engine& packing_engine(std::string_view op, const ContextState& state,
                             std::string_view engine);

#if defined(SWITCHBACK_HAVE_ONEDNN)
extern const Engine onednn_engine;
#endif
extern const Engine reference_engine;

}  // namespace switchback::gemm_int8
