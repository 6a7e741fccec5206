// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: how a quantize operation is computed. A Config changes the speed, but never a bit
// of a result.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/config_source.hpp"
#include "quant/problem.hpp"

namespace switchback {
struct ContextState;
}

namespace switchback::quant {

/// The values of the engines must not change: they are part of tuning records.
enum class Engine : std::int64_t { reference = 0, highway = 1, cuda = 2 };

std::string_view engine_name(Engine engine) noexcept;

struct Config {
  Engine engine = Engine::reference;
  /// About the largest number of elements that a task reads; tasks have whole rows if rows are
  /// shorter.
  std::int64_t task_elements = 0;
  /// Whether codes are stored past the caches, which is faster if they would not stay in the caches
  /// anyway.
  bool stream = false;
  /// The tile whose codes transposing operations keep in the second-level cache until they are
  /// transposed; both sizes are multiples of 64.
  static constexpr std::int64_t largest_tile = 4096;
  std::int64_t tile_rows = 0;
  std::int64_t tile_cols = 0;
  /// The number of columns that one thread of a columnwise operation reads twice, for absmax and
  /// then for codes, so that the second read finds them in a cache; 0: all columns. A multiple of
  /// tile_cols.
  std::int64_t panel_cols = 0;

  /// cuda: threads per block; 0 lets the kernel choose. The cuda engine ignores the members above.
  std::int64_t block_threads = 0;

  friend bool operator==(const Config&, const Config&) = default;
};

std::string describe(const Config& config);

// The functions that core/tunable.hpp requires of a tunable operation.
ConfigChoice to_choice(const Config& config) noexcept;
bool from_choice(const ConfigChoice& choice, Config& config) noexcept;
Config default_config(const Problem& problem, const ContextState& state);
std::string check_config(const Problem& problem, const Config& config, const ContextState& state);
std::vector<Config> candidates(const Problem& problem, const ContextState& state);

/// Runs a quantize operation with this configuration. Throws Error(out_of_memory) if its scratch
/// memory cannot be allocated.
void run(ContextState& state, const Problem& problem, const Config& config, const Request& request);

}  // namespace switchback::quant
