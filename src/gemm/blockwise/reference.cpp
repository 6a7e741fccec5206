// SPDX-License-Identifier: Apache-2.0
// Reference zone: the blockwise product as the specification writes it.
#include <algorithm>
#include <cmath>

#include "core/numerics.hpp"
#include "core/unaligned.hpp"
#include "gemm/blockwise/engine.hpp"
#include "switchback/gemm.hpp"

namespace switchback::blockwise {

namespace {

std::string_view available_everywhere(const ContextState&) {
  return {};
}

void run_reference(ContextState& state, const BlockwiseProblem& p, const BlockwiseConfig&,
                   const BlockwiseOperands& o) {
  const std::int64_t blocks = p.blocks();
  const std::int64_t superblock = blockwise_superblock_rows / p.block_rows;
  state.threads.for_each(p.n, [&](std::int64_t n, int) {
    for (std::int64_t k = 0; k < p.k; ++k) {
      const std::int64_t at = n * p.stride_d + k;
      float d = p.accumulate ? core::load_float(o.d, p.output, at) : 0.0f;
      for (std::int64_t first = 0; first < blocks; first += superblock) {
        float partial = 0.0f;
        for (std::int64_t b = first; b < std::min(first + superblock, blocks); ++b) {
          std::int32_t sum = 0;
          for (std::int64_t t = b * p.block_rows; t < (b + 1) * p.block_rows; ++t)
            sum += o.a[n * p.stride_a + t] * o.b[k * p.stride_b + t];
          partial = std::fma(static_cast<float>(sum) * core::load(o.absmax_b, b * p.k + k),
                             core::load(o.absmax_a, b * p.n + n), partial);
        }
        d = std::fma(partial, core::inverse_127_squared, d);
      }
      core::store_float(o.d, p.output, at, d);
    }
  });
}

}  // namespace

const Engine reference_engine = {
    .id = EngineId::reference,
    .name = core::oracle_name,
    .is_oracle = true,
    .unavailable = available_everywhere,
    .run = run_reference,
};

}  // namespace switchback::blockwise
