// SPDX-License-Identifier: Apache-2.0
// Engine zone: the whole product by cuBLASLt into int32, then one pass that dequantizes. cuBLASLt
// has no int8 product with f16, bf16 or f32 output, and no scales per row and column. So the int32
// sums are written and read once more: M·N·8 bytes. That is little for a large K. For a small K it
// costs as much as int8 gains.
#include "gemm/cuda/engines.hpp"
#include "gemm/int8/cuda/operands.hpp"
#include "gemm/int8/cuda/panels.hpp"

namespace switchback::gemm_int8::cuda {

namespace {

namespace products = products::cuda;
using core::cuda::CurrentDevice;
using core::cuda::Runtime;
using core::cuda::runtime;

std::string_view unsupported(const GemmProblem& p, const ContextState&) {
  return p.k == 0 ? "k is 0" : std::string_view();
}

GemmConfig default_config(const GemmProblem&, const ContextState&) {
  GemmConfig config;
  config.engine = EngineId::cublaslt;
  return config;
}

Cut cut(const GemmProblem& p, const ContextState& state) {
  return cut_rows(p, panel_rows(p, most_sums_bytes(state)));
}

products::Product expected_product(const GemmProblem& p, const GemmConfig& config,
                                   const ContextState& state) {
  if (products::sums_in_place(p, nullptr))
    return products::expected_product(p, config, products::padded_m(p.m), p.stride_d);
  return products::expected_product(p, config, cut(p, state).rows, products::padded_n(p.n));
}

std::string invalid_config(const GemmProblem& p, const GemmConfig& config,
                           const ContextState& state) {
  // A configuration that leaves everything to cuBLASLt always runs.
  if (config.cublaslt == CublasLtChoice{}) return {};
  if (products::sums_in_place(p, nullptr))
    return products::refusal(runtime(state), expected_product(p, config, state));
  return refuses_panels(p, config, state, cut(p, state));
}

std::string provenance(const GemmProblem& p, const GemmConfig& config, const ContextState& state) {
  return products::algorithm_hex(runtime(state), expected_product(p, config, state));
}

template <bool all>
void candidates(const GemmProblem& p, const ContextState& state, std::vector<GemmConfig>& out) {
  const GemmConfig by_default = default_config(p, state);
  if (p.m == 0 || p.n == 0) return out.push_back(by_default);
  for (const GemmConfig& config : products::algorithm_candidates(
           runtime(state), expected_product(p, by_default, state), by_default, all))
    out.push_back(config);
}

void run(ContextState& state, const GemmProblem& p, const GemmConfig& config,
         const GemmOperands& o) {
  if (!products::sums_in_place(p, o.d)) return run_panels(state, p, config, o, cut(p, state), 1);
  Runtime& device = runtime(state);
  const CurrentDevice current(device.index());
  core::Workspace::Frame frame(state.workspace);
  const products::StagedCodes a = products::stage_a(frame, p, o);
  const products::StagedCodes b = products::stage_b(frame, p, o);
  products::Plans& plans = products::Plans::of(device);
  products::Plan& plan =
      plans.plan(products::panel_product(a, b, p.m, p.n, p.k, p.stride_d, a.data, o.d, config));
  auto* workspace = frame.take<std::byte>(static_cast<std::int64_t>(plan.workspace_bytes()));
  // All memory is allocated. From here on work is queued on the stream.
  if (device.is_dry_run()) return;
  products::queue_copy(device, a);
  products::queue_copy(device, b);
  plan.run(plans.handle(), b.data, a.data, o.d, nullptr, workspace, device.cuda_stream());
}

}  // namespace

const Engine cublaslt_engine = {
    .id = EngineId::cublaslt,
    .name = "cublaslt",
    .unavailable = products::cublaslt_unavailable,
    .unsupported = unsupported,
    .layout = EngineId::cublaslt,
    .packed_bytes = products::packed_bytes,
    .pack = products::pack,
    .unpack = products::unpack,
    .pack_transposed = products::pack_transposed,
    .packed_stride = products::packed_stride,
    .default_config = default_config,
    .candidates = candidates<false>,
    .all_candidates = candidates<true>,
    .invalid_config = invalid_config,
    .config_parts = part_cublaslt,
    .provenance = provenance,
    .scratch_bytes = products::library_workspace,
    .run = run,
};

}  // namespace switchback::gemm_int8::cuda
