// SPDX-License-Identifier: Apache-2.0
// Test support: a layer with groups on the emulated device.
#pragma once

#include <vector>

#include "cuda/cuda_support.hpp"
#include "switchback/grouped.hpp"

namespace switchback::test {

/// A row of numbers in device memory.
inline DeviceMatrix<std::int32_t> on_device(Context& context,
                                            const std::vector<std::int32_t>& numbers) {
  Matrix<std::int32_t> row(1, static_cast<std::int64_t>(numbers.size()));
  for (std::size_t i = 0; i < numbers.size(); ++i)
    row.set(0, static_cast<std::int64_t>(i), numbers[i]);
  return {context, row};
}

/// A grouped layer on the device, with the operands of one training step.
struct GroupedOnDevice {
  static constexpr std::int64_t m = 12, n = 20, k = 24, groups = 3, x_rows = 5;
  explicit GroupedOnDevice(Context& context, Mode mode)
      : layer(context, {.groups = groups, .in_features = k, .out_features = n, .mode = mode}),
        ends(on_device(context, {3, 3, 10})),
        index(on_device(context, {4, 0, 1, 2, 3, 0, 4, 1, 1, 2, 0, 0})),
        x(context, normal_matrix<float>(x_rows, k, 1)),
        w(context, normal_matrix<float>(groups * n, k, 2)),
        bias(context, normal_matrix<float>(groups, n, 3)),
        g(context, normal_matrix<float>(m, n, 4)),
        y(context, normal_matrix<float>(m, n, 5)),
        dx(context, normal_matrix<float>(m, k, 6)),
        dw(context, normal_matrix<float>(groups * n, k, 7)),
        db(context, normal_matrix<float>(groups, n, 8)) {
    layer.set_weight(w.view(), bias.view());
  }
  void forward(Save save) {
    layer.forward(Groups::packed(ends.span()), {.data = x.view(), .index = index.span()}, y.view(),
                  save);
  }
  void backward(bool accumulate = true) {
    layer.backward({.g = g.view(),
                    .dx = dx.view(),
                    .dw = dw.view(),
                    .db = db.view(),
                    .accumulate = accumulate});
  }
  [[nodiscard]] std::vector<Matrix<float>> outputs() const {
    std::vector<Matrix<float>> all;
    for (const DeviceMatrix<float>* output : {&y, &dx, &dw, &db})
      all.push_back(output->download());
    return all;
  }

  SwitchbackLinear layer;
  DeviceMatrix<std::int32_t> ends, index;
  DeviceMatrix<float> x, w, bias, g, y, dx, dw, db;
};

}  // namespace switchback::test
