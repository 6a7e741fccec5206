// SPDX-License-Identifier: Apache-2.0
// Test support: the values that sequences of fuzzed C ABI calls draw from the input, and the calls
// with groups of rows.
#pragma once

#include <cstdint>

#include "fuzz/input.hpp"
#include "switchback/switchback.h"

namespace switchback::test {

class Draws {
 protected:
  explicit Draws(Input& input, switchback_context* context = nullptr)
      : input_(input), context_(context) {}

  std::int64_t size() {
    const int b = input_.byte();
    return b < 250 ? b % 20 : 17 * (b - 249);  // mostly 0 to 19, rarely up to 102
  }
  std::int32_t float_type() { return float_types[input_.below(3)]; }
  std::int32_t flag() { return input_.rarely(50) ? 2 : input_.below(2); }
  switchback_context* context() { return input_.rarely(100) ? nullptr : context_; }
  /// The engine to request: mostly null, else the name of one of the operation's engines or a name
  /// that no engine has.
  const char* engine(std::int32_t operation) {
    if (!input_.rarely(8)) return nullptr;
    const switchback_engine_info* infos = nullptr;
    std::size_t count = 0;
    FUZZ_REQUIRE(switchback_engines(context_, operation, &infos, &count) == SWITCHBACK_OK, "none");
    const auto index = static_cast<std::size_t>(input_.byte()) % (count + 1);
    return index == count ? "no such engine" : infos[index].name;
  }

  /// Draws the options that layers with groups and layers without groups share.
  void draw_layer(switchback_linear_options& options) {
    options.in_features = input_.rarely(40) ? -size() : size();
    options.out_features = input_.rarely(40) ? INT64_MAX : size();
    options.mode = input_.rarely(40) ? 5 + input_.below(3) : input_.below(5);
    options.dtype = input_.rarely(40) ? 3 + input_.below(9) : float_type();
    options.engine = engine(options.mode == SWITCHBACK_STANDARD ? SWITCHBACK_ENGINES_GEMM_STANDARD
                                                                : SWITCHBACK_ENGINES_GEMM);
  }
  /// Creates a layer. Returns null if the options are refused.
  switchback_linear* created(const switchback_linear_options* options) {
    switchback_linear* made = nullptr;
    const switchback_status status = switchback_linear_create(context(), options, &made);
    FUZZ_REQUIRE(status >= 0 && status < SWITCHBACK_INTERNAL, "linear_create: status %d", status);
    FUZZ_REQUIRE((status == SWITCHBACK_OK) == (made != nullptr), "linear_create: %d", status);
    return made;
  }

  static constexpr std::int32_t float_types[] = {SWITCHBACK_F32, SWITCHBACK_F16, SWITCHBACK_BF16};
  Input& input_;
  switchback_context* context_;
};

/// Makes one of the C ABI calls with groups of rows, or all calls of a layer with groups. `which`
/// is 0 to 7.
void grouped_call(Input& input, switchback_context* context, int which);

}  // namespace switchback::test
