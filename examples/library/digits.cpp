// SPDX-License-Identifier: Apache-2.0
// Example: trains a multi-layer perceptron on handwritten digits with switchback as its linear
// backend (64-256-256-10, ReLU, cross-entropy, SGD with momentum), once with int8 products and once
// with floating point ones, and compares their accuracies on digits that neither has seen.
//
//   example_digits data/digits/digits.csv [--mode rowwise|global|global_mem_efficient]
//                  [--seeds N] [--epochs N] [--save FILE]
//
// Trains five networks of each kind, one after the other, and prints to stderr how long that will
// take (about a minute on two cores). With --seeds 1 it trains one of each kind. In an installed
// package, the data is next to this file.
//
// --save writes the int8 network of the last seed, prequantized, for example_digits_infer. The exit
// code is 0 if the mean accuracies differ by at most half a point, 1 if they differ by more, 2 for
// wrong arguments.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "digits_data.hpp"
#include "switchback/linear.hpp"
#include "switchback/quant.hpp"

using namespace switchback;
using digits::Images;

namespace {

constexpr std::size_t batch = 32;
constexpr std::size_t training_images = 1437;
constexpr float momentum = 0.9f;
constexpr float rate = 0.02f;

MatrixView<float> matrix(std::vector<float>& data, std::size_t rows, std::size_t cols) {
  return {data.data(), static_cast<std::int64_t>(rows), static_cast<std::int64_t>(cols)};
}

// A switchback linear layer, and the gradients and momentum that SGD needs for its weight and bias.
class Layer {
 public:
  Layer(Context& context, Mode mode, std::size_t in, std::size_t out, std::mt19937& random)
      : in_(in),
        out_(out),
        weight(in * out),
        bias(out),
        weight_speed_(in * out),
        bias_speed_(out),
        weight_gradient_(in * out),
        bias_gradient_(out),
        linear_(context, options(mode, in, out)) {
    std::normal_distribution<float> normal(0.0f, std::sqrt(2.0f / static_cast<float>(in)));
    for (float& w : weight)
      w = normal(random);
    linear_.set_weight(matrix(weight, out, in), matrix(bias, 1, out));
  }

  void forward(std::vector<float>& x, std::size_t rows, std::vector<float>& y, bool train) {
    y.resize(rows * out_);
    // The caller keeps x unchanged until backward, so the layer borrows x instead of copying it.
    linear_.forward(matrix(x, rows, in_), matrix(y, rows, out_),
                    train ? Save::borrow : Save::nothing);
  }

  // Writes the gradient of x to dx, unless dx is null.
  void backward(std::vector<float>& g, std::size_t rows, std::vector<float>* dx) {
    LinearGrads grads;
    grads.g = matrix(g, rows, out_);
    if (dx != nullptr) {
      dx->resize(rows * in_);
      grads.dx = matrix(*dx, rows, in_);
    }
    grads.dw = matrix(weight_gradient_, out_, in_);
    grads.db = matrix(bias_gradient_, 1, out_);
    linear_.backward(grads);
  }

  void step() {
    descend(weight, weight_speed_, weight_gradient_);
    descend(bias, bias_speed_, bias_gradient_);
    linear_.weight_updated();
  }

  std::size_t in_, out_;
  std::vector<float> weight, bias;

 private:
  static LinearOptions options(Mode mode, std::size_t in, std::size_t out) {
    LinearOptions options;
    options.in_features = static_cast<std::int64_t>(in);
    options.out_features = static_cast<std::int64_t>(out);
    options.mode = mode;
    return options;
  }
  static void descend(std::vector<float>& value, std::vector<float>& speed,
                      const std::vector<float>& gradient) {
    for (std::size_t i = 0; i < value.size(); ++i) {
      speed[i] = momentum * speed[i] + gradient[i];
      value[i] -= rate * speed[i];
    }
  }

  std::vector<float> weight_speed_, bias_speed_, weight_gradient_, bias_gradient_;
  SwitchbackLinear linear_;
};

class Network {
 public:
  Network(Context& context, Mode mode, unsigned seed) : random_(seed) {
    const std::size_t widths[] = {digits::pixels, 256, 256, digits::classes};
    layers.reserve(3);
    for (std::size_t i = 0; i < 3; ++i)
      layers.emplace_back(context, mode, widths[i], widths[i + 1], random_);
  }

  void train(const Images& images, int epochs) {
    std::vector<std::size_t> order(images.count());
    for (std::size_t i = 0; i < order.size(); ++i)
      order[i] = i;
    for (int epoch = 0; epoch < epochs; ++epoch) {
      std::shuffle(order.begin(), order.end(), random_);
      for (std::size_t first = 0; first < order.size(); first += batch)
        train_on(images, order.data() + first, std::min(batch, order.size() - first));
    }
  }

  // Percentage of the images whose digit gets the highest score.
  double accuracy(const Images& images) {
    std::vector<float> x = images.x;
    forward(x, images.count(), false);
    std::size_t right = 0;
    for (std::size_t i = 0; i < images.count(); ++i) {
      const float* scores = outputs_.back().data() + i * digits::classes;
      right += std::max_element(scores, scores + digits::classes) - scores == images.label[i];
    }
    return 100.0 * static_cast<double>(right) / static_cast<double>(images.count());
  }

  std::vector<Layer> layers;

 private:
  void forward(std::vector<float>& x, std::size_t rows, bool train) {
    outputs_.resize(layers.size());
    for (std::size_t i = 0; i < layers.size(); ++i) {
      layers[i].forward(i == 0 ? x : outputs_[i - 1], rows, outputs_[i], train);
      if (i + 1 < layers.size())
        for (float& y : outputs_[i])
          y = std::max(y, 0.0f);
    }
  }

  void train_on(const Images& images, const std::size_t* chosen, std::size_t rows) {
    x_.resize(rows * digits::pixels);
    for (std::size_t i = 0; i < rows; ++i)
      std::copy_n(images.x.begin() + static_cast<std::ptrdiff_t>(chosen[i] * digits::pixels),
                  digits::pixels, x_.begin() + static_cast<std::ptrdiff_t>(i * digits::pixels));
    forward(x_, rows, true);
    // The gradient of the mean cross-entropy with respect to the scores: (softmax(scores) -
    // one_hot(label)) / rows.
    gradient_ = outputs_.back();
    for (std::size_t i = 0; i < rows; ++i) {
      float* g = gradient_.data() + i * digits::classes;
      const float largest = *std::max_element(g, g + digits::classes);
      float sum = 0.0f;
      for (std::size_t c = 0; c < digits::classes; ++c)
        sum += g[c] = std::exp(g[c] - largest);
      for (std::size_t c = 0; c < digits::classes; ++c)
        g[c] /= sum;
      g[images.label[chosen[i]]] -= 1.0f;
      for (std::size_t c = 0; c < digits::classes; ++c)
        g[c] /= static_cast<float>(rows);
    }
    for (std::size_t i = layers.size(); i-- > 0;) {
      layers[i].backward(gradient_, rows, i > 0 ? &below_ : nullptr);
      if (i == 0) break;
      for (std::size_t j = 0; j < below_.size(); ++j)
        if (outputs_[i - 1][j] <= 0.0f) below_[j] = 0.0f;
      std::swap(gradient_, below_);
    }
    for (Layer& layer : layers)
      layer.step();
  }

  std::mt19937 random_;
  std::vector<std::vector<float>> outputs_;
  std::vector<float> x_, gradient_, below_;
};

template <class T>
void write(std::ofstream& out, const std::vector<T>& values) {
  out.write(reinterpret_cast<const char*>(values.data()),
            static_cast<std::streamsize>(values.size() * sizeof(T)));
}

// Writes the quantized network in the format that example_digits_infer reads: a line of text, then
// for each layer in_features, out_features, mode and the number of scales (int32), the scales
// (f32), the codes [out,in] (int8) and the bias (f32).
void save(const std::string& file, Network& network, Context& context, Mode mode) {
  std::ofstream out(file, std::ios::binary);
  out << "switchback digits 1\n";
  for (Layer& layer : network.layers) {
    const std::size_t scales = mode == Mode::rowwise ? layer.out_ : 1;
    std::vector<std::int8_t> codes(layer.weight.size());
    std::vector<float> absmax(scales);
    const MatrixView<std::int8_t> q(codes.data(), static_cast<std::int64_t>(layer.out_),
                                    static_cast<std::int64_t>(layer.in_));
    if (mode == Mode::rowwise)
      quantize_rowwise(context, matrix(layer.weight, layer.out_, layer.in_), q, absmax);
    else
      quantize_global(context, matrix(layer.weight, layer.out_, layer.in_), q, absmax);
    write(out, std::vector<std::int32_t>{
                   static_cast<std::int32_t>(layer.in_), static_cast<std::int32_t>(layer.out_),
                   static_cast<std::int32_t>(mode), static_cast<std::int32_t>(scales)});
    write(out, absmax);
    write(out, codes);
    write(out, layer.bias);
  }
  out.close();
  if (!out) throw std::runtime_error(file + ": could not be written");
}

struct Options {
  std::string data, save;
  Mode mode = Mode::rowwise;
  int seeds = 5;
  int epochs = 25;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.empty() || argument[0] != '-') {
      options.data = argument;
      continue;
    }
    if (i + 1 == argc) throw std::invalid_argument(argument + " needs a value");
    const std::string value = argv[++i];
    const auto number = [&] {
      const int n = std::atoi(value.c_str());
      if (n < 1 || n > 1000)
        throw std::invalid_argument(argument + " = " + value + "; it must be from 1 to 1000");
      return n;
    };
    if (argument == "--save") {
      options.save = value;
    } else if (argument == "--seeds") {
      options.seeds = number();
    } else if (argument == "--epochs") {
      options.epochs = number();
    } else if (argument == "--mode") {
      const Mode modes[] = {Mode::rowwise, Mode::global, Mode::global_mem_efficient};
      const auto* found =
          std::find_if(modes, modes + 3, [&](Mode mode) { return mode_name(mode) == value; });
      if (found == modes + 3)
        throw std::invalid_argument("--mode = " + value +
                                    "; it must be rowwise, global or global_mem_efficient");
      options.mode = *found;
    } else {
      throw std::invalid_argument("unknown argument " + argument);
    }
  }
  if (options.data.empty())
    throw std::invalid_argument(
        "name the data: example_digits digits.csv (of data/digits, or of the installed examples)");
  return options;
}

int run(const Options& options) {
  const Images all = digits::read(options.data);
  if (all.count() <= training_images)
    throw std::runtime_error(options.data + ": holds too few images to train and to test");
  const Images train = digits::part(all, 0, training_images);
  const Images test = digits::part(all, training_images, all.count() - training_images);
  ContextOptions cpu;
  cpu.device = "cpu";
  Context context(cpu);
  double sums[2] = {0, 0};
  const Mode modes[2] = {Mode::standard, options.mode};
  const std::string int8_name(mode_name(options.mode));
  const auto start = std::chrono::steady_clock::now();
  const int networks = 2 * options.seeds;
  int trained = 0;
  for (int seed = 1; seed <= options.seeds; ++seed) {
    double accuracies[2];
    for (int side = 0; side < 2; ++side) {
      Network network(context, modes[side], static_cast<unsigned>(seed));
      network.train(train, options.epochs);
      accuracies[side] = network.accuracy(test);
      sums[side] += accuracies[side];
      if (++trained < networks) {
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
        std::fprintf(stderr, "%d of %d networks trained, about %.0f s left\n", trained, networks,
                     took.count() / trained * (networks - trained));
      }
      if (side == 1 && seed == options.seeds && !options.save.empty()) {
        save(options.save, network, context, options.mode);
        std::printf("%s: %zu test images, accuracy %.4f %%\n", options.save.c_str(), test.count(),
                    accuracies[side]);
      }
    }
    std::printf("seed %d: standard %.2f %%, %s %.2f %%\n", seed, accuracies[0], int8_name.c_str(),
                accuracies[1]);
  }
  const double difference = (sums[1] - sums[0]) / options.seeds;
  std::printf("mean of %d: standard %.2f %%, %s %.2f %%, difference %+.2f points\n", options.seeds,
              sums[0] / options.seeds, int8_name.c_str(), sums[1] / options.seeds, difference);
  return std::fabs(difference) <= 0.5 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(parse(argc, argv));
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr, "example_digits: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "example_digits: %s\n", error.what());
    return 1;
  }
}
