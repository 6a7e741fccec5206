// SPDX-License-Identifier: Apache-2.0
// Engine zone: f32 products by oneDNN's dnnl_sgemm. Every call allocates its packing buffers from
// the heap, and oneDNN offers no other way. On one thread they are allocated before anything is
// written. If that fails, d is unchanged, and the product is computed without memory. With several
// threads each one allocates its own buffers, so some may have written when another one fails. Then
// d is computed again in parts, one thread for each part. A product that adds to d is cut into
// these parts from the beginning.
#include <algorithm>
#include <atomic>
#include <cstdint>

#include "gemm/floating/cpu/f32.hpp"
#include "gemm/floating/cpu/onednn.hpp"

#if defined(SWITCHBACK_HAVE_ONEDNN)
#include <oneapi/dnnl/dnnl.h>
#endif

namespace switchback::floating {

namespace {

#if defined(SWITCHBACK_HAVE_ONEDNN)

dnnl_status_t sgemm(const F32Gemm& g) {
  return dnnl_sgemm(g.transpose_a ? 'T' : 'N', g.transpose_b ? 'T' : 'N', g.m, g.n, g.k, 1.0f, g.a,
                    g.lda, g.b, g.ldb, g.accumulate ? 1.0f : 0.0f, g.d, g.ldd);
}

// How d is cut into `down` times `across` parts.
struct Cut {
  std::int64_t down = 1;
  std::int64_t across = 1;
};

// Cuts d into one part for each thread. The cut that reads the least of a and b wins: nearly square
// parts.
Cut cut_of(const F32Gemm& g, std::int64_t threads) {
  Cut best{threads, 1};
  const auto reads = [&](const Cut& cut) { return g.m * cut.across + g.n * cut.down; };
  for (std::int64_t across = 1; across <= threads; ++across)
    if (const Cut cut{threads / across, across}; threads % across == 0 && reads(cut) < reads(best))
      best = cut;
  return best;
}

// The product that computes part `index` of the cut. It has no rows or no columns if d is too
// small.
F32Gemm part_of(F32Gemm g, const Cut& cut, std::int64_t index) {
  // Parts have whole vectors and cache lines of d, so that threads do not share one.
  constexpr std::int64_t line = 16;
  const auto share = [](std::int64_t size, std::int64_t parts) {
    return ((size + parts - 1) / parts + line - 1) / line * line;
  };
  const std::int64_t rows = share(g.m, cut.down);
  const std::int64_t cols = share(g.n, cut.across);
  const std::int64_t row = std::min(index / cut.across * rows, g.m);
  const std::int64_t col = std::min(index % cut.across * cols, g.n);
  g.a += g.transpose_a ? row : row * g.lda;
  g.b += g.transpose_b ? col * g.ldb : col;
  g.d += row * g.ldd + col;
  g.m = std::min(rows, g.m - row);
  g.n = std::min(cols, g.n - col);
  return g;
}

// Computes each part of d on one thread, without memory if none is available.
void run_parts(ContextState& context, const F32Gemm& g) {
  const Cut cut = cut_of(g, context.threads.count());
  std::atomic<dnnl_status_t> failure = dnnl_success;
  context.threads.for_each(cut.down * cut.across, [&](std::int64_t i, int) {
    const F32Gemm part = part_of(g, cut, i);
    if (part.m <= 0 || part.n <= 0) return;
    const core::ScopedLibraryThreads one(1);
    const dnnl_status_t status = sgemm(part);
    if (status == dnnl_out_of_memory)
      multiply_without_memory(part);
    else if (status != dnnl_success)
      failure = status;
  });
  check_onednn(failure, "dnnl_sgemm");
}

void core_sgemm(ContextState& context, const F32Gemm& g, const Config&) {
  const int threads = context.threads.count();
  if (!g.accumulate || threads == 1) {
    const core::ScopedLibraryThreads library_threads(threads);
    dnnl_status_t status = dnnl_success;
    // A single task runs on the calling thread, in the default floating point environment.
    context.threads.for_each(1, [&](std::int64_t, int) { status = sgemm(g); });
    if (status != dnnl_out_of_memory) return check_onednn(status, "dnnl_sgemm");
  }
  run_parts(context, g);
}

void run(ContextState& context, const Problem& problem, const Config& config,
         const Operands& operands) {
  run_on_f32(context, problem, config, operands, core_sgemm);
}

#else

void run(ContextState&, const Problem&, const Config&, const Operands&) {}

#endif

}  // namespace

// Accepts every problem: dnnl_sgemm's sizes are 64-bit numbers, and 16-bit inputs are widened
// first.
const Engine onednn_sgemm_engine = {
    .id = EngineId::onednn_sgemm,
    .name = "onednn_sgemm",
    .unavailable = onednn_unavailable,
    .run = run,
};

}  // namespace switchback::floating
