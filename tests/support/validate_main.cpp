// SPDX-License-Identifier: Apache-2.0
// The tuner's helper program for the emulated device and its fused products. The environment
// variable SWITCHBACK_TEST_BREAK plants a fault: "crash 64" or "wrong 64" in the fused kernels with
// tiles of 64 rows, "crash wgmma" in the engine wgmma of blockwise products.
#include <unistd.h>

#include <cctype>
#include <cstdlib>
#include <string>

#include "support/device_memory.hpp"
#include "switchback/validate.hpp"

int main() {
  using namespace switchback::test;
  set_up_device();
  show_fused_products(true);
  if (const char* words = std::getenv("SWITCHBACK_TEST_BREAK")) {
    const std::string text = words;
    const auto space = text.find(' ');
    const Fault how = text.substr(0, space) == "crash" ? Fault::crash : Fault::wrong;
    const std::string what = text.substr(space + 1);
    if (std::isdigit(static_cast<unsigned char>(what.front())) != 0)
      break_fused_products(how, std::stoi(what));
    else
      break_blockwise_products(how, what);
  }
  return switchback::validate_candidates(STDIN_FILENO, STDOUT_FILENO);
}
