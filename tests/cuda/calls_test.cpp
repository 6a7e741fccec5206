// SPDX-License-Identifier: Apache-2.0
// Which functions of the CUDA runtime a forward and a backward call after the first time, and how
// often a layer asks the driver which memory an address belongs to.
#include <cuda_runtime.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cuda/grouped_support.hpp"
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
  // Expects that each query is made at most once, and those about an address once for each operand
  // of the caller: the library knows the memory that it keeps. Calls that queue work are not
  // limited.
  static void expect_once(const std::map<std::string, std::size_t>& made, std::size_t operands) {
    for (const auto& [name, count] : made) {
      if (is_work(name)) continue;
      EXPECT_LE(count, name == "cudaPointerGetAttributes" ? operands : 1u) << name;
    }
  }
  // The number of counted calls, without those that queue work.
  static std::size_t all_of(const std::map<std::string, std::size_t>& made) {
    std::size_t all = 0;
    for (const auto& [name, count] : made)
      if (!is_work(name)) all += count;
    return all;
  }
};

// A repeated step with a new weight makes few queries: the forward four, for x and y, then the
// backward six, for g and the gradients. The weight and the bias were queried when they were set.
TEST_F(CudaCalls, AStepThatRanBeforeAsksEachQuestionOnce) {
  for (const Mode mode : {Mode::rowwise, Mode::global, Mode::global_mem_efficient, Mode::standard})
    for (const Activation activation : {Activation::none, Activation::gelu_tanh}) {
      // With an activation, a layer of mode global_mem_efficient keeps only codes of activation(x),
      // from which dx cannot be computed.
      if (mode == Mode::global_mem_efficient && activation != Activation::none) continue;
      SCOPED_TRACE(::testing::Message() << mode_name(mode) << ", " << activation_name(activation));
      Context context(emulated());
      LayerOnDevice t(context, mode, false, activation);
      const DeviceMatrix<float> bias(context, normal_matrix<float>(1, LayerOnDevice::n, 4));
      const auto set_weight = [&] { t.layer.set_weight(t.w.view(), bias.view()); };
      EXPECT_EQ(calls_of(set_weight)["cudaPointerGetAttributes"], 2u);
      t.step();
      context.synchronize();
      t.layer.weight_updated();
      const auto forward = calls_of([&] { t.layer.forward(t.x.view(), t.y.view(), Save::copy); });
      expect_once(forward, 2);
      EXPECT_LE(all_of(forward), 4u);
      const auto backward = calls_of([&] { t.layer.backward(t.grads()); });
      expect_once(backward, 4);
      EXPECT_LE(all_of(backward), 6u);
      context.synchronize();
      EXPECT_EQ(calls_of([&] { t.layer.prepare_for_eval(); }).count("cudaPointerGetAttributes"),
                0u);
      const auto evaluate = [&] { t.layer.forward(t.x.view(), t.y.view(), Save::nothing); };
      evaluate();
      context.synchronize();
      const auto evaluation = calls_of(evaluate);
      expect_once(evaluation, 2);
      EXPECT_LE(all_of(evaluation), 4u);
      context.synchronize();
    }
}

TEST_F(CudaCalls, AStepOfGroupsAsksEachQuestionOnce) {
  for (const Mode mode : {Mode::rowwise, Mode::standard}) {
    SCOPED_TRACE(mode_name(mode));
    Context context(emulated());
    GroupedOnDevice step(context, mode);
    const auto forward = [&] {
      step.layer.weight_updated();
      step.forward(Save::borrow);
    };
    const auto backward = [&] { step.backward(); };
    forward();
    backward();
    context.synchronize();
    // The operands of the forward are y, x, its index and the groups' ends; those of the backward
    // are dx, dw, db, g, x, its index, the ends and W.
    expect_once(calls_of(forward), 4);
    expect_once(calls_of(backward), 8);
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
  Context second(emulated(1));
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
  LayerOnDevice layer(context, Mode::rowwise);
  void* memory = nullptr;
  ASSERT_EQ(cudaMalloc(&memory, layer.y.span().size_bytes()), cudaSuccess);
  const MatrixView<float> y(static_cast<float*>(memory), LayerOnDevice::m, LayerOnDevice::n);
  const auto forward = [&] { layer.layer.forward(layer.x.view(), y, Save::nothing); };
  forward();
  context.synchronize();
  ASSERT_EQ(cudaFree(memory), cudaSuccess);
  EXPECT_NE(message_of(Status::invalid_argument, forward).find("forward: y at"), std::string::npos);
}

}  // namespace
}  // namespace switchback::test
