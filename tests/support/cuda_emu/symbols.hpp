// SPDX-License-Identifier: Apache-2.0
// Test support, emulated CUDA: the symbols of the program and of the libraries it has loaded.
#pragma once

#include <cstddef>
#include <functional>

namespace switchback_cuda_emu {

struct Symbol {
  const char* name = "";  ///< mangled
  void* at = nullptr;
  std::size_t bytes = 0;
  bool function = false;  ///< whether the symbol is a function; else it is a variable
};
using OnSymbol = std::function<void(const Symbol&)>;

/// Calls `found` for every function and variable that has a symbol. A stripped program has no
/// symbols.
void for_each_symbol(const OnSymbol& found);

}  // namespace switchback_cuda_emu
