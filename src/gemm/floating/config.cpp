// SPDX-License-Identifier: Apache-2.0
// Dispatch zone: the default configuration of floating point products, and the measurements that
// support it.
#include <algorithm>
#include <array>

#include "core/check.hpp"
#include "gemm/floating/cpu/onednn.hpp"
#include "gemm/floating/engine.hpp"

namespace switchback::floating {

namespace {

// GFLOP/s, best decile of interleaved calls in one process, two threads of an AMD Zen 5 EPYC (two
// cores), oneDNN 2.6.3, OpenBLAS 0.3.21 held to its Haswell kernels (OPENBLAS_CORETYPE). With the
// kernels that OpenBLAS chooses itself it is up to twice as fast and still not the fastest: NT 0.97
// of dnnl_sgemm at 1024 / 1024 / 4096, 0.90 of matmul at 256 / 1024 / 4096. A layer of K inputs and
// N outputs and M rows: NT is its forward (m = M), NN its dX (m = M), TN its dW (k = M). "packed"
// includes reordering b in every call.
//
//                        NT forward                  NN dX                       TN dW
//   f32, M / K / N       sgemm matmul packed oblas   sgemm matmul packed oblas   sgemm matmul oblas
//      1 / 4096 / 4096      17     14      4     9      22     10      5    12      14     14     8
//      4 / 4096 / 4096      52     64     22    21      69     35     24    23      54     51    28
//     16 / 4096 / 4096      31    171     66   111     228    127     81   117     228    210    92
//     64 / 4096 / 4096     123    350    211   193     380    279    210   191     432    416   170
//    256 / 1024 / 4096     276    430    360   220     414    405    375   225     463    442   227
//    512 / 1024 / 4096     330    427    400   224     432    405    415   227     441    432   226
//   1024 / 1024 / 4096     457    445    439   235     465    416    447   238     462    417   237
//   1024 / 4096 / 1024     434    439    423   229     458    408    430   233     447    385   231
//   2048 / 4096 / 4096     436    409    416   216     457    409    448   234     453    379   234
//   4096 / 1408 / 6144     452    404    424   215     447    323    437   217     435    364   210
//
//   bf16 (native)                matmul packed              matmul packed              matmul
//   packed
//     16 / 4096 / 4096              376     53                 189    117                 283 282
//    256 / 1024 / 4096              880    633                 859    764                 918 942
//    512 / 1024 / 4096              829    696                 736    748                 807 834
//   1024 / 1024 / 4096              890    842                 802    849                 857 891
//   2048 / 4096 / 4096              851    769                 781    849                 748 816
//   4096 / 1408 / 6144              792    833                 752    887                 673 741
//
// On a Cascade Lake the order was the same, with OpenBLAS within 10 % of the others from M = 256
// on. oneDNN's emulation of bf16 (a CPU without avx512_bf16) reached 135 where widening to f32
// reaches most of the f32 rate, so it is never used.

constexpr Config sgemm{EngineId::onednn_sgemm, false, 0};
constexpr Config matmul{EngineId::onednn_matmul, false, 0};
constexpr Config matmul_packed{EngineId::onednn_matmul, true, 0};
constexpr Config openblas{EngineId::openblas, false, 0};
constexpr Config reference{EngineId::reference, false, 0};

Config preferred(const Problem& p) {
  if (p.input == DType::bf16 && onednn_multiplies_bf16(p.k))
    return !p.transpose_b && p.m >= 1024 ? matmul_packed : matmul;
  // For f32, or operands widened to f32: dnnl_sgemm, except if it has to transpose b for too few
  // rows. With a bias, dnnl_sgemm needs a second pass over d, while matmul fuses the bias. Up to m
  // = 2048 this pass costs as much as matmul loses in the product.
  const std::int64_t enough_rows = p.bias ? 2048 : 1024;
  const bool transposes_for_few = p.transpose_b && !p.transpose_a && p.m > 2 && p.m < enough_rows;
  return transposes_for_few ? matmul : sgemm;
}

// Why the engine of a configuration refuses it, as far as that can be decided without a Context;
// empty if it does not.
std::string refusal(const Problem& problem, const Config& config) {
  const Engine* e = find_engine(problem.device, config.engine);
  if (e == nullptr)
    return fmt::format("engine number {} is unknown", static_cast<std::int64_t>(config.engine));
  std::string reason = e->unavailable();
  if (reason.empty()) reason = e->unsupported(problem);
  if (reason.empty() && config.pack_b && !e->packs_b) reason = "it cannot pack b; pack_b must be 0";
  return reason.empty() ? reason : fmt::format("engine '{}': {}", e->name, reason);
}

bool runs(const Problem& problem, const Config& config) {
  return refusal(problem, config).empty();
}

}  // namespace

// The default on GPUs. The engine for tf32 is never the default: it computes a different product.
constexpr Config cublaslt{EngineId::cublaslt, false, 0};

Config default_config(const Problem& problem, const ContextState&) {
  if (problem.device != DeviceKind::cpu) return cublaslt;
  for (const Config& config : {preferred(problem), sgemm, matmul, openblas})
    if (runs(problem, config)) return config;
  return reference;
}

namespace {

std::vector<Config> list_candidates(const Problem& problem, const ContextState& state, bool all) {
  std::vector<Config> configs = {default_config(problem, state)};
  if (problem.device != DeviceKind::cpu) {
    const Engine* e = find_engine(problem.device, configs.front().engine);
    const bool empty = problem.m == 0 || problem.n == 0 || problem.k == 0;
    if (empty || e == nullptr || e->candidates == nullptr || !runs(problem, configs.front()))
      return configs;
    configs.clear();
    (all && e->all_candidates != nullptr ? e->all_candidates : e->candidates)(problem, state,
                                                                              configs);
    return configs;
  }
  for (const Config& config : {sgemm, matmul, matmul_packed, openblas, reference})
    if (config != configs.front() && runs(problem, config)) configs.push_back(config);
  return configs;
}

}  // namespace

std::vector<Config> candidates(const Problem& problem, const ContextState& state) {
  return list_candidates(problem, state, false);
}

std::vector<Config> all_candidates(const Problem& problem, const ContextState& state) {
  return list_candidates(problem, state, true);
}

std::string check_config(const Problem& problem, const Config& config, const ContextState& state) {
  std::string reason = refusal(problem, config);
  if (reason.empty()) reason = out_of_range(config.cublaslt);
  if (!reason.empty() || config.cublaslt == CublasLtChoice{}) return reason;
  const Engine* e = find_engine(problem.device, config.engine);
  if (e->invalid_config == nullptr)
    return fmt::format("engine '{}' does not support a cuBLASLt algorithm or workspace", e->name);
  reason = e->invalid_config(problem, config, state);
  return reason.empty() ? reason : fmt::format("engine '{}': {}", e->name, reason);
}

std::string provenance(const Problem& problem, const Config& config, const ContextState& state) {
  const Engine* e = find_engine(problem.device, config.engine);
  const bool empty = problem.m == 0 || problem.n == 0 || problem.k == 0;
  if (empty || !runs(problem, config) || e->provenance == nullptr) return {};
  return e->provenance(problem, config, state);
}

void run(Context& context, const Problem& problem, const Config& config, const Operands& operands) {
  const std::string reason = check_config(problem, config, context.state());
  if (!reason.empty()) core::fail(Status::unsupported, "gemm_standard: {}", reason);
  find_engine(problem.device, config.engine)->run(context.state(), problem, config, operands);
}

}  // namespace switchback::floating
