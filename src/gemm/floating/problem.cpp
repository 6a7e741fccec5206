// SPDX-License-Identifier: Apache-2.0
#include "gemm/floating/problem.hpp"

#include <fmt/format.h>

namespace switchback::floating {

std::string_view engine_name(EngineId id) noexcept {
  switch (id) {
    case EngineId::reference:
      return "reference";
    case EngineId::onednn_sgemm:
      return "onednn_sgemm";
    case EngineId::onednn_matmul:
      return "onednn_matmul";
    case EngineId::openblas:
      return "openblas";
    case EngineId::cublaslt:
      return "cublaslt";
    case EngineId::cublaslt_tf32:
      return "cublaslt_tf32";
  }
  return "unknown";
}

std::string describe(const Problem& p) {
  const std::string on = p.device == DeviceKind::cpu
                             ? fmt::format("threads {}", p.threads)
                             : fmt::format("compute capability {}.{}", p.compute_capability / 10,
                                           p.compute_capability % 10);
  return fmt::format("m {} n {} k {} {}{} {} -> {}{}{}, ld {} {} {}, {}", p.m, p.n, p.k,
                     p.transpose_a ? 'T' : 'N', p.transpose_b ? 'T' : 'N', dtype_name(p.input),
                     dtype_name(p.output), p.bias ? " + bias" : "",
                     p.accumulate ? ", accumulate" : "", p.lda, p.ldb, p.ldd, on);
}

core::ProblemSize size_of(const Problem& p) noexcept {
  core::ProblemSize size = core::product_size(p.m, p.n, p.k);
  // In dW = Gᵀ · X the inner dimension k counts the tokens.
  size.tokens = p.transpose_a ? "k" : "m";
  return size;
}

std::string describe(const Config& config) {
  return fmt::format("{}{}{}", engine_name(config.engine), config.pack_b ? " pack_b" : "",
                     config.algorithm != 0 ? fmt::format(" algorithm {}", config.algorithm) : "") +
         describe(config.cublaslt);
}

}  // namespace switchback::floating
