// SPDX-License-Identifier: Apache-2.0
// Core: the interface through which dispatch asks for a tuned configuration. Core and the
// operations know only this interface; the tuner implements it. Every call makes a look-up: if the
// same look-up was made before, it must not block, allocate or do I/O.
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

/// The family of problems that a query is about; each family defines the meaning of its words. The
/// values must not change: they are hashed and compared.
enum class ConfigOp : std::int64_t {
  quantize = 1,
  gemm_int8 = 2,
  gemm_floating = 3,
  layer_mode = 4,
  grouped_int8 = 5,
  grouped_layer_mode = 6,
  gemm_blockwise = 7
};

/// The properties of a Context that a problem depends on.
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

/// A problem as plain numbers, so that it can be hashed and compared without knowing its type. Only
/// core/word_table.hpp converts it: no other code reads a word by its position.
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
  /// Returns true and sets the choice if there is a tuned configuration for the query; else returns
  /// false. `state` belongs to the Context that asks, for a source that measures unknown problems.
  /// Called from any thread. Throws only if the owner of the source asked for a failure when there
  /// is no tuned configuration.
  virtual bool find(const ConfigQuery& query, const ContextState& state,
                    ConfigChoice& choice) const = 0;
  /// The configuration for a problem without a tuned one, if it differs from the operation's own
  /// default. This measures nothing and counts nothing.
  virtual bool by_default(const ConfigQuery& /*query*/, const ContextState& /*state*/,
                          ConfigChoice& /*choice*/) const {
    return false;
  }
  /// Called when the answer of find() cannot be used, with the reason; the call goes on with the
  /// default. The library itself reports nothing. Every such call reports it, until find() gives
  /// another answer. Called from any thread.
  virtual void refused(const ConfigQuery& /*query*/, const ConfigChoice& /*choice*/,
                       std::string_view /*reason*/) const noexcept {}
  /// Reports a fault of the library or the machine, each time that it matters. Called from any
  /// thread.
  virtual void warn(std::string /*text*/) const {}
};

}  // namespace switchback
