// SPDX-License-Identifier: Apache-2.0
// Which functions of the CUDA runtime a forward and a backward call after the first time, and how
// often a layer asks the driver which memory an address belongs to.
#include <cuda_runtime.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cuda/cuda_support.hpp"
#include "switchback/linear.hpp"

namespace switchback::test {
namespace {

class CudaCalls : public Cuda {
 protected:
  // Runs `function` and counts its calls of the CUDA runtime, by name. Not counted: launches, and
  // cudaGetLastError, which does not call the driver.
  template <class Function>
  static std::map<std::string, std::size_t> calls_of(const Function& function) {
    const auto now = [] {
      std::map<std::string, std::size_t> counts;
      for (const char* name :
           {"cudaGetDevice", "cudaSetDevice", "cudaPointerGetAttributes", "cudaStreamIsCapturing",
            "cudaFuncSetAttribute", "cudaDeviceGetAttribute", "cudaEventRecord",
            "cudaStreamWaitEvent", "cudaMemsetAsync", "cudaMemcpyAsync", "cudaMemcpy2DAsync",
            "cudaMalloc", "cudaMallocAsync", "cudaFree", "cudaFreeAsync", "cudaStreamSynchronize",
            "cudaGetDriverEntryPointByVersion", "cublasLtMatmulAlgoGetHeuristic",
            "cublasLtMatmulAlgoCheck"})
        counts[name] = switchback_cuda_emu::calls(name);
      return counts;
    };
    const auto before = now();
    function();
    std::map<std::string, std::size_t> made;
    for (const auto& [name, count] : now())
      if (count > before.at(name)) made[name] = count - before.at(name);
    return made;
  }
  static bool is_work(const std::string& name) {
    return name == "cudaMemsetAsync" || name == "cudaMemcpyAsync" || name == "cudaMemcpy2DAsync";
  }
  // The number of counted calls, without those that queue work.
  static std::size_t all_of(const std::map<std::string, std::size_t>& made) {
    std::size_t all = 0;
    for (const auto& [name, count] : made)
      if (!is_work(name)) all += count;
    return all;
  }
  // Expects that each query is made at most once (once per operand for pointers). Calls that queue
  // work are not limited.
  static void expect_once(const std::map<std::string, std::size_t>& made, std::size_t operands) {
    for (const auto& [name, count] : made) {
      if (is_work(name)) continue;
      EXPECT_LE(count, name == "cudaPointerGetAttributes" ? operands : 1u) << name;
    }
  }
};

// Device memory that the library did not allocate, so that it has to query the address.
class Foreign {
 public:
  explicit Foreign(std::size_t bytes) {
    EXPECT_EQ(cudaMalloc(&data_, bytes), cudaSuccess);
    EXPECT_EQ(cudaMemset(data_, 0, bytes), cudaSuccess);
  }
  ~Foreign() { EXPECT_EQ(cudaFree(data_), cudaSuccess); }
  Foreign(const Foreign&) = delete;
  Foreign& operator=(const Foreign&) = delete;
  [[nodiscard]] MatrixView<float> matrix(std::int64_t rows, std::int64_t cols) const {
    return {static_cast<float*>(data_), rows, cols};
  }

 private:
  void* data_ = nullptr;
};

// A repeated forward asks which device is current, whether the stream is being captured, and where
// each operand is.
TEST_F(CudaCalls, AForwardThatRanBeforeAsksEachQuestionOnce) {
  for (const Mode mode : {Mode::rowwise, Mode::global, Mode::standard}) {
    SCOPED_TRACE(mode_name(mode));
    Context context(emulated());
    constexpr std::int64_t m = LayerOnDevice::m, n = LayerOnDevice::n, k = LayerOnDevice::k;
    const Foreign x(m * k * sizeof(float)), y(m * n * sizeof(float));
    LayerOnDevice layer(context, mode);
    layer.layer.prepare_for_eval();
    const auto forward = [&] {
      layer.layer.forward(x.matrix(m, k), y.matrix(m, n), Save::nothing);
    };
    forward();
    context.synchronize();
    expect_once(calls_of(forward), 2);  // the operands x and y
    EXPECT_LE(all_of(calls_of(forward)), 4u);
    context.synchronize();
  }
}

// A repeated step with a new weight makes few queries: the forward four, for x and y, then the
// backward six, for g and the gradients. The weight and the bias were queried when they were set,
// and the library knows the memory that it keeps.
TEST_F(CudaCalls, AStepThatRanBeforeAsksEachQuestionOnce) {
  for (const Mode mode :
       {Mode::rowwise, Mode::global, Mode::global_mem_efficient, Mode::standard}) {
    SCOPED_TRACE(mode_name(mode));
    Context context(emulated());
    LayerOnDevice layer(context, mode);
    layer.step();
    context.synchronize();
    const auto forward = [&] {
      layer.layer.weight_updated();
      layer.layer.forward(layer.x.view(), layer.y.view(), Save::copy);
    };
    const auto made = calls_of(forward);
    expect_once(made, 2);
    EXPECT_LE(all_of(made), 4u);
    LinearGrads grads;
    grads.g = layer.g.view();
    grads.dx = layer.dx.view();
    grads.dw = layer.dw.view();
    grads.db = layer.db.view();
    const auto back = calls_of([&] { layer.layer.backward(grads); });
    expect_once(back, 4);  // the operands g, dx, dw, db
    EXPECT_LE(all_of(back), 6u);
    context.synchronize();
  }
}

TEST_F(CudaCalls, AStepOfGroupsAsksEachQuestionOnce) {
  constexpr std::int64_t groups = 3, m = 24, n = 16, k = 32;
  for (const Mode mode : {Mode::rowwise, Mode::standard}) {
    SCOPED_TRACE(mode_name(mode));
    Context context(emulated());
    Matrix<std::int32_t> host_ends(1, groups);
    for (std::int64_t i = 0; i < groups; ++i)
      host_ends.set(0, i, static_cast<std::int32_t>(8 * (i + 1)));
    const DeviceMatrix<std::int32_t> ends(context, host_ends);
    const DeviceMatrix<float> w(context, normal_matrix<float>(groups * n, k, 1));
    const DeviceMatrix<float> x(context, normal_matrix<float>(m, k, 2));
    const DeviceMatrix<float> g(context, normal_matrix<float>(m, n, 3));
    const DeviceMatrix<float> y(context, m, n), dx(context, m, k), dw(context, groups * n, k);
    SwitchbackLinear layer(context,
                           {.groups = groups, .in_features = k, .out_features = n, .mode = mode});
    layer.set_weight(w.view());
    const Groups of = {.count = groups, .ends = ends.span()};
    const auto forward = [&] {
      layer.weight_updated();
      layer.forward(of, {.data = x.view()}, y.view(), Save::borrow);
    };
    const auto backward = [&] {
      layer.backward({.g = g.view(), .dx = dx.view(), .dw = dw.view()});
    };
    forward();
    backward();
    context.synchronize();
    // The operands of the forward are y, x and the groups' ends; those of the backward are dx, dw,
    // g, x, the ends and W.
    expect_once(calls_of(forward), 3);
    expect_once(calls_of(backward), 6);
    context.synchronize();
  }
}

TEST_F(CudaCalls, AnOperationAsksEachQuestionOnce) {
  Context context(emulated());
  const DeviceMatrix<float> x(context, normal_matrix<float>(64, 64, 1)), d(context, 64, 64);
  const DeviceMatrix<std::int8_t> q(context, 64, 64);
  const DeviceMatrix<float> absmax(context, 1, 64);
  const auto quantize = [&] { quantize_rowwise(context, x.view(), q.view(), absmax.span()); };
  const auto multiply = [&] {
    GemmArgs args;
    args.a = args.b = q.view();
    args.d = d.view();
    args.absmax_a = args.absmax_b = absmax.span();
    args.engine = "dp4a";
    gemm(context, args);
  };
  const auto multiply_floats = [&] {
    gemm_standard(context, {.a = x.view(), .b = x.view(), .d = d.view()});
  };
  quantize();
  multiply();
  context.synchronize();
  expect_once(calls_of(quantize), 3);
  expect_once(calls_of(multiply), 5);
  multiply_floats();
  context.synchronize();
  expect_once(calls_of(multiply_floats), 3);
  context.synchronize();
}

// The library raises a kernel's limit of shared memory above 48 KiB once on each device. It does so
// again where the setting may be lost: the device may have been reset before another Context opens
// it.
TEST_F(CudaCalls, SharedMemoryIsAllowedOnce) {
  switchback_cuda_emu::options().device_count = 2;
  constexpr std::int64_t rows = 512, cols = 512;
  const auto allowed = [&](Context& context, std::int64_t m) {
    const DeviceMatrix<float> x(context, normal_matrix<float>(m, cols, 1));
    const DeviceMatrix<std::int8_t> q(context, m, cols), q_t(context, cols, m);
    const DeviceMatrix<float> absmax(context, 1, 1);
    const auto quantize = [&] {
      quantize_global_transpose(context, x.view(), q_t.view(), absmax.span());
    };
    const std::size_t made = calls_of(quantize)["cudaFuncSetAttribute"];
    context.synchronize();
    return made;
  };
  Context first(emulated());
  EXPECT_EQ(allowed(first, rows), 1u);
  EXPECT_EQ(allowed(first, rows), 0u);
  EXPECT_EQ(allowed(first, rows / 2), 0u) << "less than before";
  ContextOptions options = emulated();
  options.device = "emulated:1";
  Context second(options);
  EXPECT_EQ(allowed(second, rows), 1u);
  EXPECT_EQ(allowed(first, rows), 0u);
  Context again(emulated());
  EXPECT_EQ(allowed(again, rows), 1u);
  EXPECT_EQ(allowed(first, rows), 0u);
}

// One memset clears the scales of both rows and columns, unless the kernel clears them itself.
TEST_F(CudaCalls, CodesOfRowsAndColumnsTakeOneMemset) {
  switchback_cuda_emu::options().cooperative_launches = false;
  Context context(emulated());
  constexpr std::int64_t rows = 70, cols = 40;
  const DeviceMatrix<float> x(context, normal_matrix<float>(rows, cols, 1));
  const DeviceMatrix<std::int8_t> q(context, rows, cols), q_t(context, cols, rows);
  const DeviceMatrix<float> of_rows(context, 1, rows), of_cols(context, 1, cols);
  const auto quantize = [&] {
    quantize_rowwise_and_columnwise_transpose(context, x.view(), q.view(), of_rows.span(),
                                              q_t.view(), of_cols.span());
  };
  quantize();
  EXPECT_EQ(calls_of(quantize)["cudaMemsetAsync"], 1u);
  context.synchronize();
}

// The answers to the queries of one call are not reused in the next call.
TEST_F(CudaCalls, EachForwardAsksAgain) {
  Context context(emulated());
  constexpr std::int64_t m = LayerOnDevice::m, n = LayerOnDevice::n, k = LayerOnDevice::k;
  LayerOnDevice layer(context, Mode::rowwise);
  const Foreign x(m * k * sizeof(float));
  auto y = std::make_unique<Foreign>(m * n * sizeof(float));
  const MatrixView<float> to = y->matrix(m, n);
  layer.layer.forward(x.matrix(m, k), to, Save::nothing);
  context.synchronize();
  y.reset();
  EXPECT_NE(message_of(Status::invalid_argument,
                       [&] { layer.layer.forward(x.matrix(m, k), to, Save::nothing); })
                .find("forward: y at"),
            std::string::npos);
  std::vector<float> host(static_cast<std::size_t>(m * n));
  EXPECT_NE(message_of(Status::invalid_argument,
                       [&] {
                         layer.layer.forward(x.matrix(m, k), MatrixView<float>(host.data(), m, n),
                                             Save::nothing);
                       })
                .find("is host memory"),
            std::string::npos);
}

template <class Call>
std::size_t lookups(Call&& call) {
  const auto count = [] { return switchback_cuda_emu::calls("cudaPointerGetAttributes"); };
  const std::size_t before = count();
  call();
  return count() - before;
}

// A layer looks up each operand of the caller once, and never its own memory.
TEST_F(Cuda, ALayerLooksUpEachOperandOnce) {
  for (const Mode mode : {Mode::standard, Mode::rowwise, Mode::global, Mode::global_mem_efficient})
    for (const Activation activation : {Activation::none, Activation::gelu_tanh}) {
      // With an activation, a layer of mode global_mem_efficient keeps only codes of activation(x),
      // from which dx cannot be computed.
      if (mode == Mode::global_mem_efficient && activation != Activation::none) continue;
      SCOPED_TRACE(::testing::Message() << mode_name(mode) << ", " << activation_name(activation));
      switchback_cuda_emu::reset();
      Context context(emulated());
      LayerOnDevice t(context, mode, false, activation);
      const DeviceMatrix<float> bias(context, normal_matrix<float>(1, LayerOnDevice::n, 4));
      LinearGrads grads;
      grads.g = t.g.view();
      grads.dx = t.dx.view();
      grads.dw = t.dw.view();
      grads.db = t.db.view();
      const auto forward = [&](Save save) { t.layer.forward(t.x.view(), t.y.view(), save); };

      EXPECT_EQ(lookups([&] { t.layer.set_weight(t.w.view(), bias.view()); }), 2u);
      // The second step finds the weight's codes in the layer.
      for (int step = 0; step < 2; ++step) {
        // The addresses of the weight and the bias were looked up when the layer was given them.
        EXPECT_EQ(lookups([&] { forward(Save::copy); }), 2u) << "x, y";
        EXPECT_EQ(lookups([&] { t.layer.backward(grads); }), 4u) << "g, dx, dw, db";
      }
      EXPECT_EQ(lookups([&] { t.layer.prepare_for_eval(); }), 0u);
      EXPECT_EQ(lookups([&] { forward(Save::nothing); }), 2u) << "x, y";
      context.synchronize();
    }
}

}  // namespace
}  // namespace switchback::test
