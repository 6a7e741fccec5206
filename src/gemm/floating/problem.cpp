// SPDX-License-Identifier: Apache-2.0
#include "gemm/floating/problem.hpp"

#include <fmt/format.h>

namespace switchback::floating {

std::string_view engine_name(EngineId id) {
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

ConfigQuery to_query(const Problem& p) {
  const std::int64_t flags =
      (p.transpose_a ? 1 : 0) | (p.transpose_b ? 2 : 0) | (p.accumulate ? 4 : 0) | (p.bias ? 8 : 0);
  ConfigQuery query;
  query.op = ConfigOp::gemm_floating;
  query.words = {p.m,
                 p.n,
                 p.k,
                 p.lda,
                 p.ldb,
                 p.ldd,
                 static_cast<std::int64_t>(p.input),
                 static_cast<std::int64_t>(p.output),
                 flags,
                 p.threads,
                 static_cast<std::int64_t>(p.device),
                 p.compute_capability,
                 p.alignment};
  return query;
}

bool from_query(const ConfigQuery& query, Problem& p) {
  const auto& w = query.words;
  if (query.op != ConfigOp::gemm_floating) return false;
  for (std::size_t i = 0; i < 6; ++i)
    if (w[i] < 0) return false;
  const auto is_float = [](std::int64_t word) {
    return word >= 0 && word <= static_cast<std::int64_t>(DType::bf16);
  };
  if (!is_float(w[6]) || !is_float(w[7]) || w[8] < 0 || w[8] > 15 || w[9] < 1 || w[10] < 0 ||
      w[10] >= static_cast<std::int64_t>(device_kinds) || w[11] < 0 || w[12] < 0 || w[12] > 16)
    return false;
  p.m = w[0];
  p.n = w[1];
  p.k = w[2];
  p.lda = w[3];
  p.ldb = w[4];
  p.ldd = w[5];
  p.input = static_cast<DType>(w[6]);
  p.output = static_cast<DType>(w[7]);
  p.transpose_a = (w[8] & 1) != 0;
  p.transpose_b = (w[8] & 2) != 0;
  p.accumulate = (w[8] & 4) != 0;
  p.bias = (w[8] & 8) != 0;
  p.threads = static_cast<int>(w[9]);
  p.device = static_cast<DeviceKind>(w[10]);
  p.compute_capability = static_cast<int>(w[11]);
  p.alignment = w[12];
  return true;
}

std::string describe(const Config& config) {
  return fmt::format("{}{}{}", engine_name(config.engine), config.pack_b ? " pack_b" : "",
                     config.algorithm != 0 ? fmt::format(" algorithm {}", config.algorithm) : "") +
         describe(config.cublaslt);
}

ConfigChoice to_choice(const Config& config) {
  ConfigChoice choice;
  choice.words[0] = static_cast<std::int64_t>(config.engine);
  choice.words[1] = config.pack_b ? 1 : 0;
  choice.words[2] = config.algorithm;
  const CublasLtChoiceWords cublaslt = to_words(config.cublaslt);
  for (std::size_t i = 0; i < cublaslt.size(); ++i)
    choice.words[3 + i] = cublaslt[i];
  return choice;
}

bool from_choice(const ConfigChoice& choice, Config& config) {
  const auto& w = choice.words;
  if (w[0] < 0 || w[0] > static_cast<std::int64_t>(EngineId::cublaslt_tf32)) return false;
  if ((w[1] != 0 && w[1] != 1) || w[2] < 0 || w[2] >= most_ranked_algorithms) return false;
  const CublasLtChoice cublaslt = from_words({w[3], w[4], w[5], w[6]});
  if (!out_of_range(cublaslt).empty()) return false;
  config.engine = static_cast<EngineId>(w[0]);
  config.pack_b = w[1] == 1;
  config.algorithm = w[2];
  config.cublaslt = cublaslt;
  return true;
}

}  // namespace switchback::floating
