// SPDX-License-Identifier: Apache-2.0
// Entry zone: what an operation says of its engines.
#pragma once

#include <string>

#include "switchback/language.hpp"

namespace switchback {

/// One implementation of an operation: whether it can run on this Context, and if not, why not.
struct EngineInfo {
  std::string name;        ///< as the `engine` members of operations name it
  bool available = false;  ///< it can run on this Context
  std::string reason;      ///< why not; empty when available
};

}  // namespace switchback
