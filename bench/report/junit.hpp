// SPDX-License-Identifier: Apache-2.0
// Bench: JUnit's XML of test suites.
#pragma once

#include <string>
#include <vector>

namespace switchback::bench {

struct JunitCase {
  std::string of_class, name;
  std::string status;  ///< as in run files: wrong and unsupported have failed; oom, timeout and
                       ///< skipped were skipped
  std::string why;
  double wall_s = 0;
  std::string output;  ///< may be empty
};
struct JunitSuite {
  std::string name, machine;
  std::vector<JunitCase> cases;
};
std::string junit_text(const std::vector<JunitSuite>& suites);

}  // namespace switchback::bench
