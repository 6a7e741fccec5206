// SPDX-License-Identifier: Apache-2.0
// Example: loads the int8 weights of a safetensors file, also rotated ones ("ConvRot"), and answers
// requests with N threads that share one packed copy of them.
//
//   example_serve [FILE.safetensors] [--prefix TEXT] [--threads N] [--requests N] [--save FILE]
//
// Without a file it makes two rotated weights of random numbers, saves them in the form that
// ComfyUI loads (in a temporary file, or with --save), and serves those. Every answer is compared
// with the product in floating point. The exit code is 1 if an answer is wrong or something fails,
// 2 for wrong arguments.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <exception>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "int8_file.hpp"
#include "switchback/gemm.hpp"
#include "switchback/rotation.hpp"

using namespace switchback;
using int8_file::Weight;

namespace {

constexpr std::int64_t rows_of_requests[] = {1, 64, 7, 16, 2};
constexpr double largest_error = 0.05;

struct Arguments {
  std::string file, prefix, save;
  int threads = 4;
  int requests = 200;
};

// A request to the server: x[rows,K] for the weight with index `weight`, and the answer y[rows,N].
struct Request {
  std::size_t weight;
  std::int64_t rows;
  std::vector<float> x, y;
};

// A queue of requests that wait for a server thread.
class Queue {
 public:
  void push(Request& request) {
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back(&request);
    }
    changed_.notify_one();
  }
  void close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    changed_.notify_all();
  }
  // Waits for the next request and removes it; null when the queue is closed and empty.
  Request* pop() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return closed_ || !waiting_.empty(); });
    if (waiting_.empty()) return nullptr;
    Request* const next = waiting_.front();
    waiting_.pop_front();
    return next;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Request*> waiting_;
  bool closed_ = false;
};

// Runs one server thread: it has its own Context, and layers that share the owners' packed weights.
void serve(const std::vector<SwitchbackLinear>& owners, int threads, Queue& queue) {
  Context context({.device = "cpu", .threads = threads});
  std::vector<SwitchbackLinear> layers;
  for (const SwitchbackLinear& owner : owners)
    layers.push_back(owner.share(context));
  while (Request* const request = queue.pop()) {
    SwitchbackLinear& layer = layers[request->weight];
    const LinearOptions& o = layer.options();
    layer.forward(MatrixView(request->x.data(), request->rows, o.in_features),
                  MatrixView(request->y.data(), request->rows, o.out_features));
  }
}

// Answers all requests with `threads` server threads; returns the time in seconds.
double serve_all(const std::vector<SwitchbackLinear>& owners, int threads,
                 std::vector<Request>& requests) {
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  Queue queue;
  std::vector<std::exception_ptr> failures(static_cast<std::size_t>(threads));
  std::vector<std::thread> server;
  const auto begin = std::chrono::steady_clock::now();
  for (std::exception_ptr& failure : failures)
    server.emplace_back([&] {
      try {
        serve(owners, std::max(1, cores / threads), queue);
      } catch (...) {
        failure = std::current_exception();
      }
    });
  for (Request& request : requests)
    queue.push(request);
  queue.close();
  for (std::thread& thread : server)
    thread.join();
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
  for (const std::exception_ptr& failure : failures)
    if (failure != nullptr) std::rethrow_exception(failure);
  return time.count();
}

std::vector<Request> make_requests(const std::vector<Weight>& weights, int count) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<Request> requests;
  for (int i = 0; i < count; ++i) {
    const std::size_t which = static_cast<std::size_t>(i) % weights.size();
    const std::int64_t rows = rows_of_requests[i % static_cast<int>(std::size(rows_of_requests))];
    Request request{which, rows,
                    std::vector<float>(static_cast<std::size_t>(rows * weights[which].k)),
                    std::vector<float>(static_cast<std::size_t>(rows * weights[which].n), NAN)};
    for (float& x : request.x)
      x = normal(random);
    requests.push_back(std::move(request));
  }
  return requests;
}

// Dequantizes a weight: absmax * code / 127, rotated back if the codes are rotated.
std::vector<float> float_weight(Context& context, const Weight& weight) {
  std::vector<float> w(weight.codes.size());
  for (std::size_t i = 0; i < w.size(); ++i) {
    const std::size_t row = i / static_cast<std::size_t>(weight.k);
    w[i] = weight.absmax[weight.absmax.size() == 1 ? 0 : row] *
           static_cast<float>(weight.codes[i]) / 127;
  }
  const MatrixView view(w.data(), weight.n, weight.k);
  if (weight.rotation != Rotation::none)
    rotate(context, view, weight.rotation, view);  // the rotation is its own inverse
  return w;
}

// The relative error of all answers together: |y - y of the floating point product| / |that y|.
double relative_error(Context& context, const std::vector<Weight>& weights,
                      const std::vector<Request>& requests) {
  double error = 0, size = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const Weight& weight = weights[i];
    const std::vector<float> w = float_weight(context, weight);
    for (const Request& request : requests) {
      if (request.weight != i) continue;
      std::vector<float> want(request.y.size());
      StandardGemmArgs args;
      args.a = MatrixView(request.x.data(), request.rows, weight.k);
      args.b = MatrixView(w.data(), weight.n, weight.k);
      args.transpose_b = true;
      args.d = MatrixView(want.data(), request.rows, weight.n);
      if (!weight.bias.empty()) args.bias = MatrixView(weight.bias.data(), 1, weight.n);
      gemm_standard(context, args);
      for (std::size_t j = 0; j < want.size(); ++j) {
        error += std::pow(request.y[j] - want[j], 2.0);
        size += std::pow(want[j], 2.0);
      }
    }
  }
  return std::sqrt(error / size);
}

// A weight [n,k] of random numbers, rotated and quantized.
Weight random_weight(Context& context, std::string name, std::int64_t n, std::int64_t k,
                     std::mt19937& random) {
  std::normal_distribution<float> normal(0.0f, 1.0f / std::sqrt(static_cast<float>(k)));
  std::vector<float> w(static_cast<std::size_t>(n * k));
  for (float& value : w)
    value = normal(random);
  Weight made{.name = std::move(name), .n = n, .k = k, .rotation = Rotation::hadamard_256};
  made.codes.resize(w.size());
  made.absmax.resize(static_cast<std::size_t>(n));
  made.bias.resize(static_cast<std::size_t>(n));
  for (float& value : made.bias)
    value = normal(random);
  rotate_quantize(context, MatrixView(w.data(), n, k), made.rotation, {made.codes.data(), n, k},
                  made.absmax);
  return made;
}

std::vector<Weight> random_weights(Context& context, const std::string& save) {
  std::mt19937 random(2);
  const std::vector<Weight> made = {random_weight(context, "up", 2048, 512, random),
                                    random_weight(context, "down", 512, 2048, random)};
  const std::string path =
      !save.empty()
          ? save
          : (std::filesystem::temp_directory_path() /
             ("switchback_serve_" + std::to_string(std::random_device()()) + ".safetensors"))
                .string();
  int8_file::write(path, made);
  std::vector<Weight> read = int8_file::read(path);
  if (save.empty()) std::filesystem::remove(path);
  return read;
}

int run(const Arguments& arguments) {
  Context context({.device = "cpu"});
  const std::vector<Weight> weights = arguments.file.empty()
                                          ? random_weights(context, arguments.save)
                                          : int8_file::read(arguments.file, arguments.prefix);
  if (weights.empty()) throw std::runtime_error(arguments.file + ": there is no int8 weight in it");
  std::vector<SwitchbackLinear> owners;
  std::size_t bytes = 0;
  for (const Weight& weight : weights) {
    owners.emplace_back(context, weight.options());
    weight.set(owners.back());
    bytes += owners.back().cached_weight_bytes();
    std::printf("%s [%lld,%lld] %s\n", weight.name.c_str(), static_cast<long long>(weight.n),
                static_cast<long long>(weight.k),
                std::string(rotation_name(weight.rotation)).c_str());
  }
  std::vector<Request> requests = make_requests(weights, arguments.requests);
  const double seconds = serve_all(owners, arguments.threads, requests);
  std::int64_t rows = 0;
  for (const Request& request : requests)
    rows += request.rows;
  const double error = relative_error(context, weights, requests);
  std::printf("%d threads share %.1f MB of weights: %d requests of 1 to 64 rows, %.0f rows/s\n",
              arguments.threads, static_cast<double>(bytes) / 1e6, arguments.requests,
              static_cast<double>(rows) / seconds);
  std::printf("relative error against floating point: %.4f\n", error);
  return error < largest_error ? 0 : 1;
}

int positive(const std::string& name, const char* text) {
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  if (*end != '\0' || value < 1 || value > 1'000'000)
    throw std::invalid_argument(name + " = " + text + "; it must be a number from 1 to 1000000");
  return static_cast<int>(value);
}

Arguments parse(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (!name.starts_with("--")) {
      arguments.file = name;
      continue;
    }
    if (++i == argc) throw std::invalid_argument(name + " needs a value");
    if (name == "--prefix")
      arguments.prefix = argv[i];
    else if (name == "--save")
      arguments.save = argv[i];
    else if (name == "--threads")
      arguments.threads = positive(name, argv[i]);
    else if (name == "--requests")
      arguments.requests = positive(name, argv[i]);
    else
      throw std::invalid_argument("unknown argument " + name);
  }
  return arguments;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(parse(argc, argv));
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr,
                 "%s\nusage: example_serve [FILE.safetensors] [--prefix TEXT] [--threads N] "
                 "[--requests N] [--save FILE]\n",
                 error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
