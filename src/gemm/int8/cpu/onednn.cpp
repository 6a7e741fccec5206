// SPDX-License-Identifier: Apache-2.0
// Engine zone: oneDNN's dnnl_gemm_s8s8s32, followed by our epilogue.
//
// Without VNNI its kernels add pairs of products in 16 bits. On full-range codes these saturate,
// and the sums are wrong. So this engine requires VNNI. It asks oneDNN which instructions it would
// use, because ONEDNN_MAX_CPU_ISA in the environment can disable VNNI for oneDNN on a CPU that has
// it.
#include <oneapi/dnnl/dnnl.h>

#include <algorithm>

#include "core/check.hpp"
#include "gemm/int8/cpu/blocked_engines.hpp"
#include "gemm/int8/cpu/epilogue.hpp"
#include "gemm/int8/engine.hpp"

namespace switchback::gemm_int8 {

namespace {

// The tile kernel whose epilogue is used.
constexpr const MicroKernel& kernel = avx512_vnni_kernel;

std::string_view unavailable(const ContextState& state) {
  if (kernel.is_built() && !core::cpu_features().has(kernel.isa))
    return "the CPU has no AVX-512 VNNI, without which oneDNN's int8 sums saturate";
  const std::string_view reason = kernel_unavailable(kernel, state);
  if (!reason.empty()) return reason;
  // oneDNN's instruction set levels are sets of features: a higher level contains the bits of the
  // lower ones.
  static const bool vnni = (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_vnni) ==
                           dnnl_cpu_isa_avx512_core_vnni;
  if (!vnni)
    return "oneDNN is capped below avx512_core_vnni (ONEDNN_MAX_CPU_ISA), where its int8 sums "
           "saturate";
  return {};
}

std::size_t packed_bytes(std::int64_t n, std::int64_t k) {
  return static_cast<std::size_t>(n) * static_cast<std::size_t>(k);
}

// oneDNN reads B in place; the packed form is a copy of B without gaps between rows.
void pack(ContextState& state, MatrixView<const std::int8_t> b, void* out) {
  state.threads.for_ranges(b.rows, 64, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row)
      std::copy_n(b.data + row * b.stride, b.cols, static_cast<std::int8_t*>(out) + row * b.cols);
  });
}

// A configuration of this engine. Its mc is the number of rows whose int32 sums are computed before
// they are dequantized.
GemmConfig with_rows(std::int64_t rows) {
  GemmConfig config;
  config.engine = EngineId::onednn;
  config.mc = rows;
  return config;
}

// The panel of int32 sums should stay in the last-level cache between oneDNN and the epilogue. It
// takes 4 MiB of that cache.
GemmConfig default_config(const GemmProblem& p, const ContextState&) {
  if (p.output == DType::s32) return with_rows(0);
  const std::int64_t rows = (std::int64_t{4} << 20) / (4 * std::max<std::int64_t>(p.n, 1));
  return with_rows(rows >= p.m ? 0 : std::max<std::int64_t>(64, rows));
}

void candidates(const GemmProblem& p, const ContextState& state, std::vector<GemmConfig>& out) {
  out.push_back(default_config(p, state));
  out.push_back(with_rows(0));
  for (const std::int64_t rows : {128, 512})
    if (rows < p.m) out.push_back(with_rows(rows));
}

// Computes the same int32 sums slowly. dnnl_gemm_s8s8s32 allocates memory during the call, and this
// is for the case that there was none.
void multiply_without_memory(ContextState& state, const GemmProblem& p, const std::int8_t* a,
                             std::int64_t rows, const std::int8_t* b, std::int64_t stride_b,
                             std::int32_t* sums, std::int64_t stride_sums) {
  state.threads.for_each(rows, [&](std::int64_t i, int) {
    for (std::int64_t j = 0; j < p.n; ++j) {
      std::int32_t sum = 0;
      for (std::int64_t l = 0; l < p.k; ++l)
        sum += a[i * p.stride_a + l] * b[j * stride_b + l];
      sums[i * stride_sums + j] = sum;
    }
  });
}

void run(ContextState& state, const GemmProblem& p, const GemmConfig& config,
         const GemmOperands& o) {
  core::Workspace::Frame frame(state.workspace);
  const auto* b = o.packed_b != nullptr ? static_cast<const std::int8_t*>(o.packed_b) : o.b;
  const std::int64_t stride_b = o.packed_b != nullptr ? p.k : p.stride_b;
  const std::int64_t mc = config.mc == 0 ? p.m : std::min(config.mc, p.m);
  const std::int64_t stride_sums = (p.n + 63) / 64 * 64;
  auto* sums = frame.take<std::int32_t>(mc * stride_sums);
  const EpilogueScales scales = epilogue_scales(frame, p, o);
  const core::ScopedLibraryThreads library_threads(
      config.threads == 0
          ? state.threads.count()
          : static_cast<int>(std::min<std::int64_t>(config.threads, state.threads.count())));

  for (std::int64_t row = 0; row < p.m; row += mc) {
    const std::int64_t rows = std::min(mc, p.m - row);
    const std::int32_t no_offset = 0;
    dnnl_status_t status = dnnl_success;
    state.threads.for_each(1, [&](std::int64_t, int) {
      status =
          dnnl_gemm_s8s8s32('N', 'T', 'F', rows, p.n, p.k, 1.0f, o.a + row * p.stride_a, p.stride_a,
                            0, b, stride_b, 0, 0.0f, sums, stride_sums, &no_offset);
    });
    if (status == dnnl_out_of_memory)
      multiply_without_memory(state, p, o.a + row * p.stride_a, rows, b, stride_b, sums,
                              stride_sums);
    else if (status != dnnl_success)
      core::fail(Status::internal, "oneDNN: dnnl_gemm_s8s8s32 failed with status {}",
                 static_cast<int>(status));
    state.threads.for_ranges(rows, 16, [&](std::int64_t begin, std::int64_t end, int) {
      run_epilogue(kernel, p, o.d, scales, {row + begin, 0, end - begin, p.n},
                   sums + begin * stride_sums, stride_sums);
    });
  }
}

}  // namespace

const Engine onednn_engine = {
    .id = EngineId::onednn,
    .name = "onednn",
    .unavailable = unavailable,
    .layout = EngineId::onednn,
    .packed_bytes = packed_bytes,
    .pack = pack,
    .unpack = unpack_rows,
    .pack_transposed = transpose_rows,
    .default_config = default_config,
    .candidates = candidates,
    .run = run,
};

}  // namespace switchback::gemm_int8
