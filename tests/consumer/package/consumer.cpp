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
  std::vector<float> x(m * k), w(n * k), y(m * n), g(m * n, 1.0f), dx(m * k), dw(n * k);
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<float>(i % 7) - 3.0f;
  for (std::size_t i = 0; i < w.size(); ++i)
    w[i] = static_cast<float>(i % 5) - 2.0f;
  SwitchbackLinear layer(context, {.in_features = k, .out_features = n, .mode = Mode::rowwise});
  layer.set_weight(MatrixView<float>(w.data(), n, k));
  layer.forward(MatrixView<float>(x.data(), m, k), MatrixView<float>(y.data(), m, n), Save::copy);
  layer.backward({.g = MatrixView<float>(g.data(), m, n),
                  .dx = MatrixView<float>(dx.data(), m, k),
                  .dw = MatrixView<float>(dw.data(), n, k),
                  .db = {}});
  double largest = 0;
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (std::int64_t l = 0; l < k; ++l)
        sum += double(x[std::size_t(i * k + l)]) * double(w[std::size_t(j * k + l)]);
      largest = std::fmax(largest, std::fabs(sum - double(y[std::size_t(i * n + j)])));
    }
  // The bound of the forward's error: codes change |x| <= 3 and |w| <= 2 by at most 3/254 and
  // 2/254, in each of K = 8 products.
  if (largest > 8 * (3 * 2 / 254.0 + 2 * 3 / 254.0 + 6 / (254.0 * 254.0))) {
    std::fprintf(stderr, "consumer: the forward is off by %g\n", largest);
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
  std::printf("C++: %s, off by at most %g\n", std::string(context.isa()).c_str(), largest);
  return 0;
}
