// SPDX-License-Identifier: Apache-2.0
// Core: where dispatch asks for a tuned configuration. Core and the operations know only this
// interface; the tuner implements it. A look-up is made on every call: one that was made before
// must not block, allocate or do I/O.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/cpu/features.hpp"
#include "core/device_kind.hpp"

namespace switchback {

struct ContextState;

/// Which family of problems a query is about; each owns the meaning of its words. The values are
/// pinned: they are hashed and compared.
enum class ConfigOp : std::int64_t {
  quantize = 1,
  gemm_int8 = 2,
  gemm_floating = 3,
  layer_mode = 4,
  grouped_int8 = 5,
  grouped_layer_mode = 6,
  gemm_blockwise = 7
};

/// What of its Context a problem depends on.
struct ConfigOrigin {
  DeviceKind device = DeviceKind::cpu;
  int threads = 1;                    ///< of the CPU; 1 on another device
  core::Isa isa = core::Isa::scalar;  ///< of the CPU

  friend bool operator==(const ConfigOrigin&, const ConfigOrigin&) = default;
};
constexpr bool is_valid(const ConfigOrigin& origin) noexcept {
  const auto device = static_cast<std::int64_t>(origin.device);
  const auto isa = static_cast<std::int64_t>(origin.isa);
  return device >= 0 && device < static_cast<std::int64_t>(device_kinds) && origin.threads >= 1 &&
         isa >= 0 && isa < core::isa_count;
}

/// A problem as plain numbers, so that it can be hashed and compared without knowing what it is.
/// core/word_table.hpp converts: nothing else reads a word by its place.
struct ConfigQuery {
  ConfigOp op = ConfigOp::quantize;
  ConfigOrigin origin;
  std::array<std::int64_t, 16> words{};

  /// Operation and origin in one number.
  [[nodiscard]] constexpr std::int64_t header() const noexcept {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(op) |
                                     static_cast<std::uint64_t>(origin.device) << 16 |
                                     static_cast<std::uint64_t>(origin.isa) << 24 |
                                     static_cast<std::uint64_t>(origin.threads) << 32);
  }
  friend bool operator==(const ConfigQuery&, const ConfigQuery&) = default;
};

/// A configuration as plain numbers; the first word is the engine's id.
struct ConfigChoice {
  std::array<std::int64_t, 24> words{};
  friend bool operator==(const ConfigChoice&, const ConfigChoice&) = default;
};

class ConfigSource {
 public:
  virtual ~ConfigSource() = default;
  /// True and the choice if there is a tuned configuration for the query, else false. `state` is
  /// the asking Context's, for a source that measures what it does not know. Called from any
  /// thread. Throws only where its owner asked it to fail when there is none.
  virtual bool find(const ConfigQuery& query, const ContextState& state,
                    ConfigChoice& choice) const = 0;
  /// What runs where nothing is known of a problem, if that is not the operation's own default. It
  /// measures and counts nothing.
  virtual bool usual(const ConfigQuery& /*query*/, const ContextState& /*state*/,
                     ConfigChoice& /*choice*/) const {
    return false;
  }
  /// Told when what find() gave cannot be used, with the reason: the call goes on with the default.
  /// The library itself says nothing of it. Every such call tells, until find() knows better; from
  /// any thread.
  virtual void refused(const ConfigQuery& /*query*/, const ConfigChoice& /*choice*/,
                       std::string_view /*reason*/) const noexcept {}
  /// Told of what is wrong here with the library or the machine, each time that it matters; from
  /// any thread.
  virtual void warn(std::string /*text*/) const {}
};

}  // namespace switchback
