// SPDX-License-Identifier: Apache-2.0
// Tuner: what each number of a ConfigQuery and a ConfigChoice is called, and which of them are
// names of something. Names are part of caches: they are added to and never changed.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/config_source.hpp"

namespace switchback::autotune {

enum class WordKind {
  integer,
  dtype,
  optional_dtype,  ///< 0: none, else 1 + the type
  isa,
  quantize_op,
  scale_mode,
  packed_for,
  pass,
  weight_codes,
  quantize_engine,
  int8_engine,
  standard_engine,
  mode,
};

struct Word {
  std::size_t index = 0;  ///< in the words of the query or choice
  const char* name = "";
  WordKind kind = WordKind::integer;
  bool is_rows = false;  ///< the m that near shapes differ in
  /// Of a choice: not written where it is zero, so that configurations which had no such word are
  /// still written, compared and read by others as they were.
  bool unless_zero = false;
};

inline constexpr std::array<ConfigOp, 4> all_ops = {ConfigOp::quantize, ConfigOp::gemm_int8,
                                                    ConfigOp::gemm_floating, ConfigOp::layer_mode};

/// "quantize", "gemm_int8", "gemm_standard", "layer_mode"
std::string_view op_name(ConfigOp op) noexcept;

/// The words of a query. The backend is the machine's and not among them.
std::span<const Word> query_words(ConfigOp op) noexcept;
/// The words of a choice; the first is the engine (of a layer: its fastest mode).
std::span<const Word> choice_words(ConfigOp op) noexcept;

/// Which word of a query is the DeviceKind.
std::size_t device_word(ConfigOp op) noexcept;

/// The name of a value; "?7" for one without a name.
std::string word_text(const Word& word, std::int64_t value);
/// The inverse; nothing for a name that is unknown.
std::optional<std::int64_t> word_value(const Word& word, std::string_view text);

}  // namespace switchback::autotune
