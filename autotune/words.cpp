// SPDX-License-Identifier: Apache-2.0
#include "autotune/words.hpp"

#include <fmt/format.h>

#include "core/cpu/isa.hpp"
#include "gemm/floating/problem.hpp"
#include "gemm/int8/engine.hpp"
#include "linear/mode.hpp"
#include "quant/config.hpp"

namespace switchback::autotune {

namespace {

using enum WordKind;

// The order of words is that of to_query() and to_choice() beside each Problem and Config.
constexpr std::array quantize_query = {Word{0, "operation", quantize_op},
                                       Word{1, "dtype", dtype},
                                       Word{2, "rows", integer, true},
                                       Word{3, "cols"},
                                       Word{4, "threads"},
                                       Word{5, "isa", isa},
                                       Word{7, "alignment"}};
constexpr std::array int8_query = {Word{0, "m", integer, true},
                                   Word{1, "n"},
                                   Word{2, "k"},
                                   Word{3, "lda"},
                                   Word{4, "ldb"},
                                   Word{5, "ldd"},
                                   Word{6, "output", dtype},
                                   Word{7, "scale", scale_mode},
                                   Word{8, "bias", optional_dtype},
                                   Word{9, "packed_for", packed_for},
                                   Word{10, "isa", isa},
                                   Word{11, "threads"},
                                   Word{13, "alignment"}};
constexpr std::array standard_query = {Word{0, "m", integer, true},
                                       Word{1, "n"},
                                       Word{2, "k"},
                                       Word{3, "lda"},
                                       Word{4, "ldb"},
                                       Word{5, "ldd"},
                                       Word{6, "input", dtype},
                                       Word{7, "output", dtype},
                                       Word{8, "form"},
                                       Word{9, "threads"},
                                       Word{12, "alignment"}};
constexpr std::array layer_query = {Word{0, "pass", pass},
                                    Word{1, "weight_codes", weight_codes},
                                    Word{2, "m", integer, true},
                                    Word{3, "n"},
                                    Word{4, "k"},
                                    Word{5, "dtype", dtype},
                                    Word{6, "output", dtype},
                                    Word{7, "bias"},
                                    Word{8, "threads"},
                                    Word{9, "isa", isa}};

constexpr std::array quantize_choice = {Word{0, "engine", quantize_engine},
                                        Word{1, "task_elements"},
                                        Word{2, "stream"},
                                        Word{3, "tile_rows"},
                                        Word{4, "tile_cols"},
                                        Word{5, "panel_cols"},
                                        Word{6, "block_threads"}};
constexpr std::array int8_choice = {Word{0, "engine", int8_engine},
                                    Word{1, "packed"},
                                    Word{2, "mc"},
                                    Word{3, "nc"},
                                    Word{4, "kc"},
                                    Word{5, "threads"},
                                    Word{6, "algorithm"},
                                    Word{11, "cluster"},
                                    Word{12, "cluster_n", integer, false, true},
                                    Word{13, "raster", integer, false, true},
                                    Word{14, "swizzle", integer, false, true}};
constexpr std::array standard_choice = {Word{0, "engine", standard_engine}, Word{1, "pack_b"},
                                        Word{2, "algorithm"}};
constexpr std::array layer_choice = {Word{0, "engine", mode}, Word{1, "second"}, Word{2, "third"}};

// The name of one value of a kind; empty if it has none.
std::string name_of(WordKind kind, std::int64_t value) {
  const auto named = [](std::string_view name) {
    return name == "unknown" ? std::string() : std::string(name);
  };
  switch (kind) {
    case dtype:
      return named(dtype_name(static_cast<DType>(value)));
    case optional_dtype:
      return value == 0 ? "none" : named(dtype_name(static_cast<DType>(value - 1)));
    case isa:
      return value >= 0 && value < core::isa_count
                 ? std::string(core::isa_name(static_cast<core::Isa>(value)))
                 : std::string();
    case quantize_op:
      return named(quant::op_name(static_cast<quant::Op>(value)));
    case scale_mode:
      return value == 0 ? "none" : value == 1 ? "row_col" : value == 2 ? "row_scalar" : "";
    case packed_for:
    case int8_engine:
      return named(gemm_int8::engine_name(static_cast<gemm_int8::EngineId>(value)));
    case pass:
      return value == 0 ? "forward" : value == 1 ? "dx" : "";
    case weight_codes:
      return value == 0 ? "made" : value == 1 ? "cached" : "";
    case quantize_engine:
      return value >= 0 && value <= static_cast<std::int64_t>(quant::Engine::cuda)
                 ? std::string(quant::engine_name(static_cast<quant::Engine>(value)))
                 : std::string();
    case standard_engine:
      return named(floating::engine_name(static_cast<floating::EngineId>(value)));
    case mode:
      return named(mode_name(static_cast<Mode>(value)));
    case integer:
      break;
  }
  return {};
}

}  // namespace

std::string_view op_name(ConfigOp op) noexcept {
  switch (op) {
    case ConfigOp::quantize:
      return "quantize";
    case ConfigOp::gemm_int8:
      return "gemm_int8";
    case ConfigOp::gemm_floating:
      return "gemm_standard";
    case ConfigOp::layer_mode:
      return "layer_mode";
  }
  return "unknown";
}

std::span<const Word> query_words(ConfigOp op) noexcept {
  switch (op) {
    case ConfigOp::quantize:
      return quantize_query;
    case ConfigOp::gemm_int8:
      return int8_query;
    case ConfigOp::gemm_floating:
      return standard_query;
    case ConfigOp::layer_mode:
      return layer_query;
  }
  return {};
}

std::span<const Word> choice_words(ConfigOp op) noexcept {
  switch (op) {
    case ConfigOp::quantize:
      return quantize_choice;
    case ConfigOp::gemm_int8:
      return int8_choice;
    case ConfigOp::gemm_floating:
      return standard_choice;
    case ConfigOp::layer_mode:
      return layer_choice;
  }
  return {};
}

std::size_t device_word(ConfigOp op) noexcept {
  switch (op) {
    case ConfigOp::quantize:
      return 6;
    case ConfigOp::gemm_int8:
      return 12;
    default:
      return 10;
  }
}

std::string word_text(const Word& word, std::int64_t value) {
  if (word.kind == integer) return fmt::format("{}", value);
  std::string name = name_of(word.kind, value);
  return name.empty() ? fmt::format("?{}", value) : name;
}

std::optional<std::int64_t> word_value(const Word& word, std::string_view text) {
  constexpr std::int64_t more_than_any = 64;
  for (std::int64_t value = 0; value < more_than_any; ++value) {
    const std::string name = name_of(word.kind, value);
    if (!name.empty() && name == text) return value;
  }
  return std::nullopt;
}

}  // namespace switchback::autotune
