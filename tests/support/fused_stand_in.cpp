// SPDX-License-Identifier: Apache-2.0
// Replaces CUTLASS's kernels of the fused int8 products on the emulated device. Checks their
// arguments against the rules of fused.hpp, and computes with the backend's other kernels through
// int32 sums. The kernels for few rows are not replaced.
#include <cstdint>
#include <cstdlib>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "gemm/int8/cuda/fused/fused.hpp"
#include "gemm/int8/cuda/fused/groups/launch.hpp"
#include "gemm/int8/cuda/kernels.hpp"
#include "quant/cuda/kernels.hpp"
#include "support/device_memory.hpp"
#include "switchback_cuda_emu/control.h"

namespace switchback {

namespace {
bool shown = false;
int showings = 0;
test::Fault fault = test::Fault::none;
int faulty_rows = 0;
}  // namespace

void test::show_fused_products(bool show) noexcept {
  shown = show;
  if (show) ++showings;
  fault = Fault::none;
}

void test::break_fused_products(Fault how, int tile_rows) noexcept {
  fault = how;
  faulty_rows = tile_rows;
}

namespace products::cuda {

namespace {

bool is_multiple(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) % 16 == 0;
}

bool keeps_the_rules(DType output, const FusedArguments& p) {
  const auto element = static_cast<std::int64_t>(dtype_size_bytes(output));
  return output != DType::s32 && output != DType::s8 && is_multiple(p.a) && is_multiple(p.b) &&
         is_multiple(p.d) && p.m > 0 && p.n > 0 && p.k > 0 && p.k % 16 == 0 &&
         p.a_stride % 16 == 0 && p.a_stride >= p.k && p.b_stride % 16 == 0 && p.b_stride >= p.k &&
         p.n * element % 16 == 0 && p.d_stride * element % 16 == 0 && p.d_stride >= p.n &&
         p.absmax_a != nullptr && p.absmax_b != nullptr && p.multiprocessors > 0 &&
         (p.raster == FusedRaster::heuristic || p.raster == FusedRaster::along_m ||
          p.raster == FusedRaster::along_n) &&
         (p.swizzle == 1 || p.swizzle == 2 || p.swizzle == 4 || p.swizzle == 8);
}

std::size_t workspace_bytes(DType, const FusedArguments& p) {
  return static_cast<std::size_t>(p.m) * static_cast<std::size_t>(p.n) * sizeof(std::int32_t);
}

// The GPU generation that a kernel is compiled for. Code of one generation does not run on another,
// and no block gets more shared memory than the device has.
enum class Code { sm80, sm90, sm100, sm120 };

bool runs_here(Code code, std::size_t shared_bytes) {
  int most = 0;
  if (cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0) != cudaSuccess)
    return false;
  const int capability = switchback_cuda_emu::options().compute_capability;
  const bool is_of_it = code == Code::sm80    ? capability / 10 == 8
                        : code == Code::sm90  ? capability == 90
                        : code == Code::sm100 ? capability == 100
                                              : capability / 10 == 12;
  return is_of_it && shared_bytes <= static_cast<std::size_t>(most);
}

template <Code code, std::size_t SharedBytes, int TileM>
cudaError_t launch(DType output, const FusedArguments& p, void* workspace, cudaStream_t stream) {
  if (fault == test::Fault::crash && faulty_rows == TileM) std::abort();
  if (!runs_here(code, SharedBytes)) return cudaErrorNoKernelImageForDevice;
  if (!keeps_the_rules(output, p) || p.rotation_stages != 0) return cudaErrorNotSupported;
  // A load of absmax_a from a misaligned address faults on a GPU, but not on a CPU.
  if (reinterpret_cast<std::uintptr_t>(p.absmax_a) % alignof(float) != 0)
    return cudaErrorMisalignedAddress;
  auto* sums = static_cast<std::int32_t*>(workspace);
  const Dp4aArguments product = {p.a, p.b, sums, p.m, p.n, p.k, p.a_stride, p.b_stride, p.n};
  if (const cudaError_t status = launch_dp4a(product, p.overlaps, stream); status != cudaSuccess)
    return status;
  // A wrong kernel leaves out the last row of d: it belongs to another block's tile than the first
  // row.
  const bool is_wrong = fault == test::Fault::wrong && faulty_rows == TileM;
  const int rows = is_wrong ? p.m - 1 : p.m;
  const EpilogueArguments epilogue = {sums,       p.n,        p.d,    p.d_stride,  rows,      p.n,
                                      p.absmax_a, p.absmax_b, p.bias, p.bias_type, p.scalar_b};
  if (const cudaError_t status = launch_epilogue(output, epilogue, p.multiprocessors, stream);
      status != cudaSuccess)
    return status;
  // As in CUTLASS, a launch returns the last error, whichever call caused it.
  return cudaGetLastError();
}

template <Code code, int TileM, int TileN, int TileK, int Cluster>
FusedVariant variant(double time) {
  constexpr std::size_t shared_bytes = 48 << 10;
  return {TileM,        TileN,           TileK == 128 ? 0 : TileK,          Cluster,
          shared_bytes, workspace_bytes, launch<code, shared_bytes, TileM>, time};
}

std::size_t rotated_workspace_bytes(DType output, const FusedArguments& p) {
  return 2 * workspace_bytes(output, p);
}

// A product that is then rotated. It goes through an f32 matrix, which follows the sums.
template <Code code, std::size_t SharedBytes, int TileM>
cudaError_t launch_rotated(DType output, const FusedArguments& p, void* workspace,
                           cudaStream_t stream) {
  const int group = 1 << 2 * p.rotation_stages;
  if (output == DType::f32 || p.rotation_stages < 1 || group > 256 || p.n % group != 0 ||
      p.bias != nullptr)
    return cudaErrorNotSupported;
  FusedArguments product = p;
  product.rotation_stages = 0;
  product.d = static_cast<std::byte*>(workspace) + workspace_bytes(output, p);
  product.d_stride = p.n;
  const cudaError_t status =
      launch<code, SharedBytes, TileM>(DType::f32, product, workspace, stream);
  if (status != cudaSuccess) return status;
  const quant::cuda::Launch how = {stream, 0, p.multiprocessors, p.overlaps, false, SharedBytes};
  return quant::cuda::launch_rotate(how, ConstAnyMatrix{product.d, DType::f32, p.m, p.n, p.n},
                                    static_cast<Rotation>(group),
                                    AnyMatrix{p.d, output, p.m, p.n, p.d_stride});
}

// Marks of a kernel. seen: a committed record shows that its results are right. cannot_hang: it may
// be tried in this process.
template <class Variant>
constexpr Variant seen(Variant variant) {
  variant.seen = "tests";
  return variant;
}
template <class Variant>
constexpr Variant cannot_hang(Variant variant) {
  variant.cannot_hang = true;
  return variant;
}

bool keeps_the_rules(DType output, const GroupedFusedArguments& p) {
  const auto element = static_cast<std::int64_t>(dtype_size_bytes(output));
  const core::cuda::GroupArrays& groups = p.groups;
  return output != DType::s32 && output != DType::s8 && is_multiple(p.a) && is_multiple(p.b) &&
         is_multiple(p.d) && groups.count > 0 && groups.slots > 0 && p.n > 0 && p.k > 0 &&
         p.k % 16 == 0 && p.a_stride % 16 == 0 && p.a_stride >= p.k && p.b_stride % 16 == 0 &&
         p.b_stride >= p.k && p.b_step % 16 == 0 && p.b_step >= (p.n - 1) * p.b_stride + p.k &&
         p.n * element % 16 == 0 && p.d_stride * element % 16 == 0 &&
         p.d_column_stride * element % 16 == 0 && p.absmax_a != nullptr && p.absmax_b != nullptr &&
         groups.reports != nullptr && p.multiprocessors > 0;
}

std::size_t no_workspace(DType, const GroupedFusedArguments&) {
  return 0;
}

template <Code code, std::size_t SharedBytes, int TileM>
cudaError_t launch_groups(DType output, const GroupedFusedArguments& given, void*,
                          cudaStream_t stream) {
  GroupedFusedArguments p = given;
  if (!runs_here(code, SharedBytes)) return cudaErrorNoKernelImageForDevice;
  if (!keeps_the_rules(output, p)) return cudaErrorNotSupported;
  if (reinterpret_cast<std::uintptr_t>(p.absmax_a) % alignof(float) != 0)
    return cudaErrorMisalignedAddress;
  // A wrong kernel leaves out the last group, whose rows of d keep their old values.
  if (fault == test::Fault::wrong && faulty_rows == TileM) --p.groups.count;
  const GroupedDp4aArguments product = {p.groups,          p.a,      p.a_stride,  p.b,
                                        p.b_stride,        p.b_step, p.d,         p.d_stride,
                                        p.d_column_stride, p.n,      p.k,         p.absmax_a,
                                        p.absmax_b,        p.bias,   p.bias_type, p.scalar_b};
  if (const cudaError_t status = launch_grouped_dp4a(output, product, stream);
      status != cudaSuccess)
    return status;
  return cudaGetLastError();
}

template <Code code, int TileM, int TileN, int TileK>
GroupedFusedVariant grouped_variant() {
  constexpr std::size_t shared_bytes = 48 << 10;
  return {TileM,        TileN,        TileK == 128 ? 0 : TileK,
          shared_bytes, no_workspace, launch_groups<code, shared_bytes, TileM>};
}

// Each call of show_fused_products() gets its own copies of the kernel tables. Anything that was
// learned of earlier kernels then does not apply to the new ones.
template <class Variant>
std::span<const Variant> if_shown(std::span<const Variant> all, std::string_view& why) {
  if (shown) {
    static std::mutex mutex;
    static std::map<std::pair<int, const Variant*>, std::vector<Variant>> tables;
    const std::lock_guard lock(mutex);
    std::vector<Variant>& table = tables[{showings, all.data()}];
    if (table.empty()) table.assign(all.begin(), all.end());
    return table;
  }
  why = "the emulated device shows its fused products on demand";
  return {};
}

template <Code code>
std::span<const FusedVariant> variants_of_8x(std::string_view& why_none) noexcept {
  static const FusedVariant all[] = {
      fused_skinny,
#define FUSED_SM80(m, n, k, cluster, time, ...) cannot_hang(variant<code, m, n, k, cluster>(time)),
#include "gemm/int8/cuda/fused/shapes.def"
  };
  return if_shown(std::span<const FusedVariant>(all), why_none);
}

template <Code code>
std::span<const GroupedFusedVariant> grouped_variants_of_8x(std::string_view& why_none) noexcept {
  static const GroupedFusedVariant all[] = {
#define GROUPED_SM80(m, n, k, ...) cannot_hang(grouped_variant<code, m, n, k>()),
#include "gemm/int8/cuda/fused/shapes.def"
  };
  return if_shown(std::span<const GroupedFusedVariant>(all), why_none);
}

}  // namespace

std::span<const FusedVariant> built_for_sm80(std::string_view& why_none) noexcept {
  return variants_of_8x<Code::sm80>(why_none);
}

std::span<const FusedVariant> built_for_sm120(std::string_view& why_none) noexcept {
  return variants_of_8x<Code::sm120>(why_none);
}

std::span<const FusedVariant> built_for_sm90(std::string_view& why_none) noexcept {
  // Tests validate the kernels with tiles of 128 rows, so only the smaller tiles are marked as seen
  // in a record.
  static const FusedVariant all[] = {
      seen(fused_skinny),
#define FUSED_SM90(m, n, k, cluster, time, ...)               \
  m < 128 ? seen(variant<Code::sm90, m, n, k, cluster>(time)) \
          : variant<Code::sm90, m, n, k, cluster>(time),
#include "gemm/int8/cuda/fused/shapes.def"
  };
  return if_shown(std::span<const FusedVariant>(all), why_none);
}

std::span<const FusedVariant> rotating_built_for_sm90(std::string_view& why_none) noexcept {
  constexpr std::size_t shared_bytes = 48 << 10;
  static const FusedVariant all[] = {
#define ROTATED_SM90(m, n, k, cluster, ...)                                  \
  seen(FusedVariant{m, n, 0, cluster, shared_bytes, rotated_workspace_bytes, \
                    launch_rotated<Code::sm90, shared_bytes, m>}),
#include "gemm/int8/cuda/fused/shapes.def"
  };
  return if_shown(std::span<const FusedVariant>(all), why_none);
}

std::span<const FusedVariant> built_for_sm100(std::string_view& why_none) noexcept {
  static const FusedVariant all[] = {
      fused_skinny,
#define FUSED_SM100(m, n, k, cluster, time) variant<Code::sm100, m, n, k, cluster>(time),
#include "gemm/int8/cuda/fused/shapes.def"
  };
  return if_shown(std::span<const FusedVariant>(all), why_none);
}

std::span<const GroupedFusedVariant> grouped_built_for_sm80(std::string_view& why_none) noexcept {
  return grouped_variants_of_8x<Code::sm80>(why_none);
}

std::span<const GroupedFusedVariant> grouped_built_for_sm120(std::string_view& why_none) noexcept {
  return grouped_variants_of_8x<Code::sm120>(why_none);
}

std::span<const GroupedFusedVariant> grouped_built_for_sm90(std::string_view& why_none) noexcept {
  static const GroupedFusedVariant all[] = {
#define GROUPED_SM90(m, n, k, ...) seen(grouped_variant<Code::sm90, m, n, k>()),
#include "gemm/int8/cuda/fused/shapes.def"
  };
  return if_shown(std::span<const GroupedFusedVariant>(all), why_none);
}

}  // namespace products::cuda

}  // namespace switchback
