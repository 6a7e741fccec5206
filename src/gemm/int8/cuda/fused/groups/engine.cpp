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

// A matrix b of each group, as the kernels read it.
struct StagedGroups {
  products::StagedCodes codes;
  std::int64_t step = 0;
};

StagedGroups stage_b(core::Workspace::Frame& frame, const GroupedProblem& p,
                     const GemmOperands& o) {
  StagedGroups b;
  if (o.packed_b != nullptr) {
    b.codes.data = static_cast<const std::int8_t*>(o.packed_b);
    b.codes.stride = products::padded_k(p.each.k);
    b.step = p.packed_step_bytes;
  } else {
    const std::int64_t rows = p.groups * p.each.n;
    b.codes = products::stage(frame, o.b, rows, p.each.k, p.each.stride_b, rows);
    b.step = p.each.n * b.codes.stride;
  }
  return b;
}

}  // namespace

// Beside what the engine rejects of one product.
std::string_view refuses(const GroupedProblem& p, const ContextState& state) {
  std::string_view why;
  if (variants(state, why).empty()) return why;
  const auto element = static_cast<std::int64_t>(dtype_size_bytes(p.each.output));
  if (p.groups > std::numeric_limits<int>::max()) return "there are 2^31 groups or more";
  if (p.d_column_stride * element % 16 != 0)
    return "the bytes from one group's columns of d to the next are no multiple of 16";
  return {};
}

namespace {

// Of those that `allowed` takes the largest tile that does not waste most of its rows, else the one
// of the fewest rows, which is the last; null if it takes none.
template <class Allowed>
const GroupedFusedVariant* default_variant(const GroupedProblem& p, const ContextState& state,
                                           const Allowed& allowed) {
  const std::span<const GroupedFusedVariant> all = variants(state);
  const std::int64_t rows = mean_problem(p).m;
  for (const GroupedFusedVariant& variant : all)
    if (variant.tile_m < 2 * rows && allowed(variant)) return &variant;
  for (std::size_t i = all.size(); i-- > 0;)
    if (allowed(all[i])) return &all[i];
  return nullptr;
}

bool trusts(const ContextState& state, const GroupedFusedVariant& variant,
            const GroupedProblem& p) {
  const bool scalar = p.each.scale == ScaleMode::row_scalar;
  return products::trusts(state, variant, scalar ? variant.seen_scalar : variant.seen,
                          p.each.output);
}

}  // namespace

GemmConfig default_config(const GroupedProblem& p, const ContextState& state) {
  return config_of(*default_variant(p, state, [](const GroupedFusedVariant&) { return true; }));
}

bool is_trusted(const GroupedProblem& p, const GemmConfig& config, const ContextState& state) {
  const GroupedFusedVariant* variant = find_variant(state, config);
  return variant != nullptr && trusts(state, *variant, p);
}

bool default_among(const GroupedProblem& p, const ContextState& state, const KnownConfigs& known,
                   GemmConfig& config) {
  const auto may_run = [&](const GroupedFusedVariant& variant) {
    return known.allow(config_of(variant), [&] { return trusts(state, variant, p); });
  };
  const GroupedFusedVariant* best = default_variant(p, state, may_run);
  if (best != nullptr) config = config_of(*best);
  return best != nullptr;
}

void candidates(const GroupedProblem&, const ContextState& state, std::vector<GemmConfig>& out) {
  for (const GroupedFusedVariant& variant : variants(state))
    out.push_back(config_of(variant));
}

std::string refuses_config(const GroupedProblem&, const GemmConfig& config,
                           const ContextState& state) {
  if (find_variant(state, config) != nullptr) return {};
  return fmt::format(
      "there is no kernel for groups of tiles {}x{} (kc={}) in clusters of {} for this device",
      config.mc, config.nc, config.kc, config.cluster);
}

void run(ContextState& state, const GroupedProblem& p, const GemmConfig& config,
         const GroupedOperands& o) {
  Runtime& device = runtime(state);
  const GroupedFusedVariant* variant = find_variant(state, config);
  if (variant == nullptr)
    core::fail(Status::unsupported, "engine 'fused': {}", refuses_config(p, config, state));
  const CurrentDevice current(device.index());
  core::Workspace::Frame frame(state.workspace);
  const GemmProblem& each = p.each;
  const GemmOperands& first = o.first;
  const products::StagedCodes a =
      products::stage(frame, first.a, each.m, each.k, each.stride_a, each.m);
  const StagedGroups b = stage_b(frame, p, first);
  // The kernels read the scales of rows as words.
  const bool moves_absmax = reinterpret_cast<std::uintptr_t>(first.absmax_a) % sizeof(float) != 0;
  auto* absmax_a = moves_absmax ? frame.take<float>(each.m) : nullptr;
  products::GroupedFusedArguments arguments{};
  arguments.groups = core::cuda::group_arrays(o.groups, each.m, device.reports());
  arguments.a = a.data;
  arguments.a_stride = a.stride;
  arguments.b = b.codes.data;
  arguments.b_stride = b.codes.stride;
  arguments.b_step = b.step;
  arguments.d = first.d;
  arguments.d_stride = each.stride_d;
  arguments.d_column_stride = p.d_column_stride;
  arguments.absmax_a = moves_absmax ? absmax_a : first.absmax_a;
  arguments.absmax_b = first.absmax_b;
  arguments.scalar_b = each.scale == ScaleMode::row_scalar;
  arguments.bias = each.has_bias ? first.bias : nullptr;
  arguments.bias_type = each.bias;
  arguments.n = static_cast<int>(each.n);
  arguments.k = static_cast<int>(products::padded_k(each.k));
  arguments.multiprocessors = device.info().multiprocessors;
  auto* workspace = frame.take<std::byte>(
      static_cast<std::int64_t>(variant->workspace_bytes(each.output, arguments)));
  // All memory is there: from here on work is queued.
  if (device.rehearsing()) return;
  products::queue_copy(device, a);
  products::queue_copy(device, b.codes);
  if (moves_absmax) {
    const std::size_t bytes = static_cast<std::size_t>(each.m) * sizeof(float);
    device.copy(absmax_a, bytes, first.absmax_a, bytes, bytes, 1);
  }
  // As for one product: an error that somebody left is not CUTLASS's.
  (void)cudaGetLastError();
  check(variant->launch(each.output, arguments, workspace, device.cuda_stream()),
        "kernel grouped_fused");
}

}  // namespace switchback::gemm_int8::cuda::grouped
