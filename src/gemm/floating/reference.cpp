// SPDX-License-Identifier: Apache-2.0
// Reference zone: the floating point product by its definition. Sums are f64, closer to the exact
// value than the sums of any engine. They are then rounded to f32 and to the output type.
#include "core/unaligned.hpp"
#include "gemm/floating/engine.hpp"

namespace switchback::floating {

namespace {

void run(ContextState& context, const Problem& p, const Config&, const Operands& operands) {
  context.threads.for_each(p.m, [&](std::int64_t i, int) {
    for (std::int64_t j = 0; j < p.n; ++j) {
      double sum = 0;
      for (std::int64_t l = 0; l < p.k; ++l) {
        const auto a = p.transpose_a ? l * p.lda + i : i * p.lda + l;
        const auto b = p.transpose_b ? j * p.ldb + l : l * p.ldb + j;
        sum += static_cast<double>(core::load_float(operands.a, p.input, a)) *
               static_cast<double>(core::load_float(operands.b, p.input, b));
      }
      if (p.bias) sum += core::load_float(operands.bias.data, operands.bias.dtype, j);
      if (p.accumulate) sum += core::load_float(operands.d, p.output, i * p.ldd + j);
      core::store_float(operands.d, p.output, i * p.ldd + j, static_cast<float>(sum));
    }
  });
}

}  // namespace

const Engine reference_engine = {
    .id = EngineId::reference,
    .name = core::oracle_name,
    .is_oracle = true,
    .run = run,
};

}  // namespace switchback::floating
