// SPDX-License-Identifier: Apache-2.0
// Codes of a weight that may have changed: the device compares fingerprints, keeps the codes of an
// unchanged weight, and never lets a layer read codes of an older weight.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cuda/cuda_support.hpp"
#include "gemm/int8/packed_weight.hpp"
#include "linear/weight_cache.hpp"
#include "switchback/linear.hpp"

namespace switchback::test {
namespace {

using linear::QuantizedWeight;
using linear::WeightCache;

constexpr WeightForm of_rows{WeightForm::Scales::per_row, false};
constexpr WeightForm shared_rows{WeightForm::Scales::per_row, true};
constexpr WeightForm global{WeightForm::Scales::global, false};
constexpr int planted = 77, planted_bytes = 5;

class CudaUnchanged : public Cuda {
 protected:
  // Downloads the packed codes with their padding, followed by the scales.
  static std::vector<std::uint8_t> download(Context& context, const QuantizedWeight& codes) {
    const PackedWeightState& packed = codes.packed().state();
    const std::size_t scales = codes.absmax().size() * sizeof(float);
    const std::size_t bytes = bytes_of(packed);
    std::vector<std::uint8_t> host(bytes + scales);
    copy(context, host.data(), packed.buffer.as<void>(), bytes);
    copy(context, host.data() + bytes, codes.absmax().data(), scales);
    context.synchronize();
    return host;
  }
  static void copy(Context& context, void* to, const void* from, std::size_t bytes) {
    context.state().runtime->copy(to, bytes, from, bytes, bytes, 1);
  }
  static std::size_t bytes_of(const PackedWeightState& packed) {
    return static_cast<std::size_t>(packed.step_bytes * (packed.groups - 1)) +
           packed.engine->packed_bytes(packed.rows, packed.cols);
  }
  // Overwrites the first codes. If these bytes are still there later, the codes were not computed
  // again.
  static void plant(Context& context, const QuantizedWeight& codes) {
    const PackedWeightState& packed = codes.packed().state();
    context.state().runtime->fill(packed.buffer.as<void>(), planted, planted_bytes);
  }
  static std::vector<std::uint8_t> with_planted(std::vector<std::uint8_t> bytes) {
    std::fill_n(bytes.begin(), planted_bytes, planted);
    return bytes;
  }
};

struct Kind {
  WeightForm form;
  bool backward;
  std::int64_t groups, n, k;
  Rotation rotation = Rotation::none;
};

std::string describe(const Kind& kind) {
  return std::string(kind.form.of_rows() ? "scales of rows" : "global scale") +
         (kind.form.shared ? ", shared" : "") + (kind.backward ? " both" : " forward") + ", " +
         std::to_string(kind.groups) + " of " + std::to_string(kind.n) + "x" +
         std::to_string(kind.k) + " " + std::string(rotation_name(kind.rotation));
}

std::vector<Kind> kinds() {
  std::vector<Kind> all;
  for (const WeightForm form : {of_rows, global, shared_rows})
    for (const bool backward : {false, true}) {
      all.push_back({form, backward, 1, 48, 64});
      all.push_back({form, backward, 1, 33, 45});
      all.push_back({form, backward, 1, 130, 272});  // needs several chunks of the fingerprint
      all.push_back({form, backward, 1, 32, 64, Rotation::hadamard_16});
      if (form.scales_gradient()) continue;
      all.push_back({form, backward, 3, 16, 32});
      all.push_back({form, backward, 4, 5, 21});
    }
  return all;
}

// The codes are made again if any element changes, even in its lowest bit, and if the weight
// returns to earlier values.
TEST_F(CudaUnchanged, CodesStayUntilAnElementChanges) {
  for (const bool at_once : {true, false})
    for (const Kind& kind : kinds()) {
      SCOPED_TRACE(describe(kind));
      switchback_cuda_emu::options().cooperative_launches = at_once;
      Context context(emulated());
      ContextState& state = context.state();
      Matrix<float> host = normal_matrix<float>(kind.groups * kind.n, kind.k, 3);
      DeviceMatrix<float> w(context, host);
      const auto make = [&](WeightCache& cache) {
        cache.forward(state, w.view(), kind.form, {}, kind.backward);
        if (kind.backward) cache.backward(state, w.view(), kind.form, {});
      };
      const auto set = [&](std::int64_t r, std::int64_t c, float value) {
        host.set(r, c, value);
        copy(context, w.data() + r * kind.k + c, &value, sizeof value);
        context.synchronize();
      };
      const auto expect_codes_of_now = [&](const WeightCache& cache) {
        WeightCache fresh(kind.groups, kind.rotation);
        make(fresh);
        EXPECT_EQ(download(context, cache.forward_codes()),
                  download(context, fresh.forward_codes()));
        if (!kind.backward) return;
        EXPECT_EQ(download(context, cache.backward_codes()),
                  download(context, fresh.backward_codes()));
      };
      WeightCache cache(kind.groups, kind.rotation);
      cache.ask_from(0);
      const auto doubt = [&] {
        cache.doubt(state);
        EXPECT_FALSE(cache.forward_codes().valid());
        make(cache);
      };
      doubt();
      expect_codes_of_now(cache);
      const auto forward = download(context, cache.forward_codes());
      // For dX, mode rowwise_shared transposes the forward's codes in any case, so bytes planted in
      // its dX codes would not stay.
      plant(context, cache.forward_codes());
      doubt();
      EXPECT_EQ(download(context, cache.forward_codes()), with_planted(forward)) << "made again";
      if (kind.backward && !kind.form.scales_gradient()) {
        plant(context, cache.backward_codes());
        const auto before = download(context, cache.backward_codes());
        doubt();
        EXPECT_EQ(download(context, cache.backward_codes()), before) << "made again";
      }
      cache.invalidate();  // so that the planted bytes are overwritten
      make(cache);
      expect_codes_of_now(cache);
      for (const auto& [r, c] : {std::pair<std::int64_t, std::int64_t>{0, 0},
                                 {kind.groups * kind.n - 1, kind.k - 1},
                                 {kind.groups * kind.n / 2, kind.k / 2}}) {
        doubt();
        const float old = host.get(r, c);
        set(r, c, std::nextafter(old, 9.0f));
        plant(context, cache.forward_codes());
        doubt();
        EXPECT_NE(download(context, cache.forward_codes()), with_planted(forward))
            << "not made again at " << r << "," << c;
        set(r, c, 40.0f);
        doubt();
        expect_codes_of_now(cache);
        set(r, c, old);
        doubt();
        expect_codes_of_now(cache);
      }
      if (::testing::Test::HasFailure()) return;
    }
}

// The check covers every element, also of 16-bit types at any address. Bytes between rows do not
// count.
TEST_F(CudaUnchanged, TheQuestionIsAboutEveryElement) {
  Context context(emulated());
  ContextState& state = context.state();
  constexpr std::int64_t rows = 3, cols = 300, stride = 305;
  const DeviceMatrix<half> all(context, normal_matrix<half>(1, 1 + rows * stride, 1));
  const DeviceMatrix<std::uint8_t> memory(context, 1, sizeof(quant::WeightProof));
  state.runtime->fill(memory.data(), 0, sizeof(quant::WeightProof));
  auto* const proof = reinterpret_cast<quant::WeightProof*>(memory.data());
  const ConstAnyMatrix w(all.data() + 1, DType::f16, rows, cols, stride);
  const auto changed = [&](unsigned codes) {
    quant::ask_whether_changed(state, w, proof, codes);
    quant::WeightProof answer;
    copy(context, &answer, proof, sizeof answer);
    context.synchronize();
    return answer.changed != 0;
  };
  EXPECT_TRUE(changed(1));
  EXPECT_FALSE(changed(1));
  EXPECT_TRUE(changed(3)) << "of the others nothing is known";
  EXPECT_FALSE(changed(3));
  std::uint16_t bits = 0;
  const auto next = [](std::int64_t i) { return i + (i % stride > cols - 14 ? 1 : 11); };
  for (std::int64_t i = 0; i < rows * stride; i = next(i)) {
    half* const at = all.data() + 1 + i;
    copy(context, &bits, at, sizeof bits);
    context.synchronize();
    bits ^= static_cast<std::uint16_t>(1u << (i % 16));
    copy(context, at, &bits, sizeof bits);
    context.synchronize();
    ASSERT_EQ(changed(1), i % stride < cols) << i;
    ASSERT_EQ(changed(2), i % stride < cols) << i;
    ASSERT_FALSE(changed(3)) << i;
  }
}

// A weight that is set to one matrix or another.
struct SetWeight {
  explicit SetWeight(Context& context_)
      : context(context_),
        first(context, normal_matrix<float>(n, k, 1)),
        second(context, normal_matrix<float>(n, k, 2)),
        w(context, n, k) {}
  void set(const DeviceMatrix<float>& to) const {
    constexpr std::size_t bytes = n * k * sizeof(float);
    context.state().runtime->copy(w.data(), bytes, to.data(), bytes, bytes, 1);
  }
  static constexpr std::int64_t n = 16, k = 32;
  Context& context;
  DeviceMatrix<float> first, second, w;
};

// The library must not take codes made without a check, or made from other codes, for codes of the
// weight that it checked before.
TEST_F(CudaUnchanged, ACodeMadeWithoutAQuestionIsOfNoKnownWeight) {
  Context context(emulated());
  ContextState& state = context.state();
  const SetWeight weight(context);
  const auto view = weight.w.view();
  WeightCache cache;
  cache.ask_from(0);
  const auto make = [&](WeightCache& of, bool backward) {
    of.forward(state, view, global, {}, backward);
    if (backward) of.backward(state, view, global, {});
  };
  const auto expect_codes_of_now = [&] {
    WeightCache fresh;
    make(fresh, true);
    make(cache, true);
    EXPECT_EQ(download(context, cache.forward_codes()), download(context, fresh.forward_codes()));
    EXPECT_EQ(download(context, cache.backward_codes()), download(context, fresh.backward_codes()));
  };
  weight.set(weight.first);
  cache.doubt(state);
  expect_codes_of_now();
  weight.set(weight.second);
  cache.invalidate();
  expect_codes_of_now();  // these codes are made without a check
  weight.set(weight.first);
  cache.doubt(state);
  expect_codes_of_now();
  // Makes only the forward's codes and transposes them for dX; then makes only the codes for dX.
  weight.set(weight.second);
  cache.doubt(state);
  make(cache, false);
  cache.backward_of_forward(state, cache.forward_codes());
  weight.set(weight.first);
  cache.doubt(state);
  cache.backward(state, view, global, {});
  expect_codes_of_now();
  // In between, codes with other scales are made.
  cache.doubt(state);
  cache.forward(state, view, of_rows, {}, true);
  cache.doubt(state);
  expect_codes_of_now();
}

// A captured forward checks the weight in every replay, whatever happened between the replays.
TEST_F(CudaUnchanged, AGraphAsksWheneverItIsReplayed) {
  Context context(emulated());
  ContextState& state = context.state();
  const SetWeight weight(context);
  const auto codes_of = [&](const DeviceMatrix<float>& of) {
    WeightCache fresh;
    fresh.forward(state, of.view(), of_rows, {}, false);
    return download(context, fresh.forward_codes());
  };
  WeightCache cache;
  cache.ask_from(0);
  const auto make = [&] {
    cache.doubt(state);
    cache.forward(state, weight.w.view(), of_rows, {}, false);
  };
  weight.set(weight.first);
  make();
  make();
  context.synchronize();
  state.runtime->begin_capture();
  make();
  const auto graph = state.runtime->end_capture();
  const auto expect_replayed = [&](const DeviceMatrix<float>& of) {
    weight.set(of);
    graph->launch();
    EXPECT_EQ(download(context, cache.forward_codes()), codes_of(of));
  };
  expect_replayed(weight.first);
  expect_replayed(weight.second);
  expect_replayed(weight.second);
  // Outside of the graph, the codes are made without a check.
  weight.set(weight.first);
  cache.invalidate();
  cache.forward(state, weight.w.view(), of_rows, {}, false);
  expect_replayed(weight.second);
  expect_replayed(weight.first);
}

// A layer's results are those of the present weight, whether the weight is too small for the check
// or large enough.
TEST_F(CudaUnchanged, LayersReadThePresentWeight) {
  for (const std::int64_t n : {16, 2048}) {
    Context context(emulated());
    constexpr std::int64_t m = 2;
    const std::int64_t k = n;
    const DeviceMatrix<float> w(context, normal_matrix<float>(n, k, 1));
    const DeviceMatrix<float> x(context, normal_matrix<float>(m, k, 2));
    const DeviceMatrix<float> y(context, m, n), want(context, m, n);
    SwitchbackLinear layer(context, {.in_features = k, .out_features = n, .mode = Mode::global});
    SwitchbackLinear fresh(context, {.in_features = k, .out_features = n, .mode = Mode::global});
    layer.set_weight(w.view());
    fresh.set_weight(w.view());
    for (int i = 0; i < 3; ++i) {
      layer.weight_may_have_changed();
      const auto kernels = kernels_of([&] { layer.forward(x.view(), y.view(), Save::nothing); });
      EXPECT_EQ(kernels.front() == "fingerprint", n == 2048);
      fresh.weight_updated();
      fresh.forward(x.view(), want.view(), Save::nothing);
      EXPECT_TRUE(y.download() == want.download()) << i;
      if (i == 1) copy(context, w.data() + 5, x.data(), sizeof(float));
    }
  }
}

}  // namespace
}  // namespace switchback::test
