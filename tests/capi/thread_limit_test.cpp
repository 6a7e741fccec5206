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

#include "capi/calls.hpp"

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

namespace switchback::test {
namespace {

switchback_status create(std::int32_t threads, switchback_context** out) {
  auto options = sized<switchback_context_options>();
  options.device = "cpu";
  options.threads = threads;
  return switchback_context_create(&options, out);
}

class Layer {
 public:
  Layer(std::int32_t mode, std::int32_t threads) : world_(threads) {
    auto options = sized<switchback_linear_options>();
    options.in_features = x_.cols;
    options.out_features = y_.cols;
    options.mode = mode;
    expect_ok(switchback_linear_create(world_.context, &options, &world_.layer));
    World::fill_with_integers(x_);
    World::fill_with_integers(weight_);
    expect_ok(switchback_linear_set_weight(world_.layer, &weight_, nullptr));
  }

  /// The bytes of y.
  Bytes forward() {
    expect_ok(switchback_linear_weight_updated(world_.layer));
    expect_ok(switchback_linear_forward(world_.layer, &x_, &y_, SWITCHBACK_SAVE_NOTHING, nullptr));
    return world_.written();
  }

 private:
  World world_;
  switchback_matrix x_ = world_.input(SWITCHBACK_F32, 64, 256);
  switchback_matrix weight_ = world_.input(SWITCHBACK_F32, 128, 256);
  switchback_matrix y_ = world_.output(SWITCHBACK_F32, 64, 128);
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
    const Bytes want = large.forward();
    EXPECT_TRUE(small.forward() == want) << mode;
    const Limit limit(0);
    EXPECT_TRUE(large.forward() == want) << mode;
    EXPECT_TRUE(small.forward() == want) << mode;
  }
}

TEST(ThreadLimit, AnotherThreadOfTheProgramGoesOnByItself) {
  for (const std::int32_t mode : {SWITCHBACK_ROWWISE, SWITCHBACK_STANDARD}) {
    Layer layer(mode, 3);
    const Bytes want = layer.forward();
    Bytes got;
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
    EXPECT_TRUE(got == want) << mode;
    EXPECT_TRUE(layer.forward() == want) << mode;
  }
}

}  // namespace
}  // namespace switchback::test
