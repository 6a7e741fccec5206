// SPDX-License-Identifier: Apache-2.0
// Test support: matrices in emulated device memory, which the host cannot read, and a device whose
// work is deferred until a synchronization.
#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/context_state.hpp"
#include "gemm/cublaslt/choice.hpp"
#include "support/generators.hpp"
#include "support/matrix.hpp"
#include "switchback/error.hpp"
#include "switchback/gemm.hpp"
#include "switchback/linear.hpp"
#include "switchback/quant.hpp"
#include "switchback_cuda_emu/control.h"

namespace switchback::test {

inline ContextOptions emulated(int index = 0) {
  ContextOptions options;
  options.device = "emulated:" + std::to_string(index);
  return options;
}

/// A dense matrix in device memory.
template <class T>
class DeviceMatrix {
 public:
  DeviceMatrix(Context& context, std::int64_t rows, std::int64_t cols)
      : context_(context), rows_(rows), cols_(cols), buffer_(context.state().make_buffer()) {
    buffer_.reserve(bytes() + 1);
  }
  DeviceMatrix(Context& context, const Matrix<T>& from)
      : DeviceMatrix(context, from.rows(), from.cols()) {
    upload(from);
  }
  /// Queues a copy of `from` to this matrix.
  void upload(const Matrix<T>& from) const {
    context_.state().runtime->copy(buffer_.template as<void>(), row_bytes(), from.data(),
                                   static_cast<std::size_t>(from.stride()) * sizeof(T), row_bytes(),
                                   rows_);
  }
  /// Queues a fill of all bytes.
  void fill(int byte) const {
    context_.state().runtime->fill(buffer_.template as<void>(), byte, bytes());
  }
  [[nodiscard]] Context& context() const { return context_; }
  [[nodiscard]] T* data() const { return buffer_.template as<T>(); }
  [[nodiscard]] MatrixView<T> view() const { return {data(), rows_, cols_}; }
  [[nodiscard]] std::span<T> span() const {
    return {data(), static_cast<std::size_t>(rows_ * cols_)};
  }
  /// Waits for the stream and returns a copy of the matrix on the host.
  [[nodiscard]] Matrix<T> download() const {
    Matrix<T> to(rows_, cols_);
    context_.state().runtime->copy(to.data(), row_bytes(), buffer_.template as<void>(), row_bytes(),
                                   row_bytes(), rows_);
    context_.synchronize();
    return to;
  }

 private:
  [[nodiscard]] std::size_t row_bytes() const {
    return static_cast<std::size_t>(cols_) * sizeof(T);
  }
  [[nodiscard]] std::size_t bytes() const { return row_bytes() * static_cast<std::size_t>(rows_); }

  Context& context_;
  std::int64_t rows_;
  std::int64_t cols_;
  core::AlignedBuffer buffer_;
};

template <class T>
Matrix<T> normal_matrix(std::int64_t rows, std::int64_t cols, std::uint64_t seed) {
  Matrix<T> m(rows, cols);
  Random random(seed);
  fill_normal(m, random);
  return m;
}

/// A layer on the device, with the operands of one training step.
struct LayerOnDevice {
  static constexpr std::int64_t m = 37, n = 40, k = 50;
  explicit LayerOnDevice(Context& context, Mode mode, bool overlap = false,
                         Activation activation = Activation::none)
      : layer(context, options_of(mode, overlap, activation)),
        w(context, normal_matrix<float>(n, k, 1)),
        x(context, normal_matrix<float>(m, k, 2)),
        g(context, normal_matrix<float>(m, n, 3)),
        y(context, m, n),
        dx(context, m, k),
        dw(context, n, k),
        db(context, 1, n) {
    layer.set_weight(w.view());
  }
  void step() {
    layer.forward(x.view(), y.view(), Save::copy);
    layer.backward(grads());
  }
  [[nodiscard]] LinearGrads grads() const {
    return {.g = g.view(), .dx = dx.view(), .dw = dw.view(), .db = db.view()};
  }
  static LinearOptions options_of(Mode mode, bool overlap, Activation activation) {
    LinearOptions o;
    o.in_features = k;
    o.out_features = n;
    o.mode = mode;
    o.activation = activation;
    o.overlap_dw = overlap;
    return o;
  }
  SwitchbackLinear layer;
  DeviceMatrix<float> w, x, g, y, dx, dw, db;
};

/// Operands of one int8 product on the device, and its results.
struct ProductOnDevice {
  explicit ProductOnDevice(Context& context, std::int64_t m = 20, std::int64_t n = 24,
                           std::int64_t k = 40)
      : a(context, codes(m, k, 1)),
        b(context, codes(n, k, 2)),
        absmax_a(context, normal_matrix<float>(1, m, 3)),
        absmax_b(context, normal_matrix<float>(1, n, 4)),
        sums(context, Matrix<std::int32_t>(m, n)),
        d(context, Matrix<float>(m, n)) {}
  void run(std::string_view engine = {}) {
    GemmS8S8S32Args args;
    args.a = a.view();
    args.b = b.view();
    args.d = sums.view();
    args.engine = engine;
    gemm_s8s8s32(a.context(), args);
  }
  /// Whether the sums are right. Overwrites them, so that the next product must write all of them.
  bool right() {
    if (!right_sums_) right_sums_.emplace(sums_of(a.download(), b.download()));
    const bool is_right = sums.download() == *right_sums_;
    sums.fill(0x55);
    return is_right;
  }
  /// Computes the product with scales, and returns it.
  Matrix<float> scaled(std::string_view engine = {}, const PackedWeight* packed_b = nullptr) {
    d.fill(0x55);
    GemmArgs args;
    args.a = a.view();
    if (packed_b == nullptr)
      args.b = b.view();
    else
      args.packed_b = packed_b;
    args.d = d.view();
    args.absmax_a = absmax_a.span();
    args.absmax_b = absmax_b.span();
    args.engine = engine;
    gemm(a.context(), args);
    return d.download();
  }
  static Matrix<std::int8_t> codes(std::int64_t rows, std::int64_t cols, std::uint64_t seed) {
    Matrix<std::int8_t> all(rows, cols);
    Random random(seed);
    fill_codes(all, random);
    return all;
  }

  DeviceMatrix<std::int8_t> a, b;
  DeviceMatrix<float> absmax_a, absmax_b;
  DeviceMatrix<std::int32_t> sums;
  DeviceMatrix<float> d;

 private:
  static Matrix<std::int32_t> sums_of(const Matrix<std::int8_t>& a, const Matrix<std::int8_t>& b) {
    Matrix<std::int32_t> all(a.rows(), b.rows());
    for (std::int64_t i = 0; i < a.rows(); ++i)
      for (std::int64_t j = 0; j < b.rows(); ++j) {
        std::int32_t sum = 0;
        for (std::int64_t l = 0; l < a.cols(); ++l)
          sum += a.get(i, l) * b.get(j, l);
        all.set(i, j, sum);
      }
    return all;
  }
  std::optional<Matrix<std::int32_t>> right_sums_;
};

/// Matches the stand-in's algorithm that a configuration names.
inline switchback_cuda_emu::AlgoPattern pattern_of(const CublasLtAlgorithm& a) {
  return {a.id,      a.tile,   a.stages,      a.split_k,      a.reduction,
          a.swizzle, a.custom, a.inner_shape, a.cluster_shape};
}

/// Two streams of the caller.
struct Streams {
  Streams() {
    for (cudaStream_t* stream : {&first, &second})
      EXPECT_EQ(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking), cudaSuccess);
  }
  ~Streams() {
    for (const cudaStream_t stream : {first, second})
      EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  }
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;
  cudaStream_t first = nullptr;
  cudaStream_t second = nullptr;
};

/// Expects that `call` calls none of these functions of CUDA and cuBLASLt.
template <class Call>
void expect_no_calls_of(const std::vector<const char*>& functions, Call&& call) {
  std::vector<std::size_t> before;
  for (const char* function : functions)
    before.push_back(switchback_cuda_emu::calls(function));
  call();
  for (std::size_t i = 0; i < before.size(); ++i)
    EXPECT_EQ(switchback_cuda_emu::calls(functions[i]), before[i]) << functions[i];
}

/// The kernels that `call` launches.
template <class Call>
std::vector<switchback_cuda_emu::LaunchRecord> launches_of(Call&& call) {
  const auto before = static_cast<std::ptrdiff_t>(switchback_cuda_emu::launches().size());
  call();
  const auto launches = switchback_cuda_emu::launches();
  return {launches.begin() + before, launches.end()};
}
inline std::vector<std::string> names_of(
    const std::vector<switchback_cuda_emu::LaunchRecord>& launches) {
  std::vector<std::string> names;
  for (const auto& launch : launches)
    names.push_back(launch.name);
  return names;
}
template <class Call>
std::vector<std::string> kernels_of(Call&& call) {
  return names_of(launches_of(call));
}

/// The message of the Error that a call throws, which must have this status; "" if it throws none.
template <class Call>
std::string message_of(Status status, Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), status) << error.what();
    return error.what();
  }
  return "";
}

/// Runs call(*make()) with memory for 0, 1, 2, ... allocations, until the call needs no more. A
/// call that runs out of memory must change none of outputs(), and the repeated call must give the
/// right results. Returns the number of allocations that the call needs.
template <class Make, class Call>
std::int64_t expect_all_or_nothing(const Make& make, const Call& call) {
  const auto with_memory = make();
  call(*with_memory);
  const auto want = with_memory->outputs();
  for (std::int64_t allowed = 0; allowed < 100; ++allowed) {
    SCOPED_TRACE("memory for " + std::to_string(allowed) + " allocations");
    const auto step = make();
    const auto before = step->outputs();
    switchback_cuda_emu::options().fail_allocation_after = allowed;
    const std::string message = message_of(Status::out_of_memory, [&] { call(*step); });
    switchback_cuda_emu::options().fail_allocation_after = -1;
    if (!message.empty()) {
      EXPECT_TRUE(step->outputs() == before);
      call(*step);
    }
    EXPECT_TRUE(step->outputs() == want);
    if (message.empty()) return allowed;
  }
  ADD_FAILURE() << "it never succeeds";
  return 0;
}

/// Test fixture: a new emulated device for each test. Its work is deferred and runs in any order
/// that dependencies allow.
class Cuda : public ::testing::Test {
 protected:
  void SetUp() override { switchback_cuda_emu::reset(); }
  void TearDown() override {
    EXPECT_EQ(switchback_cuda_emu::last_fault(), "");
    switchback_cuda_emu::reset();
  }
};

}  // namespace switchback::test
