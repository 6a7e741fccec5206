// SPDX-License-Identifier: Apache-2.0
// Core: the interface through which dispatch asks for a tuned configuration. Core and the
// operations know only this interface; the tuner implements it. Every call of an operation makes a
// look-up: if the same look-up was made before, it must not block, allocate or do I/O.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "core/cpu/features.hpp"
#include "core/device_kind.hpp"

namespace switchback {

struct ContextState;

/// The operation that a ConfigQuery is about. Each operation defines the meaning of the query's
/// words. The values must not change: they are hashed and compared.
enum class ConfigOp : std::int64_t {
  quantize = 1,
  gemm_int8 = 2,
  gemm_floating = 3,
  layer_mode = 4,
  grouped_int8 = 5,
  grouped_layer_mode = 6,
  gemm_blockwise = 7
};

/// The properties of a Context that a tuning problem depends on.
struct ConfigOrigin {
  DeviceKind device = DeviceKind::cpu;
  int threads = 1;                    ///< threads of a CPU Context; 1 on another device
  core::Isa isa = core::Isa::scalar;  ///< instruction set of the CPU

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

  /// The operation, device, instruction set and number of threads, packed into one number.
  [[nodiscard]] constexpr std::int64_t header() const noexcept {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(op) |
                                     static_cast<std::uint64_t>(origin.device) << 16 |
                                     static_cast<std::uint64_t>(origin.isa) << 24 |
                                     static_cast<std::uint64_t>(origin.threads) << 32);
  }
  friend bool operator==(const ConfigQuery&, const ConfigQuery&) = default;
};

/// A configuration as plain numbers; the first word is the id of the engine (the implementation).
struct ConfigChoice {
  std::array<std::int64_t, 24> words{};
  friend bool operator==(const ConfigChoice&, const ConfigChoice&) = default;
};

class ConfigSource {
 public:
  virtual ~ConfigSource() = default;
  /// Returns true and sets the choice if there is a tuned configuration for the query; else returns
  /// false. `state` belongs to the Context that asks; a source that measures unknown problems needs
  /// it. Called from any thread. Throws only if the owner of the source asked for a failure when
  /// there is no tuned configuration.
  virtual bool find(const ConfigQuery& query, const ContextState& state,
                    ConfigChoice& choice) const = 0;
  /// Sets the choice to the configuration for a problem that is not tuned, and returns true, if it
  /// differs from the operation's own default. Measures nothing, and is not counted as a look-up.
  virtual bool by_default(const ConfigQuery& /*query*/, const ContextState& /*state*/,
                          ConfigChoice& /*choice*/) const {
    return false;
  }
  /// An operation that cannot use the answer of find() calls this with the reason, and continues
  /// with its default configuration. The library itself prints nothing. Every such call of the
  /// operation reports it, until find() gives another answer. Called from any thread.
  virtual void refused(const ConfigQuery& /*query*/, const ConfigChoice& /*choice*/,
                       std::string_view /*reason*/) const noexcept {}
  /// Reports a fault of the library or the machine, each time that it matters. Called from any
  /// thread.
  virtual void warn(std::string /*text*/) const {}
};

namespace core {

/// The tuner that the environment describes (SWITCHBACK_TUNE and the variables related to it),
/// opened at the first look-up. Null if the environment turns look-ups off. The tuner defines this
/// function (autotune/default_source.cpp), because the tuner is in a layer above core.
std::shared_ptr<const ConfigSource> default_source();

}  // namespace core

}  // namespace switchback
