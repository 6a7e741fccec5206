// SPDX-License-Identifier: Apache-2.0
#include "bench/micro/race.hpp"

#include <algorithm>

#include "core/context_state.hpp"
#include "core/device_table.hpp"
#include "gemm/floating/engine.hpp"
#include "switchback/error.hpp"
#include "switchback/gemm.hpp"

namespace switchback::bench {

std::vector<measure::Rival> without_refusing(std::vector<measure::Rival> rivals) {
  std::erase_if(rivals, [](const measure::Rival& rival) {
    try {
      rival.call();
      return false;
    } catch (const Error& error) {
      if (error.status() != Status::unsupported) throw;
      return true;
    }
  });
  return rivals;
}

std::vector<std::string> fast_engines(const std::vector<EngineInfo>& infos) {
  std::vector<std::string> names;
  for (const EngineInfo& info : infos)
    if (info.available && info.name != core::oracle_name) names.push_back(info.name);
  // A machine with nothing else is measured as it is.
  for (const EngineInfo& info : infos)
    if (names.empty() && info.available) names.push_back(info.name);
  return names;
}

std::vector<std::string> fast_floating_engines(const Context& context) {
  std::vector<std::string> names = fast_engines(gemm_standard_engines(context));
  std::erase_if(names, [&](const std::string& name) {
    return floating::factor_error(context.state().device.kind, name) > 0;
  });
  return names;
}

}  // namespace switchback::bench
