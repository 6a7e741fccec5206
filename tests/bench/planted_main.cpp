// SPDX-License-Identifier: Apache-2.0
// switchback-bench with a regression planted in it: SWITCHBACK_PLANTED="rowwise_fwd=5" in the
// environment makes every timed call of that field take 5 percent longer. Only tests use this
// program, to find out how often a comparison finds such a regression.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include "bench/cli/cli.hpp"
#include "bench/run/case.hpp"
#include "core/check.hpp"
#include "measure/stopwatch.hpp"

namespace switchback::bench {
namespace {

struct Planted {
  Field field = Field::standard_fwd;
  double share = 0;  ///< the added delay, as a share of the call's time
};
Planted planted;

// The delay is proportional to the time that this call took, so that it is as noisy as the call.
std::function<void()> slowed(Field field, std::function<void()> call) {
  if (field != planted.field) return call;
  return [call = std::move(call)] {
    const auto begun = measure::Clock::now();
    call();
    const double took_s = measure::seconds_between(begun, measure::Clock::now());
    while (measure::seconds_between(begun, measure::Clock::now()) < took_s * (1 + planted.share)) {
    }
  };
}

void parse_planted(std::string_view text) {
  const std::size_t equals = text.find('=');
  core::require(equals != std::string_view::npos,
                "SWITCHBACK_PLANTED '{}': it must be FIELD=PERCENT", text);
  const std::string name(text.substr(0, equals));
  for (std::size_t i = 0; i < all_fields; ++i)
    if (parse_fields(name)[i]) planted.field = static_cast<Field>(i);
  planted.share = parse_percentage("SWITCHBACK_PLANTED", text.substr(equals + 1), 0, 1000) / 100;
}

}  // namespace
}  // namespace switchback::bench

int main(int argc, char** argv) {
  using namespace switchback::bench;
  if (const char* text = std::getenv("SWITCHBACK_PLANTED"); text != nullptr && *text != '\0') {
    try {
      parse_planted(text);
    } catch (const switchback::Error& error) {
      fmt::print(stderr, "{}\n", error.what());
      return exit_codes::usage;
    }
    wrap_timed_call = slowed;
  }
  return run_cli(argc, argv);
}
