// SPDX-License-Identifier: Apache-2.0
// Engine zone: the int8 product by cuBLASLt in panels of rows, whose int32 sums stay in the L2
// cache until they are dequantized. Two panels are in flight, on two streams. While one is
// dequantized, which waits for memory, the next one is multiplied.
#include "gemm/int8/cuda/panels.hpp"

#include <algorithm>
#include <array>

#include "core/cuda/status.hpp"
#include "gemm/cuda/engines.hpp"
#include "gemm/int8/cuda/operands.hpp"

namespace switchback::gemm_int8::cuda {

namespace {

namespace products = products::cuda;
using core::cuda::check;
using core::cuda::CurrentDevice;
using core::cuda::Runtime;
using core::cuda::runtime;

constexpr std::int64_t row_multiple = 128;

std::string_view unsupported(const GemmProblem& p, const ContextState&) {
  if (p.k == 0) return "k is 0";
  if (p.output == DType::s32) return "the output is int32: there is nothing to dequantize";
  return {};
}

GemmConfig with_rows(std::int64_t rows) {
  GemmConfig config;
  config.engine = EngineId::cublaslt_panels;
  config.mc = rows;
  return config;
}

// A configuration with the number of rows whose int32 sums take `eighths` eighths of the L2 cache.
GemmConfig with_part_of_l2(const GemmProblem& p, const ContextState& state, std::int64_t eighths) {
  return with_rows(
      panel_rows(p, static_cast<std::int64_t>(state.runtime->info().l2_bytes) / 8 * eighths));
}

// By default the two panels in flight use half of the L2 cache; the other half is for the operands.
GemmConfig default_config(const GemmProblem& p, const ContextState& state) {
  return with_part_of_l2(p, state, 2);
}

void candidates(const GemmProblem& p, const ContextState& state, std::vector<GemmConfig>& out) {
  for (const std::int64_t eighths : {2, 1, 3, 4, 6, 8}) {
    const GemmConfig config = with_part_of_l2(p, state, eighths);
    if (config.mc < p.m) out.push_back(config);
  }
}

Cut cut(const GemmProblem& p, const GemmConfig& config, const ContextState& state) {
  return cut_rows(p, config.mc == 0 ? default_config(p, state).mc : config.mc);
}

std::string invalid_config(const GemmProblem& p, const GemmConfig& config,
                           const ContextState& state) {
  // A configuration that leaves everything to cuBLASLt always runs.
  if (config.cublaslt == CublasLtChoice{}) return {};
  return refuses_panels(p, config, state, cut(p, config, state));
}

std::string provenance(const GemmProblem& p, const GemmConfig& config, const ContextState& state) {
  return products::algorithm_hex(
      runtime(state),
      products::expected_product(p, config, cut(p, config, state).rows, products::padded_n(p.n)));
}

// A stream, with memory for the int32 sums of one panel and for cuBLASLt's workspace.
struct Lane {
  cudaStream_t stream = nullptr;
  std::int32_t* sums = nullptr;
  std::byte* workspace = nullptr;
};

// Lets two streams work at the same time. The second stream starts after the work queued on the
// first, and after the join the first continues after the second. The streams are joined even if a
// panel fails: a capture that was forked and not joined could not be ended.
class Fork {
 public:
  Fork(cudaStream_t first, cudaStream_t second, cudaEvent_t event)
      : first_(first), second_(second), event_(event) {
    check(cudaEventRecord(event_, first_), "cudaEventRecord");
    check(cudaStreamWaitEvent(second_, event_, 0), "cudaStreamWaitEvent");
  }
  ~Fork() {
    if (!joined_ && cudaEventRecord(event_, second_) == cudaSuccess)
      (void)cudaStreamWaitEvent(first_, event_, 0);
  }
  Fork(const Fork&) = delete;
  Fork& operator=(const Fork&) = delete;
  void join() {
    joined_ = true;
    check(cudaEventRecord(event_, second_), "cudaEventRecord");
    check(cudaStreamWaitEvent(first_, event_, 0), "cudaStreamWaitEvent");
  }

 private:
  cudaStream_t first_;
  cudaStream_t second_;
  cudaEvent_t event_;
  bool joined_ = false;
};

void run(ContextState& state, const GemmProblem& p, const GemmConfig& config,
         const GemmOperands& o) {
  run_panels(state, p, config, o, cut(p, config, state), 2);
}

}  // namespace

Cut cut_rows(const GemmProblem& p, std::int64_t rows) {
  const std::int64_t m = products::padded_m(p.m);
  Cut cut;
  cut.rows = std::min(products::padded_m(rows), m);
  cut.panels = (m + cut.rows - 1) / cut.rows;
  cut.rest = m - (cut.panels - 1) * cut.rows;
  cut.last_rows = std::min(std::max(cut.rest, products::padded_m(1)), m);
  return cut;
}

std::int64_t panel_rows(const GemmProblem& p, std::int64_t bytes) {
  const std::int64_t rows = bytes / (4 * products::padded_n(std::max<std::int64_t>(p.n, 1)));
  return std::max(row_multiple, rows / row_multiple * row_multiple);
}

std::int64_t most_sums_bytes(const ContextState& state) {
  constexpr std::int64_t most = std::int64_t{256} << 20;
  constexpr std::size_t part_of_memory = 64;
  return std::min(most,
                  static_cast<std::int64_t>(state.runtime->info().memory_bytes / part_of_memory));
}

std::string refuses_panels(const GemmProblem& p, const GemmConfig& config,
                           const ContextState& state, const Cut& parts) {
  std::string reason;
  for (const std::int64_t rows : {parts.rows, parts.last_rows})
    if (reason.empty())
      reason = products::refusal(
          runtime(state), products::expected_product(p, config, rows, products::padded_n(p.n)));
  return reason;
}

void run_panels(ContextState& state, const GemmProblem& p, const GemmConfig& config,
                const GemmOperands& o, const Cut& parts, int streams) {
  Runtime& device = runtime(state);
  const CurrentDevice current(device.index());
  core::Workspace::Frame frame(state.workspace);
  const products::StagedCodes a = products::stage_a(frame, p, o);
  const products::StagedCodes b = products::stage_b(frame, p, o);
  const std::int64_t m = products::padded_m(p.m);
  const std::int64_t n = products::padded_n(p.n);
  const std::int64_t rows = parts.rows;
  const std::int64_t panels = parts.panels;
  const std::int64_t last_rows = parts.last_rows;

  products::Plans& plans = products::Plans::of(device);
  std::array<Lane, 2> lanes;
  const int lanes_used = panels > 1 ? streams : 1;
  for (int i = 0; i < lanes_used; ++i) {
    Lane& lane = lanes[static_cast<std::size_t>(i)];
    lane.stream = i == 0 ? device.cuda_stream() : device.side_stream();
    lane.sums = frame.take<std::int32_t>(rows * n);
  }
  const auto plan_of = [&](std::int64_t first, std::int64_t count) -> products::Plan& {
    return plans.plan(products::panel_product(a, b, count, p.n, p.k, n, a.data + first * a.stride,
                                              lanes[0].sums, config));
  };
  // Panels start at multiples of `rows`, so their operands have the same alignment, except for the
  // last panel, which may be moved up.
  products::Plan& whole = plan_of(0, rows);
  products::Plan& last = plan_of(m - last_rows, last_rows);
  const auto workspace_bytes =
      static_cast<std::int64_t>(std::max(whole.workspace_bytes(), last.workspace_bytes()));
  for (int i = 0; i < lanes_used; ++i)
    lanes[static_cast<std::size_t>(i)].workspace = frame.take<std::byte>(workspace_bytes);

  // All memory is allocated. From here on work is queued on the streams.
  if (device.is_dry_run()) return;
  products::queue_copy(device, a);
  products::queue_copy(device, b);
  const auto queue_panel = [&](std::int64_t i, const Lane& lane) {
    const bool is_last = i == panels - 1;
    const std::int64_t count = is_last ? last_rows : rows;
    const std::int64_t first = is_last ? m - last_rows : i * rows;
    (is_last ? last : whole)
        .run(plans.handle(), b.data, a.data + first * a.stride, lane.sums, nullptr, lane.workspace,
             lane.stream);
    // rows without the padding of a small m
    const std::int64_t real = std::min(count, p.m - first);
    products::queue_epilogue(device, p, o, lane.sums, n, first, real, lane.stream);
  };
  if (lanes_used == 1) {
    for (std::int64_t i = 0; i < panels; ++i)
      queue_panel(i, lanes[0]);
    return;
  }
  Fork fork(lanes[0].stream, lanes[1].stream, device.side_event());
  // If the last panel overlaps the panel before it, it runs after that panel, on the same stream.
  const bool overlaps = parts.rest < last_rows;
  for (std::int64_t i = 0; i < panels; ++i) {
    const std::int64_t turn = i == panels - 1 && overlaps ? i - 1 : i;
    queue_panel(i, lanes[static_cast<std::size_t>(turn % 2)]);
  }
  fork.join();
}

const Engine cublaslt_panels_engine = {
    .id = EngineId::cublaslt_panels,
    .name = "cublaslt_panels",
    .unavailable = products::cublaslt_unavailable,
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
    .config_parts = part_cublaslt,
    .provenance = provenance,
    .scratch_bytes = products::library_workspace,
    .run = run,
};

}  // namespace switchback::gemm_int8::cuda
