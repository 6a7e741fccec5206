// SPDX-License-Identifier: Apache-2.0
// Entry zone: what an operation says of its engines.
#pragma once

#include <string>

#include "switchback/language.hpp"

namespace switchback {

/// One implementation of an operation: whether it can run on this Context, and if not, why not.
struct EngineInfo {
  std::string name;
  bool available = false;
  std::string reason;  ///< empty when available
};

}  // namespace switchback
