// SPDX-License-Identifier: Apache-2.0
// What happens if threads cannot be created: context_create returns an error. For a thread that
// already has a context, calls only become slower. The process goes on in both cases. This program
// replaces pthread_create(), the call that fails under a limit on processes, for all code in the
// process.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <string>
#include <thread>
#include <vector>

#include "switchback/switchback.h"

namespace {

// The number of threads that may still be created; negative: any number.
std::atomic<long> threads_left{-1};

class Limit {
 public:
  explicit Limit(long threads) { threads_left = threads; }
  ~Limit() { threads_left = -1; }
  Limit(const Limit&) = delete;
  Limit& operator=(const Limit&) = delete;
};

}  // namespace

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*start)(void*), void* argument) noexcept {
  static const auto real =
      reinterpret_cast<decltype(&pthread_create)>(dlsym(RTLD_NEXT, "pthread_create"));
  if (threads_left == 0) return EAGAIN;
  if (threads_left > 0) --threads_left;
  return real(thread, attributes, start, argument);
}

namespace {

switchback_status create(std::int32_t threads, switchback_context** out) {
  switchback_context_options options = {};
  options.struct_size = sizeof(options);
  options.device = "cpu";
  options.threads = threads;
  return switchback_context_create(&options, out);
}

constexpr std::int64_t rows = 64;
constexpr std::int64_t k = 256;
constexpr std::int64_t n = 128;

class Layer {
 public:
  explicit Layer(std::int32_t mode, std::int32_t threads) {
    EXPECT_EQ(create(threads, &context_), SWITCHBACK_OK) << switchback_last_error();
    switchback_linear_options options = {};
    options.struct_size = sizeof(options);
    options.in_features = k;
    options.out_features = n;
    options.mode = mode;
    EXPECT_EQ(switchback_linear_create(context_, &options, &layer_), SWITCHBACK_OK);
    // The operands are small integers, so that floating point sums of their products are exact in
    // any order.
    for (std::size_t i = 0; i < x_.size(); ++i)
      x_[i] = static_cast<float>(i * 37 % 7) - 3;
    for (std::size_t i = 0; i < w_.size(); ++i)
      w_[i] = static_cast<float>(i * 31 % 5) - 2;
    const switchback_matrix w = {w_.data(), SWITCHBACK_F32, n, k, k};
    EXPECT_EQ(switchback_linear_set_weight(layer_, &w, nullptr), SWITCHBACK_OK);
  }
  ~Layer() {
    switchback_linear_destroy(layer_);
    switchback_context_destroy(context_);
  }
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;

  std::vector<float> forward() {
    std::vector<float> y(rows * n);
    const switchback_matrix x = {x_.data(), SWITCHBACK_F32, rows, k, k};
    const switchback_matrix my = {y.data(), SWITCHBACK_F32, rows, n, n};
    EXPECT_EQ(switchback_linear_weight_updated(layer_), SWITCHBACK_OK);
    EXPECT_EQ(switchback_linear_forward(layer_, &x, &my, SWITCHBACK_SAVE_NOTHING, nullptr),
              SWITCHBACK_OK)
        << switchback_last_error();
    return y;
  }

 private:
  switchback_context* context_ = nullptr;
  switchback_linear* layer_ = nullptr;
  std::vector<float> x_ = std::vector<float>(rows * k);
  std::vector<float> w_ = std::vector<float>(n * k);
};

// Creating a context fails if the limit leaves fewer threads than the context needs. This test
// comes first, because threads that an earlier test created would remain.
TEST(ThreadLimit, AContextWithoutItsThreadsIsNotMade) {
  for (const long left : {0, 1, 2, 3}) {
    const Limit limit(left);
    switchback_context* context = nullptr;
    EXPECT_EQ(create(5, &context), SWITCHBACK_OUT_OF_MEMORY) << left;
    EXPECT_EQ(context, nullptr);
    const std::string message = switchback_last_error();
    EXPECT_NE(message.find("context: threads = 5; 4 more threads"), std::string::npos) << message;
  }
  {
    const Limit limit(0);
    Layer alone(SWITCHBACK_ROWWISE, 1);
    alone.forward();
  }
  Layer later(SWITCHBACK_ROWWISE, 5);
  later.forward();
}

// A context with fewer threads runs on the same calling thread. OpenMP then ends the other threads,
// so the large context has to run without them.
TEST(ThreadLimit, ASmallerContextInBetweenTakesNothingForGranted) {
  for (const std::int32_t mode : {SWITCHBACK_ROWWISE, SWITCHBACK_STANDARD}) {
    Layer large(mode, 4);
    Layer small(mode, 2);
    const std::vector<float> want = large.forward();
    EXPECT_EQ(small.forward(), want);
    const Limit limit(0);
    EXPECT_EQ(large.forward(), want) << mode;
    EXPECT_EQ(small.forward(), want) << mode;
  }
}

TEST(ThreadLimit, AnotherThreadOfTheProgramGoesOnByItself) {
  for (const std::int32_t mode : {SWITCHBACK_ROWWISE, SWITCHBACK_STANDARD}) {
    Layer layer(mode, 3);
    const std::vector<float> want = layer.forward();
    std::vector<float> got;
    std::atomic<bool> limited{false};
    std::thread other([&] {
      while (!limited)
        std::this_thread::yield();
      got = layer.forward();
    });
    {
      const Limit limit(0);
      limited = true;
      other.join();
    }
    EXPECT_EQ(got, want) << mode;
    EXPECT_EQ(layer.forward(), want) << mode;
  }
}

}  // namespace
