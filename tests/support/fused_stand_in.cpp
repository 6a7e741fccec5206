// SPDX-License-Identifier: Apache-2.0
// In place of CUTLASS's kernels on the emulated device: holds their arguments to what fused.hpp
// says, and computes with the backend's own kernels through int32.
#include <cstdint>

#include "gemm/cuda/fused.hpp"
#include "gemm/cuda/kernels.hpp"
#include "support/device_memory.hpp"

namespace switchback {

namespace {
bool shown = false;
}

void test::show_fused_products(bool show) noexcept {
  shown = show;
}

namespace products::SWITCHBACK_CUDA_NS {

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
         p.absmax_a != nullptr && p.absmax_b != nullptr && p.multiprocessors > 0;
}

std::size_t workspace_bytes(DType, const FusedArguments& p) {
  return static_cast<std::size_t>(p.m) * static_cast<std::size_t>(p.n) * sizeof(std::int32_t);
}

cudaError_t launch(DType output, const FusedArguments& p, void* workspace, cudaStream_t stream) {
  if (!keeps_the_rules(output, p)) return cudaErrorNotSupported;
  auto* sums = static_cast<std::int32_t*>(workspace);
  const Dp4aArguments product = {p.a, p.b, sums, p.m, p.n, p.k, p.a_stride, p.b_stride, p.n};
  if (const cudaError_t status = launch_dp4a(product, stream); status != cudaSuccess) return status;
  const EpilogueArguments epilogue = {sums,       p.n,        p.d,    p.d_stride, p.m,       p.n,
                                      p.absmax_a, p.absmax_b, p.bias, DType::f32, p.scalar_b};
  return launch_epilogue(output, epilogue, p.multiprocessors, stream);
}

}  // namespace

std::span<const FusedVariant> fused_variants(int, std::string_view& why_none) noexcept {
  static constexpr FusedVariant all[] = {{128, 256, 2, workspace_bytes, launch},
                                         {64, 128, 1, workspace_bytes, launch}};
  why_none = shown ? "" : "the emulated device shows its fused products on demand";
  return shown ? std::span<const FusedVariant>(all) : std::span<const FusedVariant>();
}

}  // namespace products::SWITCHBACK_CUDA_NS

}  // namespace switchback
