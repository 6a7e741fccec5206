// SPDX-License-Identifier: Apache-2.0
// main() of every test program: runs GoogleTest, with a flag for the device under test.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "core/device.hpp"
#include "support/device_memory.hpp"
#include "switchback/error.hpp"

int main(int argc, char** argv) {
  // A test reads results as soon as a call has returned, so a real GPU must have finished its
  // kernels by then. Tests of asynchronous behaviour, and of results that a memset or a copy
  // writes, wait explicitly.
  (void)setenv("CUDA_LAUNCH_BLOCKING", "1", 0);
  // The tuner's cache of the user who runs the tests must not affect them.
  (void)setenv("SWITCHBACK_TUNE", "off", 0);
  // The emulated device adds the kernels of this process to its log.
  if (const char* log = std::getenv("SWITCHBACK_CUDA_EMU_LAUNCHES"); log != nullptr)
    (void)std::remove(log);
  ::testing::InitGoogleTest(&argc, argv);
  std::string device = "cpu";
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--device" && i + 1 < argc) {
      device = argv[++i];
    } else if (argument.starts_with("--device=")) {
      device = argument.substr(9);
    } else {
      std::fprintf(stderr, "unknown argument '%s'; known: --device cpu|%s\n", argv[i],
                   std::string(switchback::test::default_device()).c_str());
      return 2;
    }
  }
  using namespace switchback::test;
  try {
    if (device == "cuda") device = "cuda:0";
    // By default a context uses the machine's GPU, but a test that names no device means the CPU.
    if (device == "cpu")
      switchback::core::device_platforms().install(switchback::DeviceKind::cuda, nullptr);
    const DeviceMemory memory = set_up_device();
    set_device(device, device == "cpu" ? DeviceMemory{} : memory);
    if (device != "cpu") {
      const switchback::Context probe(device_options());
      std::printf("device %s\n", probe.device().c_str());
    }
  } catch (const switchback::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
  return RUN_ALL_TESTS();
}
