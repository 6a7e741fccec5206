// SPDX-License-Identifier: Apache-2.0
// Test support: matrices in emulated device memory, which the host cannot read, and a device whose
// work is deferred until a synchronization.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/context_state.hpp"
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
    context.state().runtime->copy(buffer_.as<void>(), row_bytes(), from.data(),
                                  static_cast<std::size_t>(from.stride()) * sizeof(T), row_bytes(),
                                  rows_);
  }
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
    LinearGrads grads;
    grads.g = g.view();
    grads.dx = dx.view();
    grads.dw = dw.view();
    grads.db = db.view();
    layer.backward(grads);
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
