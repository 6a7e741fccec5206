// SPDX-License-Identifier: Apache-2.0
// The operations of grouped/fragments.hpp on the CPU. They read and write B·K elements a few times,
// while the surrounding products read weights of K·N elements, so plain loops are fast enough.
#include "grouped/fragments.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "core/context_state.hpp"
#include "core/unaligned.hpp"
#include "gemm/floating/cpu/convert.hpp"
#include "grouped/device_engine.hpp"
#include "quant/gelu.hpp"
#include "quant/scalar.hpp"

namespace switchback::grouped {

namespace {

using core::load;

constexpr std::int64_t lanes = 32;
constexpr std::int64_t task_elements = 16384;

std::int64_t rows_of_task(std::int64_t cols) {
  return std::max<std::int64_t>(1, task_elements / std::max<std::int64_t>(1, cols));
}

// The sum of term(i) for i below n, in the order of lanes that grouped/fragments.hpp specifies.
template <class Term>
float lane_sum(std::int64_t n, const Term& term) {
  std::array<float, lanes> sums{};
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    for (std::int64_t l = 0; l < lanes; ++l)
      sums[static_cast<std::size_t>(l)] += term(i + l);
  for (std::int64_t l = 0; i + l < n; ++l)
    sums[static_cast<std::size_t>(l)] += term(i + l);
  for (std::size_t half = lanes / 2; half > 0; half /= 2)
    for (std::size_t l = 0; l < half; ++l)
      sums[l] += sums[l + half];
  return sums[0];
}

// The matrices x and selector in f32: the matrices themselves, or copies allocated in the frame.
struct Widened {
  const float* x;
  std::int64_t x_stride;
  const float* selector;
  std::int64_t selector_stride;
};

const float* widened(ContextState& state, core::Workspace::Frame& frame, ConstAnyMatrix m,
                     std::int64_t& stride) {
  stride = m.stride;
  if (m.dtype == DType::f32) return static_cast<const float*>(m.data);
  stride = m.cols;
  auto* const copy = frame.take<float>(m.rows * m.cols);
  floating::widen(state, m, copy, stride);
  return copy;
}

Widened widened(ContextState& state, core::Workspace::Frame& frame, const Fragments& fragments) {
  Widened wide{};
  wide.x = widened(state, frame, fragments.x, wide.x_stride);
  wide.selector = widened(state, frame, fragments.selector, wide.selector_stride);
  return wide;
}

float logit(const Widened& wide, const Fragments& fragments, std::int64_t row, std::int64_t f) {
  const float* const x = wide.x;
  const std::int64_t at = row * wide.x_stride + f * fragments.each();
  const std::int64_t of_selector = f * wide.selector_stride;
  return lane_sum(fragments.each(), [&](std::int64_t i) {
    return load(x, at + i) * load(wide.selector, of_selector + i);
  });
}

// The softmax of n logits, in place.
void softmax(float* logits, std::int64_t n) {
  float largest = -std::numeric_limits<float>::infinity();
  for (std::int64_t f = 0; f < n; ++f)
    largest = logits[f] > largest ? logits[f] : largest;
  for (std::int64_t f = 0; f < n; ++f) {
    const float below = logits[f] - largest;
    // Below -120, exp is limited to exp(-120), which is 0 in f32; NaN stays NaN.
    logits[f] = quant::gelu::exponential(below < -120.0f ? -120.0f : below, 0.0f);
  }
  const float sum = lane_sum(n, [&](std::int64_t f) { return logits[f]; });
  for (std::int64_t f = 0; f < n; ++f)
    logits[f] = quant::canonical(logits[f] / sum);
}

}  // namespace

void weigh_fragments(ContextState& state, const Fragments& fragments, float* weights) {
  if (!state.on_cpu()) return device_engine(state).weigh_fragments(state, fragments, weights);
  core::Workspace::Frame frame(state.workspace);
  const Widened wide = widened(state, frame, fragments);
  const std::int64_t count = fragments.count();
  state.threads.for_ranges(fragments.x.rows, rows_of_task(fragments.x.cols),
                           [&](std::int64_t begin, std::int64_t end, int) {
                             for (std::int64_t row = begin; row < end; ++row) {
                               float* const of_row = weights + row * count;
                               for (std::int64_t f = 0; f < count; ++f)
                                 of_row[f] = logit(wide, fragments, row, f);
                               softmax(of_row, count);
                             }
                           });
}

namespace {

// Sorts the rows by their chosen fragment: counts them, then places them.
void sort_rows(std::int64_t rows, std::int64_t fragments, const FragmentOrder& order) {
  std::fill_n(order.ends, fragments, 0);
  for (std::int64_t row = 0; row < rows; ++row)
    ++order.ends[order.chosen[row]];
  // Each count in `ends` becomes the first slot of its fragment, and moves to the fragment's end as
  // rows are placed.
  std::int32_t first = 0;
  for (std::int64_t f = 0; f < fragments; ++f) {
    const std::int32_t count = order.ends[f];
    order.ends[f] = first;
    first += count;
  }
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int32_t slot = order.ends[order.chosen[row]]++;
    order.index[slot] = static_cast<std::int32_t>(row);
    order.slots[2 * row] = slot;
    order.slots[2 * row + 1] = static_cast<std::int32_t>(rows + row);
  }
}

}  // namespace

void choose_fragments(ContextState& state, const Fragments& fragments, const FragmentOrder& order) {
  if (!state.on_cpu()) return device_engine(state).choose_fragments(state, fragments, order);
  core::Workspace::Frame frame(state.workspace);
  const Widened wide = widened(state, frame, fragments);
  const std::int64_t rows = fragments.x.rows;
  state.threads.for_ranges(rows, rows_of_task(fragments.x.cols),
                           [&](std::int64_t begin, std::int64_t end, int) {
                             for (std::int64_t row = begin; row < end; ++row) {
                               std::int64_t chosen = 0;
                               float largest = -std::numeric_limits<float>::infinity();
                               for (std::int64_t f = 0; f < fragments.count(); ++f) {
                                 const float value = logit(wide, fragments, row, f);
                                 if (!(value > largest)) continue;
                                 largest = value;
                                 chosen = f;
                               }
                               order.chosen[row] = static_cast<std::int32_t>(chosen);
                             }
                           });
  state.threads.for_each(1, [&](std::int64_t, int) { sort_rows(rows, fragments.count(), order); });
}

void pair_slots(ContextState& state, std::int64_t rows, std::int32_t* slots) {
  if (!state.on_cpu()) return device_engine(state).pair_slots(state, rows, slots);
  state.threads.for_each(1, [&](std::int64_t, int) {
    for (std::int64_t row = 0; row < rows; ++row) {
      slots[2 * row] = static_cast<std::int32_t>(row);
      slots[2 * row + 1] = static_cast<std::int32_t>(rows + row);
    }
  });
}

namespace {

// Calls f(row, fragment, first column, columns) for every fragment of every row.
template <class F>
void for_fragments(ContextState& state, std::int64_t rows, std::int64_t cols,
                   std::int64_t fragments, const F& f) {
  const std::int64_t each = cols / fragments;
  state.threads.for_ranges(rows, rows_of_task(cols),
                           [&](std::int64_t begin, std::int64_t end, int) {
                             for (std::int64_t row = begin; row < end; ++row)
                               for (std::int64_t i = 0; i < fragments; ++i)
                                 f(row, i, i * each, each);
                           });
}

// Calls f with a value of the C++ type of dtype.
template <class F>
void with_type(DType dtype, const F& f) {
  if (dtype == DType::f16) return f(half());
  if (dtype == DType::bf16) return f(bfloat16());
  f(0.0f);
}

}  // namespace

void split_softly(ContextState& state, ConstAnyMatrix x, std::int64_t fragments,
                  const float* weights, AnyMatrix selected, AnyMatrix rest) {
  if (!state.on_cpu())
    return device_engine(state).split_softly(state, x, fragments, weights, selected, rest);
  with_type(x.dtype, [&]<class T>(T) {
    const auto* const from = static_cast<const T*>(x.data);
    auto* const to_selected = static_cast<T*>(selected.data);
    auto* const to_rest = static_cast<T*>(rest.data);
    for_fragments(state, x.rows, x.cols, fragments,
                  [&](std::int64_t row, std::int64_t f, std::int64_t first, std::int64_t each) {
                    const float weight = weights[row * fragments + f];
                    const float other = 1.0f - weight;
                    for (std::int64_t i = first; i < first + each; ++i) {
                      const auto value = static_cast<float>(load(from, row * x.stride + i));
                      to_selected[row * selected.stride + i] = T(weight * value);
                      to_rest[row * rest.stride + i] = T(other * value);
                    }
                  });
  });
}

void without_chosen(ContextState& state, ConstAnyMatrix x, std::int64_t fragments,
                    const std::int32_t* chosen, AnyMatrix rest) {
  if (!state.on_cpu())
    return device_engine(state).without_chosen(state, x, fragments, chosen, rest);
  with_type(x.dtype, [&]<class T>(T) {
    const auto* const from = static_cast<const T*>(x.data);
    auto* const to = static_cast<T*>(rest.data);
    for_fragments(state, x.rows, x.cols, fragments,
                  [&](std::int64_t row, std::int64_t f, std::int64_t first, std::int64_t each) {
                    const bool is_chosen = chosen[row] == f;
                    for (std::int64_t i = first; i < first + each; ++i)
                      to[row * rest.stride + i] =
                          is_chosen ? T(0.0f) : load(from, row * x.stride + i);
                  });
  });
}

namespace {

// The gradient of the logits of a row, p · (d - Σ p·d), from the softmax p. d_f is the inner
// product of x_f and the difference of d_selected and d_rest.
void logit_gradients(const FragmentGradients& args, const Widened& wide, std::int64_t row,
                     float* to) {
  const std::int64_t count = args.fragments.count();
  const std::int64_t each = args.fragments.each();
  const float* const p = args.weights + row * count;
  for (std::int64_t f = 0; f < count; ++f) {
    const std::int64_t at = (row * count + f) * each;
    const std::int64_t of_x = row * wide.x_stride + f * each;
    to[f] = lane_sum(each, [&](std::int64_t i) {
      return load(wide.x, of_x + i) * (args.d_selected[at + i] - args.d_rest[at + i]);
    });
  }
  const float mean = lane_sum(count, [&](std::int64_t f) { return p[f] * to[f]; });
  for (std::int64_t f = 0; f < count; ++f)
    to[f] = p[f] * (to[f] - mean);
}

void store_dx(const FragmentGradients& args, const Widened& wide, std::int64_t row,
              const float* d_logits) {
  const std::int64_t count = args.fragments.count();
  const std::int64_t each = args.fragments.each();
  const AnyMatrix& dx = args.dx;
  for (std::int64_t f = 0; f < count; ++f) {
    const float p = args.weights[row * count + f];
    const std::int64_t at = (row * count + f) * each;
    for (std::int64_t i = 0; i < each; ++i) {
      const float through_products = p * args.d_selected[at + i] + (1.0f - p) * args.d_rest[at + i];
      const float through_logit = d_logits[f] * load(wide.selector, f * wide.selector_stride + i);
      core::store_float(dx.data, dx.dtype, row * dx.stride + f * each + i,
                        through_products + through_logit);
    }
  }
}

}  // namespace

void fragment_gradients(ContextState& state, const FragmentGradients& args) {
  if (!state.on_cpu()) return device_engine(state).fragment_gradients(state, args);
  core::Workspace::Frame frame(state.workspace);
  const Fragments& fragments = args.fragments;
  const Widened wide = widened(state, frame, fragments);
  const std::int64_t rows = fragments.x.rows;
  const std::int64_t cols = fragments.x.cols;
  const std::int64_t count = fragments.count();
  const std::int64_t each = fragments.each();
  auto* const d_logits = frame.take<float>(rows * count);
  auto* const sums = args.d_selector.data != nullptr ? frame.take<float>(cols) : nullptr;
  state.threads.for_ranges(rows, rows_of_task(cols),
                           [&](std::int64_t begin, std::int64_t end, int) {
                             for (std::int64_t row = begin; row < end; ++row) {
                               float* const of_row = d_logits + row * count;
                               logit_gradients(args, wide, row, of_row);
                               if (args.dx.data != nullptr) store_dx(args, wide, row, of_row);
                             }
                           });
  if (sums == nullptr) return;
  // The selector's gradient. Each column adds the terms of all rows in order.
  state.threads.for_ranges(
      count, rows_of_task(rows * each), [&](std::int64_t begin, std::int64_t end, int) {
        std::fill_n(sums + begin * each, (end - begin) * each, 0.0f);
        for (std::int64_t row = 0; row < rows; ++row)
          for (std::int64_t f = begin; f < end; ++f)
            for (std::int64_t i = f * each; i < (f + 1) * each; ++i)
              sums[i] += d_logits[row * count + f] * load(wide.x, row * wide.x_stride + i);
      });
  floating::finish(state, sums, each, nullptr, args.accumulate, args.d_selector);
}

}  // namespace switchback::grouped
