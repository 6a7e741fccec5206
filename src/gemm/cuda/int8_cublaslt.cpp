// SPDX-License-Identifier: Apache-2.0
// Engine zone: the whole product by cuBLASLt into int32, then one pass that dequantizes. cuBLASLt
// has no int8 product that leaves f16, bf16 or f32, and no scales by row and column, so the int32
// are written and read once more: M·N·8 bytes, which for large K is little and for small K is what
// int8 gained.
#include "gemm/cuda/int8_engines.hpp"
#include "gemm/cuda/int8_operands.hpp"

namespace switchback::gemm_int8::SWITCHBACK_CUDA_NS {

namespace {

namespace products = products::SWITCHBACK_CUDA_NS;
using core::SWITCHBACK_CUDA_NS::CurrentDevice;
using core::SWITCHBACK_CUDA_NS::Runtime;
using core::SWITCHBACK_CUDA_NS::runtime;

constexpr std::int64_t ranked_algorithms = 8;

std::string_view rejects(const GemmProblem& p) {
  return p.k == 0 ? "k is 0" : std::string_view();
}

GemmConfig ranked(std::int64_t algorithm) {
  GemmConfig config;
  config.engine = EngineId::cublaslt;
  config.algorithm = algorithm;
  return config;
}

GemmConfig default_config(const GemmProblem&, const ContextState&) {
  return ranked(0);
}

void candidates(const GemmProblem&, const ContextState&, std::vector<GemmConfig>& out) {
  // How many there are is known once the library is asked; the others are refused when run.
  for (std::int64_t i = 0; i < ranked_algorithms; ++i)
    out.push_back(ranked(i));
}

void run(ContextState& state, const GemmProblem& p, const GemmConfig& config,
         const GemmOperands& o) {
  Runtime& device = runtime(state);
  const CurrentDevice current(device.index());
  core::Workspace::Frame frame(state.workspace);
  const products::StagedCodes a = products::stage_a(frame, p, o);
  const products::StagedCodes b = products::stage_b(frame, p, o);
  const std::int64_t m = products::padded_m(p.m);
  const std::int64_t n = products::padded_n(p.n);
  const bool in_place = p.output == DType::s32 && m == p.m && n == p.n && p.stride_d % 4 == 0 &&
                        reinterpret_cast<std::uintptr_t>(o.d) % 16 == 0;
  auto* sums = in_place ? static_cast<std::int32_t*>(o.d) : frame.take<std::int32_t>(m * n);
  const std::int64_t stride_sums = in_place ? p.stride_d : n;

  products::Plans& plans = products::Plans::of(device);
  products::Plan& plan = plans.plan(
      products::panel_product(a, b, m, p.n, p.k, stride_sums, a.data, sums, config.algorithm));
  auto* workspace = frame.take<std::byte>(static_cast<std::int64_t>(plan.workspace_bytes()));
  // All memory is there: from here on work is queued.
  products::queue_copy(device, a);
  products::queue_copy(device, b);
  plan.run(plans.handle(), b.data, a.data, sums, nullptr, workspace, device.cuda_stream());
  if (!in_place)
    products::queue_epilogue(device, p, o, sums, stride_sums, 0, p.m, device.cuda_stream());
}

}  // namespace

const Engine cublaslt_engine = {EngineId::cublaslt,
                                "cublaslt",
                                products::cublaslt_unavailable,
                                rejects,
                                products::packed_bytes,
                                products::pack,
                                default_config,
                                candidates,
                                run};

}  // namespace switchback::gemm_int8::SWITCHBACK_CUDA_NS
