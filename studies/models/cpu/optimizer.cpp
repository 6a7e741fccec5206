// SPDX-License-Identifier: Apache-2.0
// Models, engine zone: the steps of SGD and AdamW on the CPU. Memory traffic bounds their time:
// each parameter is read and written once.
#include "quant/cpu/targets.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "studies/models/cpu/optimizer.cpp"
#include "hwy/foreach_target.h"
//
#include "studies/models/cpu/engine.hpp"
#include "studies/models/cpu/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace switchback::models::HWY_NAMESPACE {

void SgdRange(const SgdRates& rates, const Update& u, std::int64_t begin, std::int64_t end) {
  const VF rate = set(rates.learning_rate);
  const VF momentum = set(rates.momentum);
  const VF decay = set(u.weight_decay);
  for (std::int64_t i = begin; i < end; i += lanes) {
    const std::int64_t n = end - i;
    const VF w = load(u.value + i, n);
    const VF g = hn::MulAdd(w, decay, load(u.gradient + i, n));
    const VF v = rates.first_step ? g : hn::MulAdd(momentum, load(u.first + i, n), g);
    store(v, u.first + i, n);
    const VF change = rates.nesterov ? hn::MulAdd(momentum, v, g) : v;
    const VF next = hn::NegMulAdd(rate, change, w);
    store(next, u.value + i, n);
    if (u.copy != nullptr) store(next, u.copy + i, n);
  }
}

void AdamRange(const AdamRates& rates, const Update& u, std::int64_t begin, std::int64_t end) {
  const VF beta1 = set(rates.beta1);
  const VF beta2 = set(rates.beta2);
  const VF rest1 = set(1.0f - rates.beta1);
  const VF rest2 = set(1.0f - rates.beta2);
  const VF kept = set(1.0f - rates.learning_rate * u.weight_decay);
  const VF rate = set(rates.learning_rate * rates.correction1);
  const VF correction2 = set(rates.correction2);
  const VF epsilon = set(rates.epsilon);
  for (std::int64_t i = begin; i < end; i += lanes) {
    const std::int64_t n = end - i;
    const VF g = load(u.gradient + i, n);
    const VF m = hn::MulAdd(rest1, g, hn::Mul(beta1, load(u.first + i, n)));
    const VF v = hn::MulAdd(rest2, hn::Mul(g, g), hn::Mul(beta2, load(u.second + i, n)));
    store(m, u.first + i, n);
    store(v, u.second + i, n);
    const VF root = hn::Add(hn::Sqrt(hn::Mul(v, correction2)), epsilon);
    const VF next = hn::NegMulAdd(rate, hn::Div(m, root), hn::Mul(load(u.value + i, n), kept));
    store(next, u.value + i, n);
    if (u.copy != nullptr) store(next, u.copy + i, n);
  }
}

}  // namespace switchback::models::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace switchback::models {

HWY_EXPORT(SgdRange);
HWY_EXPORT(AdamRange);

namespace {

// Runs all updates in one parallel call, because a model has many small parameters.
template <class Kernel, class Rates>
void run_updates(ContextState& state, Kernel kernel, const Rates& rates,
                 std::span<const Update> updates) {
  constexpr std::int64_t piece = 65536;
  const auto pieces_of = [](const Update& u) { return (u.size + piece - 1) / piece; };
  core::Workspace::Frame frame(state.workspace);
  const auto count = static_cast<std::int64_t>(updates.size());
  // Index of the first piece of each update.
  auto* const first = frame.take<std::int64_t>(count + 1);
  first[0] = 0;
  for (std::int64_t i = 0; i < count; ++i)
    first[i + 1] = first[i] + pieces_of(updates[static_cast<std::size_t>(i)]);
  state.threads.for_each(first[count], [&](std::int64_t task, int) {
    const std::int64_t i = std::upper_bound(first, first + count + 1, task) - first - 1;
    const Update& u = updates[static_cast<std::size_t>(i)];
    const std::int64_t begin = (task - first[i]) * piece;
    kernel(rates, u, begin, std::min(u.size, begin + piece));
  });
}

}  // namespace

namespace cpu {

void sgd(ContextState& state, const SgdRates& rates, std::span<const Update> updates) {
  run_updates(state, HWY_DISPATCH_TABLE(SgdRange)[quant::cpu::table_index(state.features)], rates,
              updates);
}

void adamw(ContextState& state, const AdamRates& rates, std::span<const Update> updates) {
  run_updates(state, HWY_DISPATCH_TABLE(AdamRange)[quant::cpu::table_index(state.features)], rates,
              updates);
}

}  // namespace cpu

}  // namespace switchback::models
#endif
