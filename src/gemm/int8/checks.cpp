// SPDX-License-Identifier: Apache-2.0
#include "gemm/int8/checks.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "core/check.hpp"

namespace switchback::gemm_int8 {

namespace {

// The column of the first code of -128 in a row, or -1 if the row has none.
std::int64_t find_in_row(const std::int8_t* row, std::int64_t cols) {
  const void* const found = std::memchr(row, 0x80, static_cast<std::size_t>(cols));
  return found == nullptr ? -1 : static_cast<const std::int8_t*>(found) - row;
}

}  // namespace

void check_k(std::string_view op, std::int64_t k) {
  core::require(k <= max_exact_k,
                "{}: K = {}; it must be at most {}, or the int32 sums of codes could overflow", op,
                k, max_exact_k);
}

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

void check_operand_codes(ContextState& state, std::string_view op, std::string_view argument,
                         MatrixView<const std::int8_t> codes) {
  if (codes.data == nullptr || codes.cols <= max_exact_k_of_any_codes) return;
  check_codes(state, op, argument, codes,
              " where K is above 131071, or the int32 sums could overflow");
}

const PackedWeightState& check_filled(std::string_view op, MatrixView<const std::int8_t> b,
                                      const PackedWeight& packed_b, std::string_view packer) {
  core::require(b.data == nullptr, "{}: both b and packed_b are given; give one of them", op);
  if (packed_b.empty())
    core::fail(Status::invalid_state, "{}: packed_b is empty; call {} first", op, packer);
  return packed_b.state();
}

void check_packed(const ContextState& state, std::string_view op, const PackedWeightState& packed,
                  std::int64_t k, std::string_view engine) {
  core::require(packed.cols == k, "{}: packed_b is [{},{}]; it must be [N,K] = [{},{}]", op,
                packed.rows, packed.cols, packed.rows, k);
  const Engine* named = find_engine(state.device.kind, engine);
  core::require(engine.empty() || (named != nullptr &&
                                   reads_layout(state.device.kind, *named, packed.engine->id)),
                "{}: packed_b is packed for engine '{}'; it cannot be used by engine '{}'", op,
                packed.engine->name, engine);
  if (packed.device != state.device)
    core::fail(Status::invalid_argument,
               "{}: packed_b was packed on device {}; it cannot be used on {}", op, packed.device,
               state.device);
}

}  // namespace switchback::gemm_int8
