// SPDX-License-Identifier: Apache-2.0
#include "shared_variables.hpp"

#include <cstring>
#include <vector>

#include "symbols.hpp"

namespace switchback_cuda_emu {

namespace {

constexpr const char* tag = "B26switchback_cuda_emu_shared";

struct Found {
  std::vector<SharedVariable> variables;
  SharedVariables all;
};

const Found& find_variables() {
  static const auto* const found = [] {
    auto* result = new Found;
    for_each_symbol([result](const Symbol& symbol) {
      if (!symbol.function && std::strstr(symbol.name, tag) != nullptr)
        result->variables.push_back({symbol.at, symbol.bytes});
    });
    result->all.first = result->variables.data();
    result->all.count = result->variables.size();
    for (const SharedVariable& variable : result->variables)
      result->all.bytes += variable.bytes;
    return result;
  }();
  return *found;
}

}  // namespace

SharedVariables shared_variables() {
  return find_variables().all;
}

}  // namespace switchback_cuda_emu
