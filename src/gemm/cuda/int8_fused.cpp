// SPDX-License-Identifier: Apache-2.0
// Engine zone: the product whose epilogue dequantizes: no int32 leaves the multiprocessors. Written
// and read once more, they cost M·N·8 bytes: on an H200 about what int8 gains over bf16 at K =
// 2048.
//
// Nobody vouches for a kernel on a machine it never ran on: the engine is never chosen by default.
// A tuner tries its candidates apart from its own process, proves them, and only then times them.
#include <fmt/format.h>

#include <limits>

#include "core/check.hpp"
#include "core/cuda/elementwise.hpp"
#include "core/cuda/status.hpp"
#include "gemm/cuda/fused.hpp"
#include "gemm/cuda/int8_engines.hpp"
#include "gemm/cuda/int8_operands.hpp"

namespace switchback::gemm_int8::SWITCHBACK_CUDA_NS {

namespace {

namespace products = products::SWITCHBACK_CUDA_NS;
using core::SWITCHBACK_CUDA_NS::check;
using core::SWITCHBACK_CUDA_NS::CurrentDevice;
using core::SWITCHBACK_CUDA_NS::Runtime;
using core::SWITCHBACK_CUDA_NS::runtime;

// What its memory accesses move at a time.
constexpr std::int64_t access_bytes = 16;

std::string_view unavailable(const ContextState& state) {
  std::string_view why;
  (void)products::fused_variants(runtime(state).compute_capability(), why);
  return why;
}

std::string_view rejects(const GemmProblem& p) {
  const auto element = static_cast<std::int64_t>(dtype_size_bytes(p.output));
  constexpr std::int64_t most = std::numeric_limits<int>::max();
  if (p.scale == ScaleMode::none) return "it has no int32 output";
  if (p.k == 0) return "k is 0";
  if (p.m > most || p.n > most) return "m or n is 2^31 or more";
  if (p.alignment != access_bytes) return "an operand's address is no multiple of 16 bytes";
  if (p.n * element % access_bytes != 0) return "the bytes of a row of d are no multiple of 16";
  if (p.stride_d * element % access_bytes != 0)
    return "the bytes between rows of d are no multiple of 16";
  return {};
}

std::span<const products::FusedVariant> variants(const ContextState& state) {
  std::string_view why;
  return products::fused_variants(runtime(state).compute_capability(), why);
}

GemmConfig config_of(const products::FusedVariant& variant) {
  GemmConfig config;
  config.engine = EngineId::fused;
  config.mc = variant.tile_m;
  config.nc = variant.tile_n;
  config.cluster = variant.cluster;
  return config;
}

const products::FusedVariant* find_variant(const ContextState& state, const GemmConfig& config) {
  for (const products::FusedVariant& variant : variants(state))
    if (config_of(variant) == config) return &variant;
  return nullptr;
}

GemmConfig default_config(const GemmProblem&, const ContextState& state) {
  return config_of(variants(state).front());
}

void candidates(const GemmProblem&, const ContextState& state, std::vector<GemmConfig>& out) {
  for (const products::FusedVariant& variant : variants(state))
    out.push_back(config_of(variant));
}

std::string refuses_config(const GemmProblem&, const GemmConfig& config,
                           const ContextState& state) {
  if (find_variant(state, config) != nullptr) return {};
  return fmt::format("this build has no kernel of tiles {}x{} in clusters of {}", config.mc,
                     config.nc, config.cluster);
}

void run(ContextState& state, const GemmProblem& p, const GemmConfig& config,
         const GemmOperands& o) {
  Runtime& device = runtime(state);
  const products::FusedVariant* variant = find_variant(state, config);
  if (variant == nullptr)
    core::fail(Status::unsupported, "engine 'fused': {}", refuses_config(p, config, state));
  const CurrentDevice current(device.index());
  core::Workspace::Frame frame(state.workspace);
  // Rows of its tiles that a has not are not read: only the inner dimension needs zeros.
  const products::StagedCodes a = products::stage(frame, o.a, p.m, p.k, p.stride_a, p.m);
  const products::StagedCodes b = products::stage_b(frame, p, o);
  const bool widens_bias = p.has_bias && p.bias != DType::f32;
  auto* bias = widens_bias ? frame.take<float>(p.n) : nullptr;
  const products::FusedArguments arguments = {
      a.data,
      b.data,
      o.d,
      o.absmax_a,
      o.absmax_b,
      widens_bias ? bias : static_cast<const float*>(o.bias),
      static_cast<int>(p.m),
      static_cast<int>(p.n),
      static_cast<int>(products::padded_k(p.k)),
      a.stride,
      b.stride,
      p.stride_d,
      p.scale == ScaleMode::row_scalar,
      device.info().multiprocessors};
  auto* workspace = frame.take<std::byte>(
      static_cast<std::int64_t>(variant->workspace_bytes(p.output, arguments)));
  // All memory is there: from here on work is queued.
  products::queue_copy(device, a);
  products::queue_copy(device, b);
  if (widens_bias)
    core::SWITCHBACK_CUDA_NS::convert_matrix(device, {o.bias, p.bias, 1, p.n, p.n},
                                             {bias, DType::f32, 1, p.n, p.n}, false);
  check(variant->launch(p.output, arguments, workspace, device.cuda_stream()), "kernel fused");
}

}  // namespace

const Engine fused_engine = {
    EngineId::fused,         "fused",        unavailable, rejects, products::packed_bytes,
    products::pack,          default_config, candidates,  run,     EngineId::cublaslt,
    products::packed_stride, refuses_config, nullptr,     true};

}  // namespace switchback::gemm_int8::SWITCHBACK_CUDA_NS
