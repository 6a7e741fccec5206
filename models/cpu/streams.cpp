// SPDX-License-Identifier: Apache-2.0
#include "models/cpu/streams.hpp"

#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "models/cpu/ahead.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace switchback::models {

namespace {

bool is_of_amd() {
#if defined(__x86_64__)
  unsigned most = 0;
  std::array<unsigned, 3> words = {};
  if (__get_cpuid(0, &most, words.data(), &words[2], &words[1]) == 0) return false;
  std::array<char, sizeof(words)> name = {};
  std::memcpy(name.data(), words.data(), sizeof(words));
  const std::string_view vendor(name.data(), name.size());
  return vendor == "AuthenticAMD" || vendor == "HygonGenuine";
#else
  return false;
#endif
}

}  // namespace

bool follows_pages() {
  static const bool follows = is_of_amd();
  return follows;
}

bool goes_past_caches(const AnyMatrix& m) {
  constexpr std::int64_t line_bytes = 64;
  constexpr std::int64_t element_bytes = sizeof(float);
  return m.dtype == DType::f32 && m.rows * m.cols * element_bytes > l2_bytes() &&
         reinterpret_cast<std::uintptr_t>(m.data) % line_bytes == 0 &&
         m.stride * element_bytes % line_bytes == 0;
}

}  // namespace switchback::models
