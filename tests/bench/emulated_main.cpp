// SPDX-License-Identifier: Apache-2.0
// switchback-bench with the emulated device and its fused products, for the dry run of
// tools/gpu-check. Never installed.
#include "bench/cli/cli.hpp"
#include "support/device_memory.hpp"

int main(int argc, char** argv) {
  switchback::test::set_up_device();
  switchback::test::show_fused_products(true);
  return switchback::bench::run_cli(argc, argv);
}
