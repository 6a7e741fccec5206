// SPDX-License-Identifier: Apache-2.0
// Engine zone: the product with a fused dequantizing epilogue: no int32 sum leaves the
// multiprocessors. Writing and reading the sums would cost M·N·8 bytes. On an H200 that is about
// what int8 gains over bf16 at K = 2048.
//
// A kernel may fail on a machine on which it never ran. By default the engine runs only two kinds
// of kernels: those that a committed record has seen right on this generation of GPUs, and those
// that cannot hang and were right in a small product in this process (trial.hpp). A tuner first
// tries the other kernels in another process. Kernels that were right there are used by default
// from then on.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "core/check.hpp"
#include "core/cuda/status.hpp"
#include "gemm/cuda/engines.hpp"
#include "gemm/int8/cuda/fused/fused.hpp"
#include "gemm/int8/cuda/fused/groups/engine.hpp"
#include "gemm/int8/cuda/fused/trial.hpp"
#include "gemm/int8/cuda/operands.hpp"

namespace switchback::gemm_int8::cuda {

namespace {

namespace products = products::cuda;
using core::cuda::check;
using core::cuda::CurrentDevice;
using core::cuda::Runtime;
using core::cuda::runtime;

// The bytes of one memory access of the kernels.
constexpr std::int64_t access_bytes = 16;
// The limit of a stride in a copy descriptor (TMA) of 9.0. All other values of accepted problems
// fit into a descriptor.
constexpr std::int64_t most_row_bytes = std::int64_t{1} << 40;

std::span<const products::FusedVariant> variants(const ContextState& state, std::string_view& why) {
  const core::DeviceInfo& info = runtime(state).info();
  return products::fused_variants(info.compute_capability(), info.shared_bytes_per_block, why);
}

std::span<const products::FusedVariant> variants(const ContextState& state) {
  std::string_view why;
  return variants(state, why);
}

std::string_view unavailable(const ContextState& state) {
  std::string_view why;
  (void)variants(state, why);
  return why;
}

std::string_view unsupported(const GemmProblem& p, const ContextState& state) {
  const auto element = static_cast<std::int64_t>(dtype_size_bytes(p.output));
  // Row and column indices are int, including those of the last tile that are beyond d.
  constexpr std::int64_t most = std::numeric_limits<int>::max() - 256;
  if (p.scale == ScaleMode::none) return "it does not support int32 output";
  if (p.k == 0) return "k is 0";
  if (p.m > most || p.n > most) return "m or n is 2^31 - 256 or more";
  if (p.alignment != access_bytes) return "an operand's address is not a multiple of 16 bytes";
  if (p.n * element % access_bytes != 0)
    return "the size of a row of d is not a multiple of 16 bytes";
  if (p.stride_d * element % access_bytes != 0)
    return "the stride of d is not a multiple of 16 bytes";
  if (std::max({p.stride_a, p.stride_b, p.stride_d * element}) >= most_row_bytes)
    return "the stride of an operand is 2^40 bytes or more";
  return p.has_groups() ? grouped::unsupported(p, state) : std::string_view();
}

// Whether a kernel accepts the problem's rows. A kernel for few rows accepts at most the rows of
// one tile.
bool takes_rows(const products::FusedVariant& variant, const GemmProblem& p) {
  return !variant.skinny || p.m <= variant.tile_m;
}

GemmConfig config_of(const products::FusedVariant& variant) {
  GemmConfig config;
  config.engine = EngineId::fused;
  config.mc = variant.tile_m;
  config.nc = variant.tile_n;
  config.kc = variant.tile_k;
  config.cluster = variant.cluster;
  return config;
}

const products::FusedVariant* find_variant(const ContextState& state, GemmConfig config) {
  config.raster = config.swizzle = 0;
  for (const products::FusedVariant& variant : variants(state))
    if (config_of(variant) == config) return &variant;
  return nullptr;
}

std::int64_t tiles(const products::FusedVariant& variant, const GemmProblem& p) {
  // A cluster always has all of its thread blocks, even if some have nothing to do.
  const std::int64_t rows = std::int64_t{variant.tile_m} * variant.cluster;
  const std::int64_t down = (p.m + rows - 1) / rows * variant.cluster;
  return down * ((p.n + variant.tile_n - 1) / variant.tile_n);
}

// Whether a shape of tile suits the problem. A tile with more than twice the rows of d wastes most
// of its work. Small tiles always pay: with few rows, the time goes into reading b.
bool is_worth(const products::FusedVariant& variant, const GemmProblem& p) {
  constexpr int small = 64;
  return takes_rows(variant, p) && (variant.tile_m <= small || variant.tile_m < 2 * p.m);
}

// From this many tiles for each multiprocessor on, strips of tiles are faster, because they stay in
// the L2 cache. On an H200 (data/records/h200, micro sweep) they are 2 to 4 % faster with 54 and
// more tiles, as fast with 8, and up to 10 % slower with 4.
constexpr std::int64_t many_tiles = 16;

// The order of tiles was found to matter only for tiles of at least this many rows.
constexpr int large = 128;

// The widest strip of tiles (2, 4 or 8) that wastes little, if d has more tiles than that in both
// directions; 0 if there is none. Both sides of d are rounded up to whole strips. Tiles outside of
// d take time like the others.
std::int64_t strip_width(const products::FusedVariant& variant, const GemmProblem& p) {
  if (variant.tile_m < large) return 0;
  const auto rounded = [](std::int64_t tiles, std::int64_t to) {
    return (tiles + to - 1) / to * to;
  };
  const std::int64_t down = (p.m + variant.tile_m - 1) / variant.tile_m;
  const std::int64_t across = (p.n + variant.tile_n - 1) / variant.tile_n;
  for (const std::int64_t width : {8, 4, 2}) {
    const std::int64_t all = rounded(down, width * variant.cluster) * rounded(across, width);
    if (width < std::min(down, across) && all * 100 <= tiles(variant, p) * 102) return width;
  }
  return 0;
}

// Finds, among the shapes that `allowed` accepts, the shape for few rows, or the shape whose waves
// of tiles take the least time. From the second wave on it prefers pairs of thread blocks that
// share b, which were up to 20 % faster on an H200 and never 4 % slower. Returns false if no shape
// is accepted.
template <class Allowed>
bool fastest(const GemmProblem& p, const ContextState& state, const Allowed& allowed,
             GemmConfig& config) {
  const std::int64_t multiprocessors =
      std::max<std::int64_t>(1, runtime(state).info().multiprocessors);
  const products::FusedVariant* best = nullptr;
  double least = std::numeric_limits<double>::infinity();
  for (const products::FusedVariant& variant : variants(state)) {
    if (!takes_rows(variant, p)) continue;
    const std::int64_t all = tiles(variant, p);
    const std::int64_t waves = (all + multiprocessors - 1) / multiprocessors;
    double time = variant.skinny ? 0 : static_cast<double>(waves) * variant.time;
    if (variant.cluster > 1) time *= all > multiprocessors ? 0.97 : 1.03;
    if (time < least && allowed(variant)) {
      best = &variant;
      least = time;
    }
  }
  if (best == nullptr) return false;
  config = config_of(*best);
  if (tiles(*best, p) >= many_tiles * multiprocessors) config.swizzle = strip_width(*best, p);
  return true;
}

// Finds, among the shapes that `allowed` accepts, the fastest for which is_worth() is true, or
// otherwise the fastest of all.
template <class Allowed>
bool default_among_allowed(const GemmProblem& p, const ContextState& state, const Allowed& allowed,
                           GemmConfig& config) {
  return fastest(
             p, state,
             [&](const products::FusedVariant& variant) {
               return is_worth(variant, p) && allowed(variant);
             },
             config) ||
         fastest(p, state, allowed, config);
}

GemmConfig default_config(const GemmProblem& p, const ContextState& state) {
  if (p.has_groups()) return grouped::default_config(p, state);
  GemmConfig config;
  default_among_allowed(
      p, state, [](const products::FusedVariant&) { return true; }, config);
  return config;
}

GemmConfig kernel_of(GemmConfig config) {
  config.raster = config.swizzle = 0;
  return config;
}

bool is_trusted(const GemmProblem& p, const GemmConfig& config, const ContextState& state) {
  if (p.has_groups()) return grouped::is_trusted(p, config, state);
  const products::FusedVariant* variant = find_variant(state, config);
  return variant != nullptr && products::trusts(state, *variant, variant->seen, p.output);
}

bool default_among(const GemmProblem& p, const ContextState& state, const KnownConfigs& known,
                   GemmConfig& config) {
  if (p.has_groups()) return grouped::default_among(p, state, known, config);
  return default_among_allowed(
      p, state,
      [&](const products::FusedVariant& variant) {
        return known.allow(config_of(variant), [&] {
          return products::trusts(state, variant, variant.seen, p.output);
        });
      },
      config);
}

// One candidate per tile shape. For large tiles, and grids with more tiles than can run at once,
// also both raster orders and the widest swizzle.
void candidates(const GemmProblem& p, const ContextState& state, std::vector<GemmConfig>& out) {
  if (p.has_groups()) return grouped::candidates(p, state, out);
  for (const products::FusedVariant& variant : variants(state)) {
    if (!is_worth(variant, p)) continue;
    GemmConfig config = config_of(variant);
    out.push_back(config);
    const std::int64_t down = (p.m + variant.tile_m - 1) / variant.tile_m;
    const std::int64_t across = (p.n + variant.tile_n - 1) / variant.tile_n;
    if (variant.tile_m < large || down * across <= runtime(state).info().multiprocessors) continue;
    // If there were only one more tile than the strip is wide, there would be no second full strip.
    std::int64_t widest = 0;
    for (const std::int64_t width : {std::int64_t{2}, std::int64_t{4}, std::int64_t{8}})
      if (std::min(down, across) > width) widest = width;
    const auto other =
        across > down ? products::FusedRaster::along_n : products::FusedRaster::along_m;
    for (const std::int64_t swizzle : {std::int64_t{0}, widest})
      for (const std::int64_t raster : {std::int64_t{0}, static_cast<std::int64_t>(other)}) {
        config.raster = raster;
        config.swizzle = swizzle;
        if (std::find(out.begin(), out.end(), config) == out.end()) out.push_back(config);
      }
  }
}

std::string invalid_config(const GemmProblem& problem, const GemmConfig& config,
                           const ContextState& state) {
  if (problem.has_groups()) return grouped::invalid_config(problem, config, state);
  if (config.raster > static_cast<std::int64_t>(products::FusedRaster::along_n))
    return fmt::format("raster={}; it must be 0 (the side with fewer tiles), 1 (m) or 2 (n)",
                       config.raster);
  if (config.swizzle != 0 && config.swizzle != 2 && config.swizzle != 4 && config.swizzle != 8)
    return fmt::format("swizzle={}; it must be 0, 2, 4 or 8", config.swizzle);
  if (const products::FusedVariant* variant = find_variant(state, config))
    return takes_rows(*variant, problem)
               ? std::string()
               : fmt::format("its kernel with tiles of {}x{} supports at most {} rows, not m={}",
                             config.mc, config.nc, config.mc, problem.m);
  return fmt::format(
      "there is no kernel with tiles of {}x{} (kc={}) and clusters of {} for this device",
      config.mc, config.nc, config.kc, config.cluster);
}

void run_variant(ContextState& state, const GemmProblem& p, const products::FusedVariant& variant,
                 const GemmConfig& config, int rotation_stages, const GemmOperands& o) {
  Runtime& device = runtime(state);
  const CurrentDevice current(device.index());
  core::Workspace::Frame frame(state.workspace);
  // The kernels do not read rows beyond the last row of a. So only the inner dimension is padded
  // with zeros.
  const products::StagedCodes a = products::stage(frame, o.a, p.m, p.k, p.stride_a, p.m);
  const products::StagedCodes b = products::stage_b(frame, p, o);
  // The kernels read the scales of rows as 4-byte words.
  const bool moves_absmax = reinterpret_cast<std::uintptr_t>(o.absmax_a) % sizeof(float) != 0;
  auto* absmax_a = moves_absmax ? frame.take<float>(p.m) : nullptr;
  const products::FusedArguments arguments = {
      a.data,
      b.data,
      o.d,
      moves_absmax ? absmax_a : o.absmax_a,
      o.absmax_b,
      p.has_bias ? o.bias : nullptr,
      p.bias,
      static_cast<int>(p.m),
      static_cast<int>(p.n),
      static_cast<int>(products::padded_k(p.k)),
      a.stride,
      b.stride,
      p.stride_d,
      p.scale == ScaleMode::row_scalar,
      device.info().multiprocessors,
      static_cast<products::FusedRaster>(config.raster),
      config.swizzle == 0 ? 1 : static_cast<int>(config.swizzle),
      device.overlaps(),
      device.index(),
      rotation_stages};
  auto* workspace = frame.take<std::byte>(
      static_cast<std::int64_t>(variant.workspace_bytes(p.output, arguments)));
  // All memory is allocated. From here on work is queued on the stream.
  if (device.is_dry_run()) return;
  products::queue_copy(device, a);
  products::queue_copy(device, b);
  if (moves_absmax) {
    const std::size_t bytes = static_cast<std::size_t>(p.m) * sizeof(float);
    device.copy(absmax_a, bytes, o.absmax_a, bytes, bytes, 1);
  }
  // Clears CUDA's last error: CUTLASS ends a launch by asking for it, and would report an error
  // that earlier, unrelated code left.
  (void)cudaGetLastError();
  check(variant.launch(p.output, arguments, workspace, device.cuda_stream()), "kernel fused");
}

void run(ContextState& state, const GemmProblem& p, const GemmConfig& config,
         const GemmOperands& o) {
  if (p.has_groups()) return grouped::run(state, p, config, o);
  const products::FusedVariant* variant = find_variant(state, config);
  if (variant == nullptr)
    core::fail(Status::unsupported, "engine 'fused': {}", invalid_config(p, config, state));
  run_variant(state, p, *variant, config, 0, o);
}

// The kernel that rotates d. Null if the build has none, or if no record has seen it right.
const products::FusedVariant* rotating_variant(const ContextState& state) {
  const core::DeviceInfo& info = runtime(state).info();
  for (const products::FusedVariant& variant :
       products::rotating_variants(info.compute_capability(), info.shared_bytes_per_block))
    if (!variant.seen.empty()) return &variant;
  return nullptr;
}

// The kernel is for outputs of 16 bits and groups that fit into a tile. It pays if there are tiles
// for most multiprocessors. On an H100 a dX of 1024x4096 took 0.8 times as long as a product and a
// second pass, and one of 512x4096 took 1.1 times as long.
bool rotates(const GemmProblem& p, int group, const ContextState& state) {
  const products::FusedVariant* variant = rotating_variant(state);
  return variant != nullptr && p.output != DType::f32 && group <= variant->tile_n &&
         tiles(*variant, p) * 4 >= std::int64_t{runtime(state).info().multiprocessors} * 3;
}

void run_rotated(ContextState& state, const GemmProblem& p, int group, const GemmOperands& o) {
  const products::FusedVariant& variant = *rotating_variant(state);
  const int stages = std::bit_width(static_cast<unsigned>(group)) / 2;
  run_variant(state, p, variant, config_of(variant), stages, o);
}

}  // namespace

const Engine fused_engine = {
    .id = EngineId::fused,
    .name = "fused",
    .unavailable = unavailable,
    .takes_groups = true,
    .unsupported = unsupported,
    .layout = EngineId::cublaslt,
    .packed_bytes = products::packed_bytes,
    .pack = products::pack,
    .unpack = products::unpack,
    .pack_transposed = products::pack_transposed,
    .packed_stride = products::packed_stride,
    .default_config = default_config,
    .candidates = candidates,
    .invalid_config = invalid_config,
    .is_trusted = is_trusted,
    .kernel_of = kernel_of,
    .default_among = default_among,
    .config_parts = part_clusters | part_order,
    .rotates = rotates,
    .run_rotated = run_rotated,
    .run = run,
};

}  // namespace switchback::gemm_int8::cuda
