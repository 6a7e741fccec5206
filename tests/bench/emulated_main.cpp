// SPDX-License-Identifier: Apache-2.0
// switchback-bench with the emulated device, its fused products too: for the dry run of
// tools/gpu-check. Never installed.
#include "bench/cli/cli.hpp"
#include "support/device_memory.hpp"
#include "support/models_emulated.hpp"

int main(int argc, char** argv) {
  switchback::test::install_emulated_device();
  switchback::test::install_emulated_models();
  switchback::test::show_fused_products(true);
  return switchback::bench::run_cli(argc, argv);
}
