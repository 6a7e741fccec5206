// SPDX-License-Identifier: Apache-2.0
#include "shared_variables.hpp"

#include <cstdlib>
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

void fill_variable(const SharedVariable& variable) {
#if defined(__x86_64__)
  void* at = variable.at;
  std::size_t bytes = variable.bytes;
  asm volatile("rep stosb" : "+D"(at), "+c"(bytes) : "a"(0xff) : "memory");
#else
  // volatile: the loop must not become a call of memset, which AddressSanitizer would check.
  auto* at = static_cast<volatile unsigned char*>(variable.at);
  for (std::size_t i = 0; i < variable.bytes; ++i)
    at[i] = 0xff;
#endif
}

bool was_written(const SharedVariable& variable) {
  const auto* at = static_cast<const volatile unsigned char*>(variable.at);
  for (std::size_t i = 0; i < variable.bytes; ++i)
    if (at[i] != 0xff) return true;
  return false;
}

unsigned char* kept_variables(const SharedVariables& variables) {
  auto* const kept = static_cast<unsigned char*>(std::malloc(variables.bytes + 1));
  unsigned char* to = kept;
  for (std::size_t v = 0; v < variables.count; ++v) {
    const auto* from = static_cast<volatile unsigned char*>(variables.first[v].at);
    for (std::size_t i = 0; i < variables.first[v].bytes; ++i)
      *to++ = from[i];
  }
  return kept;
}

void put_back(const SharedVariables& variables, unsigned char* kept) {
  const unsigned char* from = kept;
  for (std::size_t v = 0; v < variables.count; ++v) {
    auto* const to = static_cast<volatile unsigned char*>(variables.first[v].at);
    for (std::size_t i = 0; i < variables.first[v].bytes; ++i)
      to[i] = *from++;
  }
  std::free(kept);
}

}  // namespace switchback_cuda_emu
