// SPDX-License-Identifier: Apache-2.0
#include "gemm/int8/cuda/fused/trial.hpp"

#include <algorithm>
#include <array>
#include <compare>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "core/cuda/runtime.hpp"
#include "core/cuda/status.hpp"
#include "gemm/int8/cuda/kernels.hpp"

namespace switchback::products::cuda {

namespace {

using core::cuda::check;
using core::cuda::CurrentDevice;
using core::cuda::Runtime;

// The sizes of a trial. It has more columns than a tile has. Its inner dimension is longer than one
// stage of every pipeline, and the last stage is not full. For kernels for few rows it is longer
// than the stages of all warps.
constexpr int more_columns = 16;
constexpr int default_depth = 144;
constexpr int depth_of_few_rows = 2192;

constexpr std::array both_kinds_of_scales = {false, true};

// Device memory for the operands of a trial, from which pieces are taken in order. Pieces with
// values are copied from the host.
class Operands {
 public:
  Operands(Runtime& device, std::size_t bytes)
      : device_(device), bytes_(bytes), memory_(static_cast<std::byte*>(device.allocate(bytes))) {}
  ~Operands() { device_.release(memory_, bytes_); }
  Operands(const Operands&) = delete;
  Operands& operator=(const Operands&) = delete;

  static constexpr std::size_t size(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

  void* take(std::size_t bytes) {
    void* piece = memory_ + used_;
    used_ += size(bytes);
    return piece;
  }
  template <class T>
  const T* take(const std::vector<T>& values) {
    const std::size_t bytes = values.size() * sizeof(T);
    auto* piece = static_cast<T*>(take(bytes));
    check(
        cudaMemcpyAsync(piece, values.data(), bytes, cudaMemcpyHostToDevice, device_.cuda_stream()),
        "cudaMemcpyAsync");
    return piece;
  }

 private:
  Runtime& device_;
  std::size_t bytes_;
  std::byte* memory_;
  std::size_t used_ = 0;
};

// The operands of a trial, on the host, with pseudo-random values.
struct Values {
  Values(int rows, int columns, int depth, int groups = 1)
      : a(count(rows, depth)),
        b(count(columns, depth) * static_cast<std::size_t>(groups)),
        absmax_a(count(rows, 1)),
        absmax_b(count(columns, groups)),
        bias(count(columns, groups)) {
    for (std::vector<std::int8_t>* codes : {&a, &b})
      for (std::int8_t& code : *codes)
        code = static_cast<std::int8_t>(static_cast<int>(next() % 255) - 127);
    for (std::vector<float>* floats : {&absmax_a, &absmax_b, &bias})
      for (float& value : *floats)
        value = static_cast<float>(next() % 4096) / 512.0f;
  }
  static std::size_t count(int rows, int columns) {
    return static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns);
  }
  [[nodiscard]] std::size_t bytes() const {
    return Operands::size(a.size()) + Operands::size(b.size()) +
           Operands::size(absmax_a.size() * sizeof(float)) +
           2 * Operands::size(bias.size() * sizeof(float));
  }

  std::vector<std::int8_t> a, b;
  std::vector<float> absmax_a, absmax_b, bias;

 private:
  std::uint32_t next() {  // the upper bits of Numerical Recipes' linear congruential generator
    state_ = state_ * 1664525u + 1013904223u;
    return state_ >> 8;
  }
  std::uint32_t state_ = 1;
};

// The results of a kernel and of dp4a, for each kind of scales.
class Results {
 public:
  Results(Runtime& device, Operands& operands, std::size_t bytes)
      : device_(device),
        bytes_(bytes),
        memory_(static_cast<std::byte*>(operands.take(size_of(bytes)))) {
    check(cudaMemsetAsync(memory_, 0x5a, size_of(bytes), device.cuda_stream()), "cudaMemsetAsync");
  }
  static std::size_t size_of(std::size_t bytes) {
    return 2 * both_kinds_of_scales.size() * Operands::size(bytes);
  }
  [[nodiscard]] void* of_kernel(bool scalar) const { return at(scalar ? 1 : 0); }
  [[nodiscard]] void* of_dp4a(bool scalar) const { return at(scalar ? 3 : 2); }

  // Waits for all results, and returns whether those of the kernel and of dp4a are the same to the
  // bit.
  [[nodiscard]] bool equal() const {
    std::vector<std::byte> host(size_of(bytes_));
    check(cudaMemcpyAsync(host.data(), memory_, host.size(), cudaMemcpyDeviceToHost,
                          device_.cuda_stream()),
          "cudaMemcpyAsync");
    check(cudaStreamSynchronize(device_.cuda_stream()), "cudaStreamSynchronize");
    return std::memcmp(host.data(), host.data() + host.size() / 2, host.size() / 2) == 0;
  }

 private:
  [[nodiscard]] void* at(std::size_t i) const { return memory_ + i * Operands::size(bytes_); }
  Runtime& device_;
  std::size_t bytes_;
  std::byte* memory_;
};

// Whether a kernel computes the same as dp4a, in a product with two tiles along the rows, the
// second with one row only, and two along the columns. For a kernel for few rows there is one tile
// along the rows.
bool compare(Runtime& device, const FusedVariant& variant, DType output) {
  const int m = variant.skinny ? variant.tile_m : variant.tile_m + 1;
  const int n = variant.tile_n + more_columns;
  const int depth = variant.skinny ? depth_of_few_rows : default_depth;
  const Values values(m, n, depth);
  const std::size_t d_bytes = Values::count(m, n) * dtype_size_bytes(output);
  const std::size_t sums_bytes = Values::count(m, n) * sizeof(std::int32_t);
  FusedArguments p{};
  p.m = m, p.n = n, p.k = depth;
  p.a_stride = p.b_stride = depth;
  p.d_stride = n;
  p.bias_type = DType::f32;
  p.multiprocessors = device.info().multiprocessors;
  p.raster = FusedRaster::heuristic;
  p.swizzle = 1;
  p.device = device.index();
  const std::size_t workspace_bytes = variant.workspace_bytes(output, p);
  Operands operands(device, values.bytes() + Results::size_of(d_bytes) +
                                Operands::size(sums_bytes) + Operands::size(workspace_bytes));
  p.a = operands.take(values.a);
  p.b = operands.take(values.b);
  p.absmax_a = operands.take(values.absmax_a);
  p.absmax_b = operands.take(values.absmax_b);
  p.bias = operands.take(values.bias);
  auto* sums = static_cast<std::int32_t*>(operands.take(sums_bytes));
  const Results results(device, operands, d_bytes);
  void* workspace = operands.take(workspace_bytes);
  const cudaStream_t stream = device.cuda_stream();
  check(launch_dp4a({p.a, p.b, sums, m, n, depth, depth, depth, n}, false, stream), "kernel dp4a");
  bool launched = true;
  for (const bool scalar : both_kinds_of_scales) {
    p.scalar_b = scalar;
    p.d = results.of_kernel(scalar);
    (void)cudaGetLastError();
    launched = launched && variant.launch(output, p, workspace, stream) == cudaSuccess;
    check(launch_epilogue(output,
                          {sums, n, results.of_dp4a(scalar), n, m, n, p.absmax_a, p.absmax_b,
                           p.bias, p.bias_type, scalar},
                          p.multiprocessors, stream),
          "kernel epilogue");
  }
  return results.equal() && launched;
}

// Whether a kernel for groups computes the same as dp4a, for a group of two tiles, one of no rows,
// and one of a few rows.
bool compare(Runtime& device, const GroupedFusedVariant& variant, DType output) {
  constexpr int groups = 3;
  constexpr int few = 5;
  const int first = variant.tile_m + 1;
  const int m = first + few;
  const int n = variant.tile_n + more_columns;
  const std::vector<std::int32_t> ends = {first, first, m};
  constexpr int depth = default_depth;
  const Values values(m, n, depth, groups);
  const std::size_t d_bytes = Values::count(m, n) * dtype_size_bytes(output);
  GroupedFusedArguments p{};
  p.groups.count = groups;
  p.groups.slots = m;
  p.groups.reports = device.reports();
  p.n = n, p.k = depth;
  p.a_stride = p.b_stride = depth;
  p.b_step = static_cast<std::int64_t>(n) * depth;
  p.d_stride = n;
  p.bias_type = DType::f32;
  p.multiprocessors = device.info().multiprocessors;
  const std::size_t workspace_bytes = variant.workspace_bytes(output, p);
  Operands operands(device, values.bytes() + Operands::size(ends.size() * sizeof ends[0]) +
                                Results::size_of(d_bytes) + Operands::size(workspace_bytes));
  p.a = operands.take(values.a);
  p.b = operands.take(values.b);
  p.absmax_a = operands.take(values.absmax_a);
  p.absmax_b = operands.take(values.absmax_b);
  p.bias = operands.take(values.bias);
  p.groups.ends = operands.take(ends);
  const Results results(device, operands, d_bytes);
  void* workspace = operands.take(workspace_bytes);
  const cudaStream_t stream = device.cuda_stream();
  bool launched = true;
  for (const bool scalar : both_kinds_of_scales) {
    p.scalar_b = scalar;
    p.d = results.of_kernel(scalar);
    (void)cudaGetLastError();
    launched = launched && variant.launch(output, p, workspace, stream) == cudaSuccess;
    check(launch_grouped_dp4a(
              output,
              {p.groups, p.a, p.a_stride, p.b, p.b_stride, p.b_step, results.of_dp4a(scalar),
               p.d_stride, 0, n, depth, p.absmax_a, p.absmax_b, p.bias, p.bias_type, scalar},
              stream),
          "kernel grouped_dp4a");
  }
  return results.equal() && launched;
}

enum class Trial {
  right,
  wrong,
  not_yet  // the stream is being captured, or memory was missing
};

struct Kernel {
  int device;
  const void* variant;
  DType output;
  friend auto operator<=>(const Kernel&, const Kernel&) = default;
};

// The outcome of a kernel's trial, which is made once. There is one trial at a time: a second
// thread that asks for the same kernel waits for the answer of the first.
template <class Variant>
Trial tried(Runtime& device, const Variant& variant, DType output) {
  static std::mutex mutex;
  static std::map<Kernel, Trial> outcomes;
  const std::lock_guard lock(mutex);
  const Kernel kernel = {device.index(), &variant, output};
  const auto known = outcomes.find(kernel);
  if (known != outcomes.end()) return known->second;
  if (device.capturing()) return Trial::not_yet;
  try {
    const CurrentDevice current(device.index());
    const Trial outcome = compare(device, variant, output) ? Trial::right : Trial::wrong;
    outcomes.emplace(kernel, outcome);
    return outcome;
  } catch (const Error& error) {
    if (error.status() != Status::out_of_memory) throw;
    return Trial::not_yet;
  }
}

template <class Variant>
bool trusts_variant(const ContextState& state, const Variant& variant, std::string_view seen,
                    DType output) {
  if (!seen.empty()) return true;
  if (!variant.cannot_hang) return false;
  const Trial trial = tried(core::cuda::runtime(state), variant, output);
  if (trial == Trial::wrong && state.config_source != nullptr)
    state.config_source->warn(fmt::format(
        "engine 'fused': its kernel with tiles of {}x{}x{} and output {} computes wrong results on "
        "{} ({}): they differ from those of engine 'dp4a'; this kernel is not used",
        variant.tile_m, variant.tile_n, variant.tile_k, dtype_name(output), state.device,
        state.runtime->info().name));
  return trial == Trial::right;
}

}  // namespace

bool trusts(const ContextState& state, const FusedVariant& variant, std::string_view seen,
            DType output) {
  return trusts_variant(state, variant, seen, output);
}

bool trusts(const ContextState& state, const GroupedFusedVariant& variant, std::string_view seen,
            DType output) {
  return trusts_variant(state, variant, seen, output);
}

}  // namespace switchback::products::cuda
