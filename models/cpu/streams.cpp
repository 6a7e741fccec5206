// SPDX-License-Identifier: Apache-2.0
#include "models/cpu/streams.hpp"

#include <cstdint>
#include <string_view>

#include "core/cpu/vendor.hpp"
#include "models/cpu/ahead.hpp"

namespace switchback::models {

bool follows_pages() {
  static const bool follows =
      core::cpu_vendor() == "AuthenticAMD" || core::cpu_vendor() == "HygonGenuine";
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
