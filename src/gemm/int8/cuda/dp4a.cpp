// SPDX-License-Identifier: Apache-2.0
// Engine zone: the int8 product on CUDA cores (dp4a). It needs no library and no padding, accepts
// every problem, and is the fallback if cuBLASLt is missing.
#include <algorithm>

#include "core/cuda/status.hpp"
#include "gemm/cuda/engines.hpp"
#include "gemm/int8/cuda/operands.hpp"
#include "gemm/int8/cuda/panels.hpp"

namespace switchback::gemm_int8::cuda {

namespace {

namespace products = products::cuda;
using core::cuda::check;
using core::cuda::CurrentDevice;
using core::cuda::Runtime;
using core::cuda::runtime;

GemmConfig default_config(const GemmProblem&, const ContextState&) {
  GemmConfig config;
  config.engine = EngineId::dp4a;
  return config;
}

void candidates(const GemmProblem& problem, const ContextState& state,
                std::vector<GemmConfig>& out) {
  out.push_back(default_config(problem, state));
}

void run_one(ContextState& state, const GemmProblem& p, const GemmOperands& o) {
  Runtime& device = runtime(state);
  const CurrentDevice current(device.index());
  const cudaStream_t stream = device.cuda_stream();
  core::Workspace::Frame frame(state.workspace);
  if (p.k == 0) {
    if (!device.is_dry_run()) products::queue_epilogue(device, p, o, nullptr, 0, 0, p.m, stream);
    return;
  }
  const std::int64_t n = (p.n + 3) / 4 * 4;
  const std::int64_t rows = std::min(p.m, panel_rows(p, most_sums_bytes(state)));
  auto* sums = frame.take<std::int32_t>(rows * n);
  // All memory is allocated. From here on work is queued on the stream.
  if (device.is_dry_run()) return;
  const bool packed = o.packed_b != nullptr;
  for (std::int64_t first = 0; first < p.m; first += rows) {
    const std::int64_t here = std::min(rows, p.m - first);
    const products::Dp4aArguments arguments = {
        o.a + first * p.stride_a,
        packed ? static_cast<const std::int8_t*>(o.packed_b) : o.b,
        sums,
        here,
        p.n,
        p.k,
        p.stride_a,
        packed ? products::padded_k(p.k) : p.stride_b,
        n};
    check(products::launch_dp4a(arguments, device.overlaps(), stream), "kernel dp4a");
    products::queue_epilogue(device, p, o, sums, n, first, here, stream);
  }
}

void run_groups(ContextState& state, const GemmProblem& p, const GemmOperands& o) {
  Runtime& device = runtime(state);
  const CurrentDevice current(device.index());
  auto* const reports = device.reports();
  if (device.is_dry_run()) return;
  products::GroupedDp4aArguments arguments{};
  arguments.groups = core::cuda::group_arrays(o.groups, p.m, reports);
  arguments.a = o.a;
  arguments.a_stride = p.stride_a;
  if (o.packed_b != nullptr) {
    arguments.b = static_cast<const std::int8_t*>(o.packed_b);
    arguments.b_stride = products::padded_k(p.k);
    arguments.b_step = p.packed_step_bytes;
  } else {
    arguments.b = o.b;
    arguments.b_stride = p.stride_b;
    arguments.b_step = p.n * p.stride_b;
  }
  arguments.d = o.d;
  arguments.d_stride = p.stride_d;
  arguments.d_column_stride = p.d_column_stride;
  arguments.n = p.n;
  arguments.k = p.k;
  if (p.scale != ScaleMode::none) {
    arguments.absmax_a = o.absmax_a;
    arguments.absmax_b = o.absmax_b;
    arguments.scalar_b = p.scale == ScaleMode::row_scalar;
    arguments.bias = p.has_bias ? o.bias : nullptr;
    arguments.bias_type = p.bias;
  }
  check(products::launch_grouped_dp4a(p.output, arguments, device.cuda_stream()),
        "kernel grouped_dp4a");
}

void run(ContextState& state, const GemmProblem& p, const GemmConfig&, const GemmOperands& o) {
  (p.has_groups() ? run_groups : run_one)(state, p, o);
}

}  // namespace

const Engine dp4a_engine = {
    .id = EngineId::dp4a,
    .name = "dp4a",
    .takes_groups = true,
    .layout = EngineId::cublaslt,
    .packed_bytes = products::packed_bytes,
    .pack = products::pack,
    .unpack = products::unpack,
    .pack_transposed = products::pack_transposed,
    .packed_stride = products::packed_stride,
    .default_config = default_config,
    .candidates = candidates,
    .run = run,
};

}  // namespace switchback::gemm_int8::cuda
