// SPDX-License-Identifier: Apache-2.0
// Uses each public header of an installed switchback: trains a layer for a step, computes a product
// and codes, catches an error that crosses the library's boundary, and opens a tuner.
#include <cmath>
#include <cstdio>
#include <vector>

#include "switchback/context.hpp"
#include "switchback/error.hpp"
#include "switchback/gemm.hpp"
#include "switchback/linear.hpp"
#include "switchback/matrix.hpp"
#include "switchback/quant.hpp"
#include "switchback/tuner.hpp"

using namespace switchback;

int main() {
  constexpr std::int64_t m = 4, k = 8, n = 3;
  Context context({.device = "cpu"});
  std::vector<float> x(m * k, 1.0f), w(n * k, 1.0f), y(m * n), g(m * n, 1.0f), dx(m * k), dw(n * k);
  SwitchbackLinear layer(context, {.in_features = k, .out_features = n, .mode = Mode::rowwise});
  layer.set_weight(MatrixView<float>(w.data(), n, k));
  layer.forward(MatrixView<float>(x.data(), m, k), MatrixView<float>(y.data(), m, n), Save::copy);
  layer.backward({.g = MatrixView<float>(g.data(), m, n),
                  .dx = MatrixView<float>(dx.data(), m, k),
                  .dw = MatrixView<float>(dw.data(), n, k),
                  .db = {}});
  // Ones have exact codes. Each sum is rounded a few times.
  if (std::fabs(y[0] - k) > 1e-5f || std::fabs(dx[0] - n) > 1e-5f || dw[0] != m) {
    std::fprintf(stderr, "consumer: y %g, dx %g, dw %g\n", y[0], dx[0], dw[0]);
    return 1;
  }
  bool caught = false;
  try {
    layer.forward(MatrixView<float>(x.data(), m, k - 1, k), MatrixView<float>(y.data(), m, n));
  } catch (const Error& error) {
    caught = error.status() == Status::invalid_argument;
  }
  if (!caught) {
    std::fprintf(stderr, "consumer: the error did not arrive as switchback::Error\n");
    return 1;
  }
  TunerOptions options;
  options.mode = "off";
  Tuner::open(context, options)->attach(context);
  std::printf("C++: %s\n", std::string(context.isa()).c_str());
  return 0;
}
