// SPDX-License-Identifier: Apache-2.0
#include "gemm/cublaslt/cuda/cublaslt.hpp"

#include <algorithm>

#include "core/check.hpp"
#include "gemm/cublaslt/cuda/algorithms.hpp"

namespace switchback::products::cuda {

namespace {

using core::cuda::CurrentDevice;
using core::cuda::Runtime;

// How many algorithms the default keeps from cuBLASLt's ranking, in case the first is refused. A
// product that names a position in the ranking gets the whole ranking.
constexpr int most_followers = 8;

// Whether a status concerns only the algorithm, not the device.
bool is_refusal(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE ||
         status == CUBLAS_STATUS_ARCH_MISMATCH;
}

}  // namespace

Plan::Plan(cublasLtHandle_t handle, const Product& p) : product_(p), descriptors_(p) {
  if (p.algorithm.has_value()) {
    Built built = build(handle, p, descriptors_, *p.algorithm);
    refusal_ = std::move(built.refusal);
    if (refusal_.empty()) found_.push_back(built.result);
    return;
  }
  found_ = ranking(handle, p, descriptors_,
                   p.place == 0 ? most_followers : static_cast<int>(most_ranked_algorithms));
  if (found_.empty())
    core::fail(Status::unsupported, "cuBLASLt has no algorithm for {}", describe(p));
  // An algorithm that a tuner chose, at a position other than 0 in the ranking, has no
  // alternatives. The default may fall back to other algorithms. If this version of cuBLASLt ranks
  // fewer algorithms, the default runs, so that a configuration tuned elsewhere does not fail.
  const bool ranked = p.place < static_cast<std::int64_t>(found_.size());
  if (ranked && p.place != 0) found_ = {found_[static_cast<std::size_t>(p.place)]};
}

std::size_t Plan::workspace_bytes() const noexcept {
  // The largest workspace of the algorithms that run() may try.
  std::size_t most = 0;
  for (const auto& result : found_)
    most = std::max(most, result.workspaceSize);
  return most;
}

void Plan::run(cublasLtHandle_t handle, const void* a, const void* b, void* d, const void* bias,
               void* workspace, cudaStream_t stream) {
  const CublasLt& lt = CublasLt::get();
  if (product_.bias)
    check(lt.desc_set(descriptors_.matmul, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof bias),
          "cublasLtMatmulDescSetAttribute", product_);
  const std::int32_t one_s32 = 1;
  const std::int32_t beta_s32 = product_.accumulate ? 1 : 0;
  const float one_f32 = 1.0f;
  const float beta_f32 = product_.accumulate ? 1.0f : 0.0f;
  const bool integers = product_.scale_type() == CUDA_R_32I;
  const void* const alpha = integers ? static_cast<const void*>(&one_s32) : &one_f32;
  const void* const beta = integers ? static_cast<const void*>(&beta_s32) : &beta_f32;
  for (;;) {
    const auto& best = found_.front();
    const cublasStatus_t status = lt.matmul(
        handle, descriptors_.matmul, alpha, a, descriptors_.a, b, descriptors_.b, beta, d,
        descriptors_.d, d, descriptors_.d, &best.algo, workspace, best.workspaceSize, stream);
    // An algorithm that passed the library's check may still not run; only the call shows it.
    if (!is_refusal(status)) return check(status, "cublasLtMatmul", product_);
    const bool meant = product_.algorithm.has_value() || product_.place != 0;
    if (found_.size() == 1 && meant) {
      refusal_ = fmt::format("cublasLtMatmul of {}: {}", describe(product_), status_text(status));
      core::fail(Status::unsupported, "{}", refusal_);
    }
    if (found_.size() == 1) return check(status, "cublasLtMatmul", product_);
    found_.erase(found_.begin());
  }
}

std::string Plan::algorithm_hex() const {
  return found_.empty() ? std::string() : to_hex(found_.front().algo);
}

Plans& Plans::of(Runtime& runtime) {
  using Slot = Runtime::Slot;
  if (auto* known = static_cast<Plans*>(runtime.extension(Slot::gemm)); known != nullptr) {
    // A server may run products with any number of rows, so the number of plans is limited. Plans
    // are host memory, so dropping them is safe.
    constexpr std::size_t most_plans = 4096;
    if (known->plans_.size() > most_plans) known->plans_.clear();
    return *known;
  }
  if (!CublasLt::missing().empty()) core::fail(Status::unsupported, "{}", CublasLt::missing());
  cublasLtHandle_t handle = nullptr;
  const cublasStatus_t status = CublasLt::get().create(&handle);
  if (status != CUBLAS_STATUS_SUCCESS)
    core::fail(status == CUBLAS_STATUS_ALLOC_FAILED ? Status::out_of_memory : Status::device_error,
               "cublasLtCreate: {}", status_text(status));
  auto fresh = std::unique_ptr<Plans>(new Plans(handle));
  Plans& plans = *fresh;
  runtime.set_extension(Slot::gemm, std::move(fresh));
  return plans;
}

Plans::~Plans() {
  plans_.clear();
  (void)CublasLt::get().destroy(handle_);
}

Plan& Plans::plan(const Product& product) {
  Plan& found = find_or_make(product);
  if (!found.refusal().empty())
    core::fail(Status::unsupported, "cuBLASLt cannot run {}: {}", describe(product),
               found.refusal());
  return found;
}

Plan& Plans::find_or_make(const Product& product) {
  auto& place = plans_[product];
  if (place == nullptr) {
    try {
      place = std::make_unique<Plan>(handle_, product);
    } catch (...) {
      plans_.erase(product);
      throw;
    }
  }
  return *place;
}

std::string refusal(Runtime& runtime, const Product& product) {
  if (!product.algorithm.has_value()) return {};
  const CurrentDevice current(runtime.index());
  return Plans::of(runtime).find_or_make(product).refusal();
}

std::string algorithm_hex(Runtime& runtime, const Product& product) {
  const CurrentDevice current(runtime.index());
  try {
    return Plans::of(runtime).find_or_make(product).algorithm_hex();
  } catch (const Error& error) {
    if (error.status() != Status::unsupported) throw;
    return {};
  }
}

std::size_t Plans::Hash::operator()(const Product& p) const noexcept {
  std::uint64_t hash = 0x9E3779B97F4A7C15ull;
  const auto mix = [&hash](std::int64_t value) {
    hash = (hash ^ static_cast<std::uint64_t>(value)) * 0xBF58476D1CE4E5B9ull;
    hash ^= hash >> 31;
  };
  mix(static_cast<std::int64_t>(p.type_a) << 32 | static_cast<std::int64_t>(p.type_d));
  mix(static_cast<std::int64_t>(p.compute));
  mix((p.transpose_a ? 1 : 0) | (p.transpose_b ? 2 : 0) | (p.accumulate ? 4 : 0) |
      (p.bias ? 8 : 0) | p.place << 8);
  for (const std::int64_t value : {p.m, p.n, p.k, p.lda, p.ldb, p.ldd})
    mix(value);
  mix(static_cast<std::int64_t>(p.align_a) << 32 | p.align_b << 16 | p.align_d);
  for (const std::int64_t word : pack(p.algorithm))
    mix(word);
  mix(p.most_workspace_bytes);
  return static_cast<std::size_t>(hash);
}

}  // namespace switchback::products::cuda
