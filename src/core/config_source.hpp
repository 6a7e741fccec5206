// SPDX-License-Identifier: Apache-2.0
// Core: where dispatch asks for a tuned configuration. Core and the operations know only this
// interface; the tuner implements it. A look-up is made on every call: one that was made before
// must not block, allocate or do I/O.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace switchback {

struct ContextState;

/// Which family of problems a query is about; each owns the meaning of its words.
enum class ConfigOp : std::int64_t {
  quantize = 1,
  gemm_int8 = 2,
  gemm_floating = 3,
  layer_mode = 4
};

/// A problem as plain numbers, so that it can be hashed and compared without knowing what it is.
struct ConfigQuery {
  ConfigOp op = ConfigOp::quantize;
  std::array<std::int64_t, 15> words{};
  /// Whether a word is one of 0 … most, as an enumeration's or a flag's must be.
  [[nodiscard]] constexpr bool within(std::size_t word, std::int64_t most) const noexcept {
    return words[word] >= 0 && words[word] <= most;
  }
  friend bool operator==(const ConfigQuery&, const ConfigQuery&) = default;
};

/// A configuration as plain numbers; words[0] is the engine's id.
struct ConfigChoice {
  std::array<std::int64_t, 15> words{};
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
  /// Told when what find() gave cannot be used, with the reason: the call goes on with the default.
  /// The library itself says nothing of it. Every such call tells, until find() knows better; from
  /// any thread.
  virtual void refused(const ConfigQuery& /*query*/, const ConfigChoice& /*choice*/,
                       std::string_view /*reason*/) const noexcept {}
};

}  // namespace switchback
