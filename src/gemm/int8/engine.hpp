// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: the interface of an engine of the int8 product, and the table of all engines.
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

/// A set of members of a GemmConfig, as bits, for the members that only some engines support. Block
/// sizes, threads and the position in a ranking are not among them.
using ConfigParts = unsigned;
inline constexpr ConfigParts part_cublaslt = 1;  ///< GemmConfig::cublaslt
inline constexpr ConfigParts part_clusters = 2;  ///< GemmConfig::cluster
inline constexpr ConfigParts part_order = 4;     ///< GemmConfig::raster, GemmConfig::swizzle

/// The kernels of an engine, written as configurations, that are known to be right or wrong here.
struct KnownConfigs {
  std::vector<GemmConfig> right;
  std::vector<GemmConfig> wrong;

  /// Whether a kernel may run. It may not if it is known to be wrong. It may if it is known to be
  /// right, or if trusts() returns true.
  template <class Trusts>
  [[nodiscard]] bool allow(const GemmConfig& kernel, const Trusts& trusts) const {
    const auto is_in = [&](const std::vector<GemmConfig>& kernels) {
      return std::find(kernels.begin(), kernels.end(), kernel) != kernels.end();
    };
    return !is_in(wrong) && (is_in(right) || trusts());
  }
};

// The defaults of Engine's function members.
inline std::string_view available_everywhere(const ContextState&) {
  return {};
}
inline std::string_view accepts_every_problem(const GemmProblem&, const ContextState&) {
  return {};
}
/// Engine::pack_transposed for an engine whose packed form is B's rows without gaps.
void transpose_rows(ContextState& state, std::int64_t n, std::int64_t k, const void* from,
                    void* out);
/// Engine::unpack for an engine whose packed form is B's rows without gaps.
void unpack_rows(ContextState& state, const void* from, MatrixView<std::int8_t> b);
inline std::int64_t no_scratch(const GemmProblem&, const GemmConfig&) {
  return 0;
}

/// One implementation of the int8 product. To add one, write its file, then name it in
/// engine_table() and in EngineId.
struct Engine {
  EngineId id;
  std::string_view name;

  /// Whether this is the reference that tests compare with: written to be right, not fast. It is
  /// tuned only where nothing else runs.
  bool is_oracle = false;

  /// Why the engine cannot run on this machine in this Context; empty if it can. Each condition has
  /// its own message.
  std::string_view (*unavailable)(const ContextState& state) = available_everywhere;
  /// Whether the engine computes the products of all groups in one call. Groups may have any size,
  /// also zero rows; n and k are above zero. Other engines never see a problem with groups. On the
  /// CPU they run one group after another, with the configuration for the mean number of rows. On a
  /// device they cannot run, since the host does not know the groups.
  bool takes_groups = false;
  /// Why the engine rejects this problem although it is available; empty if it accepts the problem.
  std::string_view (*unsupported)(const GemmProblem& problem,
                                  const ContextState& state) = accepts_every_problem;

  /// The engine whose packed layout this one reads: itself, unless engines of a device share a
  /// layout.
  EngineId layout;
  /// Bytes of B[n,k] in the packed layout, and the function that packs B. The layout depends only
  /// on n and k.
  std::size_t (*packed_bytes)(std::int64_t n, std::int64_t k);
  void (*pack)(ContextState& state, MatrixView<const std::int8_t> b, void* out);
  /// The reverse of pack: restores b[n,k] from its packed form.
  void (*unpack)(ContextState& state, const void* from, MatrixView<std::int8_t> b);
  /// Converts a packed B[n,k] to its packed transpose [k,n].
  void (*pack_transposed)(ContextState& state, std::int64_t n, std::int64_t k, const void* from,
                          void* out);
  /// Packs one block of B[n,k] (pack_rows), or of B transposed, [k,n] (pack_columns), on the
  /// calling thread. Null if the engine only packs whole matrices.
  void (*pack_rows)(std::int64_t k, const core::CodeBlock& block, void* out,
                    Stores stores) = nullptr;
  void (*pack_columns)(std::int64_t k, const core::CodeBlock& block, void* out,
                       Stores stores) = nullptr;
  /// The stride of a packed B[n,k], if the packed form is B's rows padded with zeros. Then codes
  /// can be written to it directly. Null if the engine rearranges the rows.
  std::int64_t (*packed_stride)(std::int64_t n, std::int64_t k) = nullptr;

  /// default_config returns the configuration to use when nothing better is known. candidates
  /// appends those worth trying, the default first.
  GemmConfig (*default_config)(const GemmProblem& problem, const ContextState& state);
  void (*candidates)(const GemmProblem& problem, const ContextState& state,
                     std::vector<GemmConfig>& out);
  /// Lists all configurations of the engine, if only some of them are worth trying. Null:
  /// candidates() lists all.
  void (*all_candidates)(const GemmProblem& problem, const ContextState& state,
                         std::vector<GemmConfig>& out) = nullptr;
  /// Why the engine cannot run a problem with this configuration, although it accepts the problem
  /// and the configuration is within its limits; empty if it can. May ask a library; the answer is
  /// kept. Null if there is nothing to ask.
  std::string (*invalid_config)(const GemmProblem& problem, const GemmConfig& config,
                                const ContextState& state) = nullptr;
  /// Whether the kernel of a configuration is trusted here without a validation. It is if a
  /// committed record has seen it right (gemm/cuda/seen.hpp), or if it was compared in this
  /// process. Null if the engine has no kernels that may fail on a machine on which they never ran;
  /// then kernel_of and default_among are null too.
  bool (*is_trusted)(const GemmProblem& problem, const GemmConfig& config,
                     const ContextState& state) = nullptr;
  /// The kernel of a configuration, written as a configuration: without the members that are only
  /// arguments of the kernel.
  GemmConfig (*kernel_of)(GemmConfig config) = nullptr;
  /// Writes the default configuration among the kernels that are trusted or `known` to be right.
  /// Returns false if there is no such kernel.
  bool (*default_among)(const GemmProblem& problem, const ContextState& state,
                        const KnownConfigs& known, GemmConfig& config) = nullptr;
  /// The optional members of a GemmConfig that the engine supports.
  ConfigParts config_parts = 0;
  /// Describes the algorithm of a configuration for records; see gemm_int8::provenance(). Null if
  /// there is nothing to record.
  std::string (*provenance)(const GemmProblem& problem, const GemmConfig& config,
                            const ContextState& state) = nullptr;
  /// The most scratch memory, in bytes, that a library may use with a configuration.
  std::int64_t (*scratch_bytes)(const GemmProblem& problem, const GemmConfig& config) = no_scratch;

  /// Whether the engine also has a kernel that rotates d by groups of this many columns before it
  /// is rounded, and the function that computes such a product. The engine accepts the problem,
  /// which has scales and neither a bias nor groups. Null: it has no such kernel.
  bool (*rotates)(const GemmProblem& problem, int group, const ContextState& state) = nullptr;
  void (*run_rotated)(ContextState& state, const GemmProblem& problem, int group,
                      const GemmOperands& operands) = nullptr;

  /// Computes the problem. m, n and k are above zero, except that k may be zero for the last engine
  /// of a device. May throw Error(out_of_memory) before it writes d.
  void (*run)(ContextState& state, const GemmProblem& problem, const GemmConfig& config,
              const GemmOperands& operands);

  /// Whether some kernels of the engine may need a validation. By default such an engine runs only
  /// with kernels that need no validation.
  [[nodiscard]] constexpr bool needs_trust() const noexcept { return is_trusted != nullptr; }
};

/// All engines of this build. The last engine of a device accepts every problem, even if k is 0.
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

/// Why the engine cannot run the problem here; empty if it can.
std::string_view refusal(const Engine& engine, const GemmProblem& problem,
                         const ContextState& state);

/// Whether an engine can read a B that was packed for another engine.
bool reads_layout(DeviceKind device, const Engine& engine, EngineId packed_for) noexcept;

/// The engine with this name. Throws Error if it does not exist or cannot run here; `op` is the
/// name of the operation in the message.
const Engine& named_engine(std::string_view op, std::string_view name, const ContextState& state);

/// The engine for which weights are packed if the caller names none: the first one that runs here
/// and never needs a validation. So it does not matter which kernels are known to be right.
const Engine& packing_engine(const ContextState& state) noexcept;
/// The engine for which weights are packed: the named one, or packing_engine(state) if the name is
/// empty. Throws as named_engine() does.
const Engine& packing_engine(std::string_view op, const ContextState& state,
                             std::string_view engine);

#if defined(SWITCHBACK_HAVE_ONEDNN)
extern const Engine onednn_engine;
#endif
extern const Engine reference_engine;

}  // namespace switchback::gemm_int8
