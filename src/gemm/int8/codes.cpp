// SPDX-License-Identifier: Apache-2.0
#include "gemm/int8/codes.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "core/check.hpp"

namespace switchback::gemm_int8 {

namespace {

// The column of the first -128 in a row, or -1.
std::int64_t find_in_row(const std::int8_t* row, std::int64_t cols) {
  const void* const found = std::memchr(row, 0x80, static_cast<std::size_t>(cols));
  return found == nullptr ? -1 : static_cast<const std::int8_t*>(found) - row;
}

}  // namespace

void check_codes(ContextState& state, std::string_view op, std::string_view argument,
                 MatrixView<const std::int8_t> codes, std::string_view why) {
  if (!state.on_cpu() || codes.rows == 0 || codes.cols == 0) return;
  constexpr std::int64_t task_codes = 1 << 18;
  std::atomic<std::int64_t> first{codes.rows};
  state.threads.for_ranges(codes.rows, std::max<std::int64_t>(1, task_codes / codes.cols),
                           [&](std::int64_t begin, std::int64_t end, int) {
                             for (std::int64_t row = begin; row < end && row < first.load();
                                  ++row) {
                               if (find_in_row(codes.data + row * codes.stride, codes.cols) < 0)
                                 continue;
                               std::int64_t known = first.load();
                               while (row < known && !first.compare_exchange_weak(known, row)) {
                               }
                               return;
                             }
                           });
  const std::int64_t row = first.load();
  if (row < codes.rows)
    core::fail(Status::invalid_argument, "{}: {}[{},{}] = -128; codes must be from -127 to 127{}",
               op, argument, row, find_in_row(codes.data + row * codes.stride, codes.cols), why);
}

}  // namespace switchback::gemm_int8
