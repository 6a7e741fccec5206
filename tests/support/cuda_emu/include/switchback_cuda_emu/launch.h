// SPDX-License-Identifier: Apache-2.0
// Test support, emulated CUDA: launches a kernel onto a stream, instead of <<<>>>.
#pragma once

#include <memory>
#include <tuple>
#include <utility>

#include "switchback_cuda_emu/api.h"

namespace switchback_cuda_emu {

/// A kernel with its arguments, in the form in which one thread runs it.
struct KernelCall {
  const void* function = nullptr;  ///< the kernel's address, to look up its attributes
  const char* name = "";
  std::shared_ptr<void> arguments;
  void (*run)(void* arguments) = nullptr;
  /// Launched with cudaLaunchAttributeProgrammaticStreamSerialization.
  bool overlaps = false;
  bool cooperative = false;  ///< launched with cudaLaunchAttributeCooperative
};

cudaError_t launch_call(KernelCall call, dim3 grid, dim3 block, std::size_t shared_bytes,
                        cudaStream_t stream);

/// Binds a kernel to its arguments, which are converted to the kernel's parameters and copied now.
template <class... P, class... A>
KernelCall kernel_call(void (*kernel)(P...), const char* name, A&&... args) {
  static_assert(sizeof...(P) == sizeof...(A), "as many arguments as the kernel has parameters");
  using Arguments = std::tuple<void (*)(P...), std::decay_t<P>...>;
  KernelCall call;
  call.function = reinterpret_cast<const void*>(kernel);
  call.name = name;
  call.arguments = std::make_shared<Arguments>(kernel, std::forward<A>(args)...);
  call.run = [](void* arguments) {
    // Arguments are passed by value, so that a thread that assigns to its parameters changes only
    // its own.
    std::apply(
        [](void (*function)(P...), const std::decay_t<P>&... values) { function(values...); },
        *static_cast<const Arguments*>(arguments));
  };
  return call;
}

/// Checks the configuration as the driver does and queues the kernel. `name` must outlive the
/// launch. `overlaps`: the kernel may begin before the previous kernel of the stream has run, and
/// does so if there is one.
template <class... P, class... A>
cudaError_t launch_behind(void (*kernel)(P...), dim3 grid, dim3 block, std::size_t shared_bytes,
                          cudaStream_t stream, const char* name, bool overlaps, A&&... args) {
  KernelCall call = kernel_call(kernel, name, std::forward<A>(args)...);
  call.overlaps = overlaps;
  return launch_call(std::move(call), grid, block, shared_bytes, stream);
}
/// A cooperative launch: all blocks exist at the same time and can wait for each other.
template <class... P, class... A>
cudaError_t launch_cooperative(void (*kernel)(P...), dim3 grid, dim3 block,
                               std::size_t shared_bytes, cudaStream_t stream, const char* name,
                               A&&... args) {
  KernelCall call = kernel_call(kernel, name, std::forward<A>(args)...);
  call.cooperative = true;
  return launch_call(std::move(call), grid, block, shared_bytes, stream);
}
template <class... P, class... A>
cudaError_t launch(void (*kernel)(P...), dim3 grid, dim3 block, std::size_t shared_bytes,
                   cudaStream_t stream, const char* name, A&&... args) {
  return launch_behind(kernel, grid, block, shared_bytes, stream, name, false,
                       std::forward<A>(args)...);
}

}  // namespace switchback_cuda_emu
