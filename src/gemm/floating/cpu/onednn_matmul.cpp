// SPDX-License-Identifier: Apache-2.0
// Engine zone: oneDNN's matmul primitive. It multiplies f32, and bf16 if the CPU multiplies bf16;
// other types are widened to f32 first. Bias and accumulation are fused.
#include "gemm/floating/cpu/f32.hpp"
#include "gemm/floating/cpu/onednn.hpp"

namespace switchback::floating {

namespace {

#if defined(SWITCHBACK_HAVE_ONEDNN)

LayoutB layout_of(const Config& config) {
  return config.pack_b ? LayoutB::packed_here : LayoutB::plain;
}

void core_matmul(ContextState& context, const F32Gemm& g, const Config& config) {
  Problem p;
  p.m = g.m;
  p.n = g.n;
  p.k = g.k;
  p.lda = g.lda;
  p.ldb = g.ldb;
  p.ldd = g.ldd;
  p.transpose_a = g.transpose_a;
  p.transpose_b = g.transpose_b;
  p.accumulate = g.accumulate;
  p.threads = context.threads.count();
  multiply(context, p, layout_of(config), g.a, g.b, g.d, nullptr);
}

void run(ContextState& context, const Problem& problem, const Config& config,
         const Operands& operands) {
  const bool native = problem.input == DType::f32 ||
                      (problem.input == DType::bf16 && onednn_multiplies_bf16(problem.k));
  if (!native) return run_on_f32(context, problem, config, operands, core_matmul);
  core::Workspace::Frame frame(context.workspace);
  const float* bias = bias_as_f32(context, frame, problem, operands);
  multiply(context, problem, layout_of(config), operands.a, operands.b, operands.d, bias);
}

#else

void run(ContextState&, const Problem&, const Config&, const Operands&) {}

#endif

}  // namespace

// oneDNN's matmul accepts any size (64-bit counts), stride and transposition. If its fast kernels
// do not support a problem (a leading dimension wider than the matrix), it uses the kernels of
// dnnl_sgemm.
const Engine onednn_matmul_engine = {
    .id = EngineId::onednn_matmul,
    .name = "onednn_matmul",
    .packs_b = true,
    .unavailable = onednn_unavailable,
    .run = run,
};

}  // namespace switchback::floating
