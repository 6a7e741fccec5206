// SPDX-License-Identifier: Apache-2.0
#include "core/cuda/current_device.hpp"

#include <map>
#include <mutex>

#include "core/cuda/library.hpp"
#include "core/cuda/status.hpp"

namespace switchback::core::cuda {

namespace {

// The CUDA driver's functions for contexts. The CUDA runtime provides their addresses, so that the
// library need not link the driver, and has already called cuInit. A device's ordinal is its
// CUdevice; CUresult 0 is success.
class Driver {
 public:
  static Driver& get() {
    // Never destroyed: a static Context may end later than a static object of this file would.
    static auto* const driver = new Driver;
    return *driver;
  }

  // Whether anything in this process has used the device. True if that cannot be known.
  [[nodiscard]] bool is_used(int index) const noexcept {
    unsigned flags = 0;
    int active = 0;
    return get_state_ == nullptr || get_state_(index, &flags, &active) != 0 || active != 0;
  }
  // Makes the device's primary context, which the CUDA runtime uses too, the thread's current
  // context. This does not change the device that the thread has chosen by cudaSetDevice.
  bool push(int index) noexcept {
    if (retain_ == nullptr || push_ == nullptr || pop_ == nullptr) return false;
    const std::lock_guard guard(mutex_);
    try {
      Context& context = contexts_[index];
      // The primary context is never released: the CUDA runtime does not release it either.
      if (context == nullptr && retain_(&context, index) != 0) context = nullptr;
      return context != nullptr && push_(context) == 0;
    } catch (...) {
      return false;
    }
  }
  void pop() const noexcept {
    Context popped = nullptr;
    (void)pop_(&popped);
  }

 private:
  using Context = void*;

  Driver() = default;
  using GetState = int (*)(int, unsigned*, int*);
  using Retain = int (*)(Context*, int);
  using Push = int (*)(Context);
  using Pop = int (*)(Context*);
  const GetState get_state_ = driver_entry<GetState>("cuDevicePrimaryCtxGetState");
  const Retain retain_ = driver_entry<Retain>("cuDevicePrimaryCtxRetain");
  const Push push_ = driver_entry<Push>("cuCtxPushCurrent");
  const Pop pop_ = driver_entry<Pop>("cuCtxPopCurrent");
  std::mutex mutex_;
  std::map<int, Context> contexts_;
};

// The device of this thread's innermost CurrentDevice; -1 if the thread has none.
thread_local int entered = -1;

}  // namespace

int CurrentDevice::innermost() noexcept {
  return entered;
}

CurrentDevice::CurrentDevice(int index) {
  const char* call = "";
  check(enter(index, call), call);
}

CurrentDevice::CurrentDevice(int index, std::nothrow_t) noexcept {
  const char* call = "";
  if (enter(index, call) != cudaSuccess) (void)cudaGetLastError();
}

// Inside another CurrentDevice for the same device, no call to CUDA is needed: all calls in between
// leave the current device unchanged.
cudaError_t CurrentDevice::enter(int index, const char*& call) noexcept {
  outer_ = entered;
  if (entered == index) return cudaSuccess;
  const cudaError_t status = make_current(index, call);
  if (status == cudaSuccess) entered = index;
  return status;
}

cudaError_t CurrentDevice::make_current(int index, const char*& call) noexcept {
  call = "cudaGetDevice";
  int now = 0;
  if (const cudaError_t status = cudaGetDevice(&now); status != cudaSuccess) return status;
  if (now == index) return cudaSuccess;
  Driver& driver = Driver::get();
  if (!driver.is_used(now) && driver.push(index)) {
    pushed_ = true;
    return cudaSuccess;
  }
  call = "cudaSetDevice";
  const cudaError_t status = cudaSetDevice(index);
  if (status == cudaSuccess) before_ = now;
  return status;
}

CurrentDevice::~CurrentDevice() {
  entered = outer_;
  if (pushed_)
    Driver::get().pop();
  else if (before_ >= 0 && cudaSetDevice(before_) != cudaSuccess)
    (void)cudaGetLastError();
}

}  // namespace switchback::core::cuda
