// SPDX-License-Identifier: Apache-2.0
// Device code: the steps of SGD and AdamW. Memory traffic bounds their time: each parameter is read
// and written once. The results have the same bits as on a CPU with fused multiply-adds.
#include "studies/models/cuda/kernels.hpp"
#include "studies/models/cuda/values.cuh"

namespace switchback::models::cuda {

namespace {

// The most parameter tensors that one launch updates, because a model has many small ones.
constexpr int most_updates = 32;
constexpr std::int64_t piece = 4096;  // elements per thread block

struct Updates {
  Update update[most_updates];
  std::int64_t first_piece[most_updates + 1];
  int count;
};

// Calls f(update, i) for each element of this thread block.
template <class F>
__device__ __forceinline__ void for_elements(const Updates& updates, F f) {
  const std::int64_t block = blockIdx.x;
  int at = 0;
  while (at + 1 < updates.count && updates.first_piece[at + 1] <= block)
    ++at;
  const Update& u = updates.update[at];
  const std::int64_t begin = (block - updates.first_piece[at]) * piece;
  const std::int64_t end = begin + piece < u.size ? begin + piece : u.size;
  for (std::int64_t i = begin + threadIdx.x; i < end; i += blockDim.x)
    f(u, i);
}

__device__ __forceinline__ void put(const Update& u, std::int64_t i, float value) {
  u.value[i] = narrow<float>(value);
  if (u.copy != nullptr) u.copy[i] = narrow<bfloat16>(value);
}

__global__ void __launch_bounds__(block_threads) sgd_kernel(SgdRates rates, Updates updates) {
  for_elements(updates, [&](const Update& u, std::int64_t i) {
    const float w = u.value[i];
    const float g = __fmaf_rn(w, u.weight_decay, u.gradient[i]);
    const float v = rates.first_step ? g : __fmaf_rn(rates.momentum, u.first[i], g);
    u.first[i] = narrow<float>(v);
    const float change = rates.nesterov ? __fmaf_rn(rates.momentum, v, g) : v;
    put(u, i, __fmaf_rn(-rates.learning_rate, change, w));
  });
}

__global__ void __launch_bounds__(block_threads) adamw_kernel(AdamRates rates, Updates updates) {
  const float rest1 = __fsub_rn(1.0f, rates.beta1);
  const float rest2 = __fsub_rn(1.0f, rates.beta2);
  const float rate = __fmul_rn(rates.learning_rate, rates.correction1);
  for_elements(updates, [&](const Update& u, std::int64_t i) {
    const float kept = __fsub_rn(1.0f, __fmul_rn(rates.learning_rate, u.weight_decay));
    const float g = u.gradient[i];
    const float m = __fmaf_rn(rest1, g, __fmul_rn(rates.beta1, u.first[i]));
    const float v = __fmaf_rn(rest2, __fmul_rn(g, g), __fmul_rn(rates.beta2, u.second[i]));
    u.first[i] = narrow<float>(m);
    u.second[i] = narrow<float>(v);
    const float root = __fadd_rn(__fsqrt_rn(__fmul_rn(v, rates.correction2)), rates.epsilon);
    put(u, i, __fmaf_rn(-rate, __fdiv_rn(m, root), __fmul_rn(u.value[i], kept)));
  });
}

template <class Rates>
cudaError_t start(const char* name, void (*kernel)(Rates, Updates), cudaStream_t stream,
                  const Rates& rates, std::span<const Update> updates) {
  while (!updates.empty()) {
    Updates some = {};
    for (const Update& u :
         updates.first(updates.size() < most_updates ? updates.size() : most_updates)) {
      some.update[some.count] = u;
      some.first_piece[some.count + 1] =
          some.first_piece[some.count] + divide_up<std::int64_t>(u.size, piece);
      ++some.count;
    }
    updates = updates.subspan(static_cast<std::size_t>(some.count));
    const std::int64_t pieces = some.first_piece[some.count];
    if (pieces == 0) continue;
    const cudaError_t status = launch(name, kernel, dim3(static_cast<unsigned>(pieces)),
                                      dim3(block_threads), 0, stream, rates, some);
    if (status != cudaSuccess) return status;
  }
  return cudaSuccess;
}

}  // namespace

cudaError_t launch_sgd(cudaStream_t stream, const SgdRates& rates,
                       std::span<const Update> updates) {
  return start("sgd", sgd_kernel, stream, rates, updates);
}

cudaError_t launch_adamw(cudaStream_t stream, const AdamRates& rates,
                         std::span<const Update> updates) {
  return start("adamw", adamw_kernel, stream, rates, updates);
}

}  // namespace switchback::models::cuda
