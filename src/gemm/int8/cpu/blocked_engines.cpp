// SPDX-License-Identifier: Apache-2.0
// Engine zone: whether a tile kernel can run here, and the configurations of its engine.
#include "gemm/int8/cpu/blocked_engines.hpp"

#include <algorithm>

#include "gemm/int8/cpu/blocked_product.hpp"

namespace switchback::gemm_int8 {

namespace {

// Up to this many rows of A it is faster to read B in place than to pack it for one call. AVX-512
// VNNI, 2 Zen 5 cores, K = N = 4096, in ms:
//    rows  in place  packed in the call  packed before
//      16       0.8                 1.5           0.45
//      64       2.1                 2.3            1.5
//    1024        28                  21             20
//
// The two ways take the same time at about 95 rows.
constexpr std::int64_t plain_rows = 96;

// The most columns of a block of d: 64 to 512 measured within 1 %; fewer make more tasks for more
// threads.
constexpr std::int64_t most_cols = 256;
// A single thread takes all columns if A has this many times the size of the second-level cache, to
// load A only once: 3 to 5 % faster on a Zen 5 core at 2048 and 4096 rows of 1408 and 4096 codes.
// On two cores this gained nothing or lost 3 %.
constexpr std::int64_t far_a = 4;
constexpr std::int64_t tasks_per_thread = 4;
constexpr std::int64_t typical_l2_bytes = std::int64_t{1} << 20;

std::int64_t l2_bytes() {
  const auto cached = static_cast<std::int64_t>(core::cpu_caches().l2_bytes);
  return cached > 0 ? cached : typical_l2_bytes;
}

// The limit on the rows of a block of d is never below this number, even if the cache does not hold
// the codes of that many rows of A.
constexpr std::int64_t least_rows = 168;
// Rows of a block of d, for a kernel that prefers tall blocks (AMX), if K is divided into pieces.
constexpr std::int64_t rows_of_piece = 256;

// The most rows of a block of d: the number that the kernel prefers, unless half the second-level
// cache cannot hold their codes. The rows are then divided evenly, to avoid a last block that is
// much smaller.
std::int64_t most_block_rows(const MicroKernel& kernel, std::int64_t k) {
  return std::clamp<std::int64_t>(l2_bytes() / 2 / std::max<std::int64_t>(k, 1), least_rows,
                                  std::max<std::int64_t>(least_rows, kernel.block_rows));
}

// Whether a kernel that prefers tall blocks (AMX) gets pieces of K, each of which fits into a cache
// together with a block of A. On a Xeon with 2 MiB this was 1.5 to 1.9 times as fast at 128 to 4096
// rows of 12288 and 15360 codes. At 8192 codes it gained nothing, and with fewer it lost.
bool has_tall_pieces(const MicroKernel& kernel, std::int64_t m, std::int64_t k) {
  return kernel.block_rows > least_rows && std::min(m, least_rows) * k >= l2_bytes() / 4 * 3;
}

// The length of a piece of K. A panel of B is read once for every 6 rows, and should stay in half
// of the second-level cache. A longer K is divided into pieces of a quarter of that cache. For each
// piece the sums pass through the cache once (measured: 2 to 3 % at pieces of 512 codes, less with
// longer ones).
std::int64_t default_kc(const MicroKernel& kernel, std::int64_t m, std::int64_t k) {
  if (has_tall_pieces(kernel, m, k))
    return even_block(k, std::max<std::int64_t>(256, l2_bytes() / 8 * 3 / rows_of_piece), 64);
  if (kernel.cols * k <= l2_bytes() / 2) return 0;
  return even_block(k, std::max<std::int64_t>(256, l2_bytes() / 4 / kernel.cols), 64);
}

GemmConfig default_of_one(const MicroKernel& kernel, EngineId id, const GemmProblem& p,
                          const ContextState& state) {
  GemmConfig config;
  config.engine = id;
  const bool packed = p.packed_for != EngineId::none;
  config.weights = packed || p.m > plain_rows ? Weights::packed : Weights::plain;
  if (p.m == 0 || p.n == 0 || p.k == 0) return config;
  if (config.weights == Weights::packed) config.kc = default_kc(kernel, p.m, p.k);
  const std::int64_t threads = state.threads.count();
  const bool tall = config.kc > 0 && has_tall_pieces(kernel, p.m, p.k);
  const std::int64_t most_rows = tall ? rows_of_piece : most_block_rows(kernel, p.k);
  config.mc = even_block(p.m, most_rows, kernel.rows);
  const bool far = threads == 1 && config.weights == Weights::packed && config.kc == 0 &&
                   p.m * p.k > far_a * l2_bytes();
  // Makes blocks narrower, then shorter, until every thread has several blocks.
  const std::int64_t wanted = threads == 1 ? 1 : threads * tasks_per_thread;
  const std::int64_t col_blocks = ceil_div(wanted, ceil_div(p.m, config.mc));
  config.nc =
      even_block(p.n, std::min(far ? p.n : most_cols, ceil_div(p.n, col_blocks)), kernel.cols);
  const std::int64_t row_blocks = ceil_div(wanted, ceil_div(p.n, config.nc));
  config.mc = even_block(p.m, std::min(most_rows, ceil_div(p.m, row_blocks)), kernel.rows);
  // The rows of a small product are not divided, because each block would read all of B again.
  if (p.m <= 8 * kernel.rows) config.mc = even_block(p.m, most_rows, kernel.rows);
  return config;
}

}  // namespace

GemmConfig blocked_default(const MicroKernel& kernel, EngineId id, const GemmProblem& p,
                           const ContextState& state) {
  if (!p.has_groups()) return default_of_one(kernel, id, p, state);
  const GemmProblem one = mean_problem(p);
  GemmConfig config = default_of_one(kernel, id, one, state);
  if (one.n == 0 || one.k == 0) return config;
  // All groups together must give every thread several blocks; a single group need not.
  const std::int64_t threads = state.threads.count();
  const std::int64_t wanted = threads == 1 ? 1 : threads * tasks_per_thread;
  const std::int64_t most_rows = most_block_rows(kernel, one.k);
  const std::int64_t row_blocks = p.groups * ceil_div(one.m, most_rows);
  config.mc = most_rows;
  config.nc = even_block(one.n, std::min(most_cols, ceil_div(one.n, ceil_div(wanted, row_blocks))),
                         kernel.cols);
  return config;
}

std::string_view kernel_unavailable(const MicroKernel& kernel, const ContextState& state) {
  if (!kernel.is_built()) return kernel.reasons.not_built;
  if (!core::cpu_features().has(kernel.isa)) return kernel.reasons.not_there;
  if (!state.features.has(kernel.isa)) return kernel.reasons.capped;
  return {};
}

void blocked_candidates(const MicroKernel& kernel, EngineId id, const GemmProblem& problem,
                        const ContextState& state, std::vector<GemmConfig>& out) {
  const GemmProblem p = problem.has_groups() ? mean_problem(problem) : problem;
  const GemmConfig by_default = default_of_one(kernel, id, p, state);
  const auto add = [&](GemmConfig config) {
    config.mc = even_block(p.m, config.mc, kernel.rows);
    config.nc = even_block(p.n, config.nc, kernel.cols);
    if (config.kc >= p.k) config.kc = 0;
    for (const GemmConfig& other : out)
      if (other == config) return;
    out.push_back(config);
  };
  out.push_back(by_default);
  if (p.m == 0 || p.n == 0 || p.k == 0) return;
  const bool given_packed = p.packed_for != EngineId::none;
  for (const Weights weights : {Weights::packed, Weights::plain}) {
    if (weights == Weights::plain && given_packed) continue;
    for (const std::int64_t mc : {48, 96, 168, 336, 512})
      for (const std::int64_t nc : {64, 128, 256, 512})
        add({id, weights, mc, nc, weights == Weights::packed ? by_default.kc : 0, 0});
  }
  for (const std::int64_t kc : {0, 512, 1024, 2048})
    add({id, Weights::packed, by_default.mc, by_default.nc, kc, 0});
  // One thread: for products so small that waking the other threads costs more.
  if (state.threads.count() > 1 && p.m * p.n * p.k < (std::int64_t{1} << 24)) {
    GemmConfig alone = by_default;
    alone.threads = 1;
    add(alone);
  }
}

}  // namespace switchback::gemm_int8
