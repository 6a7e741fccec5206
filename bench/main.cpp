// SPDX-License-Identifier: Apache-2.0
#include "bench/cli.hpp"

int main(int argc, char** argv) {
  return switchback::bench::run_cli(argc, argv);
}
