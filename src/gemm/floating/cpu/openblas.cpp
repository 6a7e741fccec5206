// SPDX-License-Identifier: Apache-2.0
// Engine zone: f32 products by cblas_sgemm of OpenBLAS.
#include <fmt/format.h>

#include "gemm/floating/cpu/f32.hpp"

#if defined(SWITCHBACK_HAVE_OPENBLAS)
#include <cblas.h>
#endif

#include <algorithm>
#include <limits>

namespace switchback::floating {

namespace {

#if defined(SWITCHBACK_HAVE_OPENBLAS)

std::string unavailable() {
  return {};
}

constexpr std::int64_t largest = std::numeric_limits<blasint>::max();

void core_sgemm(ContextState& context, const F32Gemm& g, const Config&) {
  const core::ScopedLibraryThreads threads(context.threads.count());
  // A single task runs on the calling thread, in the default floating point environment.
  context.threads.for_each(1, [&](std::int64_t, int) {
    cblas_sgemm(CblasRowMajor, g.transpose_a ? CblasTrans : CblasNoTrans,
                g.transpose_b ? CblasTrans : CblasNoTrans, static_cast<blasint>(g.m),
                static_cast<blasint>(g.n), static_cast<blasint>(g.k), 1.0f, g.a,
                static_cast<blasint>(g.lda), g.b, static_cast<blasint>(g.ldb),
                g.accumulate ? 1.0f : 0.0f, g.d, static_cast<blasint>(g.ldd));
  });
}

void run(ContextState& context, const Problem& problem, const Config& config,
         const Operands& operands) {
  run_on_f32(context, problem, config, operands, core_sgemm);
}

#else

std::string unavailable() {
  return "this build has no OpenBLAS";
}
constexpr std::int64_t largest = std::numeric_limits<std::int32_t>::max();
void run(ContextState&, const Problem&, const Config&, const Operands&) {}

#endif

std::string unsupported(const Problem& p) {
  const std::int64_t size = std::max({p.m, p.n, p.k, p.lda, p.ldb, p.ldd});
  if (size > largest)
    return fmt::format("a size or leading dimension is {}; OpenBLAS supports at most {}", size,
                       largest);
  return {};
}

}  // namespace

const Engine openblas_engine = {
    .id = EngineId::openblas,
    .name = "openblas",
    .unavailable = unavailable,
    .unsupported = unsupported,
    .run = run,
};

}  // namespace switchback::floating
