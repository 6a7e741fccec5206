// SPDX-License-Identifier: Apache-2.0
#include "gemm/int8/cuda/fused/groups/engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "core/check.hpp"
#include "core/cuda/status.hpp"
#include "gemm/int8/cuda/fused/groups/launch.hpp"
#include "gemm/int8/cuda/fused/trial.hpp"
#include "gemm/int8/cuda/operands.hpp"

namespace switchback::gemm_int8::cuda::grouped {

namespace {

namespace products = products::cuda;
using core::cuda::check;
using core::cuda::CurrentDevice;
using core::cuda::Runtime;
using core::cuda::runtime;
using products::GroupedFusedVariant;

std::span<const GroupedFusedVariant> variants(const ContextState& state, std::string_view& why) {
  const core::DeviceInfo& info = runtime(state).info();
  return products::grouped_fused_variants(info.compute_capability(), info.shared_bytes_per_block,
                                          why);
}

std::span<const GroupedFusedVariant> variants(const ContextState& state) {
  std::string_view why;
  return variants(state, why);
}

GemmConfig config_of(const GroupedFusedVariant& variant) {
  GemmConfig config;
  config.engine = EngineId::fused;
  config.mc = variant.tile_m;
  config.nc = variant.tile_n;
  config.kc = variant.tile_k;
  config.cluster = 1;
  return config;
}

const GroupedFusedVariant* find_variant(const ContextState& state, const GemmConfig& config) {
  for (const GroupedFusedVariant& variant : variants(state))
    if (config_of(variant) == config) return &variant;
  return nullptr;
}

// The matrices b of all groups, as the kernels read them.
struct StagedGroups {
  products::StagedCodes codes;
  std::int64_t step = 0;
};

StagedGroups stage_b(core::Workspace::Frame& frame, const GemmProblem& p, const GemmOperands& o) {
  StagedGroups b;
  if (o.packed_b != nullptr) {
    b.codes.data = static_cast<const std::int8_t*>(o.packed_b);
    b.codes.stride = products::padded_k(p.k);
    b.step = p.packed_step_bytes;
  } else {
    const std::int64_t rows = p.groups * p.n;
    b.codes = products::stage(frame, o.b, rows, p.k, p.stride_b, rows);
    b.step = p.n * b.codes.stride;
  }
  return b;
}

}  // namespace

std::string_view unsupported(const GemmProblem& p, const ContextState& state) {
  std::string_view why;
  if (variants(state, why).empty()) return why;
  const auto element = static_cast<std::int64_t>(dtype_size_bytes(p.output));
  if (p.groups > std::numeric_limits<int>::max()) return "there are 2^31 groups or more";
  if (p.d_column_stride * element % 16 != 0)
    return "the column stride of d is not a multiple of 16 bytes";
  return {};
}

namespace {

// Finds, among the shapes that `allowed` accepts, the largest tile that does not waste most of its
// rows, or otherwise the tile with the fewest rows, which is the last. Null if no shape is
// accepted.
template <class Allowed>
const GroupedFusedVariant* default_variant(const GemmProblem& p, const ContextState& state,
                                           const Allowed& allowed) {
  const std::span<const GroupedFusedVariant> all = variants(state);
  const std::int64_t rows = mean_problem(p).m;
  for (const GroupedFusedVariant& variant : all)
    if (variant.tile_m < 2 * rows && allowed(variant)) return &variant;
  for (std::size_t i = all.size(); i-- > 0;)
    if (allowed(all[i])) return &all[i];
  return nullptr;
}

bool trusts(const ContextState& state, const GroupedFusedVariant& variant, const GemmProblem& p) {
  const bool scalar = p.scale == ScaleMode::row_scalar;
  return products::trusts(state, variant, scalar ? variant.seen_scalar : variant.seen, p.output);
}

}  // namespace

GemmConfig default_config(const GemmProblem& p, const ContextState& state) {
  return config_of(*default_variant(p, state, [](const GroupedFusedVariant&) { return true; }));
}

bool is_trusted(const GemmProblem& p, const GemmConfig& config, const ContextState& state) {
  const GroupedFusedVariant* variant = find_variant(state, config);
  return variant != nullptr && trusts(state, *variant, p);
}

bool default_among(const GemmProblem& p, const ContextState& state, const KnownConfigs& known,
                   GemmConfig& config) {
  const auto may_run = [&](const GroupedFusedVariant& variant) {
    return known.allow(config_of(variant), [&] { return trusts(state, variant, p); });
  };
  const GroupedFusedVariant* best = default_variant(p, state, may_run);
  if (best != nullptr) config = config_of(*best);
  return best != nullptr;
}

void candidates(const GemmProblem&, const ContextState& state, std::vector<GemmConfig>& out) {
  for (const GroupedFusedVariant& variant : variants(state))
    out.push_back(config_of(variant));
}

std::string invalid_config(const GemmProblem&, const GemmConfig& config,
                           const ContextState& state) {
  if (find_variant(state, config) != nullptr) return {};
  return fmt::format(
      "there is no kernel for groups with tiles of {}x{} (kc={}) and clusters of {} for this "
      "device",
      config.mc, config.nc, config.kc, config.cluster);
}

void run(ContextState& state, const GemmProblem& p, const GemmConfig& config,
         const GemmOperands& o) {
  Runtime& device = runtime(state);
  const GroupedFusedVariant* variant = find_variant(state, config);
  if (variant == nullptr)
    core::fail(Status::unsupported, "engine 'fused': {}", invalid_config(p, config, state));
  const CurrentDevice current(device.index());
  core::Workspace::Frame frame(state.workspace);
  const products::StagedCodes a = products::stage(frame, o.a, p.m, p.k, p.stride_a, p.m);
  const StagedGroups b = stage_b(frame, p, o);
  // The kernels read the scales of rows as 4-byte words.
  const bool moves_absmax = reinterpret_cast<std::uintptr_t>(o.absmax_a) % sizeof(float) != 0;
  auto* absmax_a = moves_absmax ? frame.take<float>(p.m) : nullptr;
  products::GroupedFusedArguments arguments{};
  arguments.groups = core::cuda::group_arrays(o.groups, p.m, device.reports());
  arguments.a = a.data;
  arguments.a_stride = a.stride;
  arguments.b = b.codes.data;
  arguments.b_stride = b.codes.stride;
  arguments.b_step = b.step;
  arguments.d = o.d;
  arguments.d_stride = p.stride_d;
  arguments.d_column_stride = p.d_column_stride;
  arguments.absmax_a = moves_absmax ? absmax_a : o.absmax_a;
  arguments.absmax_b = o.absmax_b;
  arguments.scalar_b = p.scale == ScaleMode::row_scalar;
  arguments.bias = p.has_bias ? o.bias : nullptr;
  arguments.bias_type = p.bias;
  arguments.n = static_cast<int>(p.n);
  arguments.k = static_cast<int>(products::padded_k(p.k));
  arguments.multiprocessors = device.info().multiprocessors;
  auto* workspace = frame.take<std::byte>(
      static_cast<std::int64_t>(variant->workspace_bytes(p.output, arguments)));
  // All memory is allocated. From here on work is queued on the stream.
  if (device.is_dry_run()) return;
  products::queue_copy(device, a);
  products::queue_copy(device, b.codes);
  if (moves_absmax) {
    const std::size_t bytes = static_cast<std::size_t>(p.m) * sizeof(float);
    device.copy(absmax_a, bytes, o.absmax_a, bytes, bytes, 1);
  }
  // Clears CUDA's last error: CUTLASS must not report an error that earlier code left.
  (void)cudaGetLastError();
  check(variant->launch(p.output, arguments, workspace, device.cuda_stream()),
        "kernel grouped_fused");
}

}  // namespace switchback::gemm_int8::cuda::grouped
