// SPDX-License-Identifier: Apache-2.0
// Engine zone: dnnl_sgemm. It takes its packing buffers from the heap in every call; the library
// offers no other way.
#include "gemm/floating/cpu/f32.hpp"
#include "gemm/floating/cpu/onednn.hpp"

#if defined(SWITCHBACK_HAVE_ONEDNN)
#include <oneapi/dnnl/dnnl.h>
#endif

namespace switchback::floating {

namespace {

#if defined(SWITCHBACK_HAVE_ONEDNN)

void core_sgemm(ContextState& context, const F32Gemm& g, const Config&) {
  const core::ScopedLibraryThreads threads(context.threads.count());
  dnnl_status_t status = dnnl_success;
  // One task runs on the calling thread, in the default floating point environment.
  context.threads.for_each(1, [&](std::int64_t, int) {
    status = dnnl_sgemm(g.transpose_a ? 'T' : 'N', g.transpose_b ? 'T' : 'N', g.m, g.n, g.k, 1.0f,
                        g.a, g.lda, g.b, g.ldb, g.accumulate ? 1.0f : 0.0f, g.d, g.ldd);
  });
  check_onednn(status, "dnnl_sgemm");
}

void run(ContextState& context, const Problem& problem, const Config& config,
         const Operands& operands) {
  run_on_f32(context, problem, config, operands, core_sgemm);
}

#else

void run(ContextState&, const Problem&, const Config&, const Operands&) {}

#endif

}  // namespace

// Sizes are 64-bit numbers there, and 16-bit inputs are widened before it sees them.
const Engine onednn_sgemm_engine = {
    .id = EngineId::onednn_sgemm,
    .name = "onednn_sgemm",
    .unavailable = onednn_unavailable,
    .run = run,
};

}  // namespace switchback::floating
