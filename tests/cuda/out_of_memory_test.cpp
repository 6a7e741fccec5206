// SPDX-License-Identifier: Apache-2.0
// A layer's passes on a device that runs out of memory at the first, second, ... allocation. The
// error is reported, no output is written, and the repeated call gives the right result.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cuda/cuda_support.hpp"

namespace switchback::test::out_of_memory {
namespace {

// A layer of this size needs several blocks of scratch memory, of 64 KiB and more.
constexpr std::int64_t m = 300;
constexpr std::int64_t n = 96;
constexpr std::int64_t k = 84;

struct Pass {
  Mode mode = Mode::rowwise;
  bool overlap_dw = false;
  bool activations = false;

  [[nodiscard]] std::string text() const {
    return std::string(mode_name(mode)) + (overlap_dw ? " beside" : "") +
           (activations ? " with activations" : "");
  }
};

// A layer on a new emulated device, with its operands. The gradients are added to values that are
// not zero.
class Step {
 public:
  explicit Step(const Pass& pass) : context_(emulated()), layer_(context_, layer_options(pass)) {
    layer_.set_weight(w_.view(), ConstAnyMatrix());
    const bool codes = pass.mode == Mode::global_mem_efficient;
    grads_.g = g_.view();
    grads_.dx = dx_.view();
    grads_.dw = dw_.view();
    grads_.db = db_.view();
    grads_.accumulate = true;
    if (pass.activations) {
      grads_.y = y_.view();
      grads_.y_activation = Activation::gelu_erf;
      grads_.dx_of_activation = codes;
    }
  }
  void forward() { layer_.forward(x_.view(), y_.view(), Save::copy); }
  void backward() { layer_.backward(grads_); }
  void backward_from() { layer_.backward_from({x_.view(), {}}, grads_); }
  void forward_codes() {
    layer_.forward_codes(x_.view(), y_.view(), codes_.view(), absmax_.span());
  }
  /// The contents of all outputs.
  std::pair<std::vector<Matrix<float>>, Matrix<std::int8_t>> outputs() {
    std::vector<Matrix<float>> all;
    for (const DeviceMatrix<float>* output : {&dx_, &dw_, &db_, &y_, &absmax_})
      all.push_back(output->download());
    return {all, codes_.download()};
  }

 private:
  static LinearOptions layer_options(const Pass& pass) {
    LinearOptions o;
    o.in_features = k;
    o.out_features = n;
    o.mode = pass.mode;
    o.overlap_dw = pass.overlap_dw;
    if (pass.activations) o.activation = Activation::gelu_tanh;
    return o;
  }
  DeviceMatrix<float> normal(std::int64_t rows, std::int64_t cols) {
    return DeviceMatrix<float>(context_, normal_matrix<float>(rows, cols, ++seed_));
  }

  Context context_;
  std::uint64_t seed_ = 0;
  DeviceMatrix<float> w_ = normal(n, k), x_ = normal(m, k), g_ = normal(m, n), y_ = normal(m, n),
                      dx_ = normal(m, k), dw_ = normal(n, k), db_ = normal(1, n),
                      absmax_ = normal(1, m);
  DeviceMatrix<std::int8_t> codes_{context_, Matrix<std::int8_t>(m, k)};
  SwitchbackLinear layer_;
  LinearGrads grads_;
};

constexpr Mode every_mode[] = {Mode::standard, Mode::rowwise, Mode::global,
                               Mode::global_mem_efficient, Mode::automatic};

TEST_F(Cuda, ABackwardWithoutMemoryHasWrittenNothing) {
  for (const Mode mode : every_mode)
    for (const bool overlap_dw : {false, true})
      for (const bool activations : {false, true}) {
        const Pass pass = {mode, overlap_dw, activations};
        SCOPED_TRACE(pass.text());
        const auto after_forward = [&] {
          auto step = std::make_unique<Step>(pass);
          step->forward();
          return step;
        };
        expect_all_or_nothing(after_forward, [](Step& step) { step.backward(); });
        // Without an earlier forward there is no scratch memory yet, so this call allocates.
        EXPECT_GT(expect_all_or_nothing([&] { return std::make_unique<Step>(pass); },
                                        [](Step& step) { step.backward_from(); }),
                  0);
      }
}

TEST_F(Cuda, AForwardWithoutMemoryHasWrittenNothing) {
  const auto expect_allocates = [](const Pass& pass, auto call) {
    SCOPED_TRACE(pass.text());
    EXPECT_GT(expect_all_or_nothing([&] { return std::make_unique<Step>(pass); }, call), 0);
  };
  for (const Mode mode : every_mode)
    expect_allocates({mode, false, true}, [](Step& step) { step.forward(); });
  for (const Mode mode : {Mode::rowwise, Mode::global, Mode::global_mem_efficient})
    expect_allocates({mode, false, false}, [](Step& step) { step.forward_codes(); });
}

// A second backward finds its memory and does not allocate it again.
TEST_F(Cuda, ASecondBackwardQueuesNoMoreThanTheFirst) {
  Step step({Mode::rowwise, false, false});
  step.forward();
  step.backward();
  const std::size_t allocated = switchback_cuda_emu::calls("cudaMallocAsync");
  const std::size_t launched = switchback_cuda_emu::calls("launch");
  step.backward();
  EXPECT_EQ(switchback_cuda_emu::calls("cudaMallocAsync"), allocated);
  const std::size_t once = switchback_cuda_emu::calls("launch") - launched;
  step.backward();
  EXPECT_EQ(switchback_cuda_emu::calls("launch") - launched, 2 * once);
}

}  // namespace
}  // namespace switchback::test::out_of_memory
