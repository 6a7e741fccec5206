// SPDX-License-Identifier: Apache-2.0
#include "studies/models/cpu/streams.hpp"

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "core/cpu/isa.hpp"
#include "studies/models/cpu/ahead.hpp"

namespace switchback::models {

bool follows_pages() {
  static const bool follows =
      core::cpu_vendor() == "AuthenticAMD" || core::cpu_vendor() == "HygonGenuine";
  return follows;
}

bool goes_past_caches(const core::CpuFeatures& features, const AnyMatrix& m) {
  constexpr std::int64_t line_bytes = 64;
  const auto element_bytes = static_cast<std::int64_t>(dtype_size_bytes(m.dtype));
  return (m.dtype == DType::f32 || features.avx512_bf16) &&
         m.rows * m.cols * element_bytes > l2_bytes() &&
         reinterpret_cast<std::uintptr_t>(m.data) % line_bytes == 0 &&
         m.stride * element_bytes % line_bytes == 0;
}

std::int64_t size_of_task(const ContextState& state, std::int64_t size, std::int64_t least,
                          std::int64_t most) {
  return std::clamp(size / (4 * state.threads.count()), least, most);
}

}  // namespace switchback::models
