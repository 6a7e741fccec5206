// SPDX-License-Identifier: Apache-2.0
#include "gemm/int8/engine.hpp"

#include <algorithm>
#include <array>

#include "core/check.hpp"
#include "core/cuda/platform.hpp"
#include "gemm/cuda/engines.hpp"
#include "gemm/int8/cpu/blocked_engines.hpp"

namespace switchback::gemm_int8 {

core::EngineTable<Engine>& engine_table() noexcept {
  // The engines of the CPU in order of preference: the first that runs is the default.
  static constexpr std::array on_cpu = {
    &blocked_engine<EngineId::amx, amx_kernel>,
    &blocked_engine<EngineId::avx512_vnni, avx512_vnni_kernel>,
    &blocked_engine<EngineId::avx_vnni, avx_vnni_kernel>,
    &blocked_engine<EngineId::neon_i8mm, neon_i8mm_kernel>,
    &blocked_engine<EngineId::neon_dotprod, neon_dotprod_kernel>,
#if defined(SWITCHBACK_HAVE_ONEDNN)
    &onednn_engine,
#endif
    &blocked_engine<EngineId::avx2, avx2_kernel>,
    &reference_engine,
  };
  static auto table = core::cuda::table_of<core::EngineTable<Engine>>(on_cpu, cuda::engines());
  return table;
}

void transpose_rows(ContextState& state, std::int64_t n, std::int64_t k, const void* from,
                    void* out) {
  const auto* b = static_cast<const std::int8_t*>(from);
  auto* t = static_cast<std::int8_t*>(out);
  state.threads.for_ranges(k, 64, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = 0; row < n; ++row)
      for (std::int64_t col = begin; col < end; ++col)
        t[col * n + row] = b[row * k + col];
  });
}

void unpack_rows(ContextState& state, const void* from, MatrixView<std::int8_t> b) {
  state.threads.for_ranges(b.rows, 64, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row)
      std::copy_n(static_cast<const std::int8_t*>(from) + row * b.cols, b.cols,
                  b.data + row * b.stride);
  });
}

std::string_view refusal(const Engine& engine, const GemmProblem& problem,
                         const ContextState& state) {
  const std::string_view reason = engine.unavailable(state);
  if (!reason.empty()) return reason;
  if (engine.takes_groups || !problem.has_groups()) return engine.unsupported(problem, state);
  return state.on_cpu() ? engine.unsupported(mean_problem(problem), state)
                        : "it does not support groups";
}

bool reads_layout(DeviceKind device, const Engine& engine, EngineId packed_for) noexcept {
  const Engine* packer = find_engine(device, packed_for);
  return packer != nullptr && packer->layout == engine.layout;
}

const Engine& named_engine(std::string_view op, std::string_view name, const ContextState& state) {
  const Engine* engine = find_engine(state.device.kind, name);
  if (engine == nullptr)
    core::fail(Status::invalid_argument, "{}: engine '{}' is not one of {}", op, name,
               engine_table().names(state.device.kind));
  const std::string_view reason = engine->unavailable(state);
  if (!reason.empty())
    core::fail(Status::unsupported, "{}: engine '{}' is not available: {}", op, name, reason);
  return *engine;
}

const Engine& packing_engine(const ContextState& state) noexcept {
  const std::span<const Engine* const> all = engines(state.device.kind);
  for (const Engine* engine : all)
    if (!engine->needs_trust() && engine->unavailable(state).empty()) return *engine;
  return *all.back();
}

const Engine& packing_engine(std::string_view op, const ContextState& state,
                             std::string_view engine) {
  return engine.empty() ? packing_engine(state) : named_engine(op, engine, state);
}

}  // namespace switchback::gemm_int8
