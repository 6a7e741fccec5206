// SPDX-License-Identifier: Apache-2.0
// Reference zone: the int8 product and its dequantize, written like the specification.
#include <cstring>

#include "core/numerics.hpp"
#include "core/unaligned.hpp"
#include "gemm/int8/engine.hpp"

namespace switchback::gemm_int8 {

namespace {

std::size_t packed_bytes(std::int64_t n, std::int64_t k) {
  return static_cast<std::size_t>(n) * static_cast<std::size_t>(k);
}

void pack(ContextState&, MatrixView<const std::int8_t> b, void* out) {
  auto* packed = static_cast<std::int8_t*>(out);
  for (std::int64_t row = 0; row < b.rows; ++row)
    if (b.cols > 0)
      std::memcpy(packed + row * b.cols, b.data + row * b.stride, static_cast<std::size_t>(b.cols));
}

GemmConfig default_config(const GemmProblem&, const ContextState&) {
  return {};
}
void candidates(const GemmProblem& problem, const ContextState& state,
                std::vector<GemmConfig>& out) {
  out.push_back(default_config(problem, state));
}

void run(ContextState& state, const GemmProblem& p, const GemmConfig&, const GemmOperands& o) {
  const bool packed = o.packed_b != nullptr;
  const auto* b = packed ? static_cast<const std::int8_t*>(o.packed_b) : o.b;
  const std::int64_t stride_b = packed ? p.k : p.stride_b;

  state.threads.for_each(p.m, [&](std::int64_t i, int) {
    for (std::int64_t j = 0; j < p.n; ++j) {
      // Unsigned: with codes of -128 and a huge K it wraps, which is defined
      std::uint32_t sum = 0;
      for (std::int64_t l = 0; l < p.k; ++l)
        sum += static_cast<std::uint32_t>(o.a[i * p.stride_a + l] * b[j * stride_b + l]);
      const auto acc = static_cast<std::int32_t>(sum);
      const std::int64_t at = i * p.stride_d + j;
      if (p.scale == ScaleMode::none) {
        core::store(static_cast<std::int32_t*>(o.d), at, acc);
        continue;
      }
      const float scale_a = core::load(o.absmax_a, i);
      const float scale_b = core::load(o.absmax_b, p.scale == ScaleMode::row_col ? j : 0);
      float y = scale_b * (scale_a * (static_cast<float>(acc) * core::inverse_127_squared));
      if (p.has_bias) y += core::load_float(o.bias, p.bias, j);
      core::store_float(o.d, p.output, at, y);
    }
  });
}

}  // namespace

const Engine reference_engine = {
    .id = EngineId::reference,
    .name = core::oracle_name,
    .is_oracle = true,
    .layout = EngineId::reference,
    .packed_bytes = packed_bytes,
    .pack = pack,
    .unpack = unpack_rows,
    .pack_transposed = transpose_rows,
    .default_config = default_config,
    .candidates = candidates,
    .run = run,
};

}  // namespace switchback::gemm_int8
