// SPDX-License-Identifier: Apache-2.0
#include "bench/report/junit.hpp"

#include <fmt/format.h>

#include "bench/picture/svg.hpp"

namespace switchback::bench {

namespace {

bool failed(const JunitCase& c) {
  return c.status == "wrong" || c.status == "unsupported";
}
bool skipped(const JunitCase& c) {
  return c.status == "oom" || c.status == "timeout" || c.status == "skipped";
}

std::string case_text(const JunitCase& c) {
  std::string text = fmt::format("    <testcase classname=\"{}\" name=\"{}\" time=\"{:.6f}\"",
                                 xml_escaped(c.of_class), xml_escaped(c.name), c.wall_s);
  std::string inside;
  if (failed(c))
    inside +=
        fmt::format("      <failure type=\"{}\" message=\"{}\"/>\n", c.status, xml_escaped(c.why));
  if (skipped(c))
    inside += fmt::format("      <skipped message=\"{}: {}\"/>\n", c.status, xml_escaped(c.why));
  if (!c.output.empty())
    inside += fmt::format("      <system-out>{}</system-out>\n", xml_escaped(c.output));
  return inside.empty() ? text + "/>\n" : text + ">\n" + inside + "    </testcase>\n";
}

}  // namespace

std::string junit_text(const std::vector<JunitSuite>& suites) {
  std::string text;
  std::size_t all_tests = 0, all_failures = 0, all_skipped = 0;
  for (const JunitSuite& suite : suites) {
    std::size_t failures = 0, skips = 0;
    double total_s = 0;
    std::string cases;
    for (const JunitCase& c : suite.cases) {
      failures += failed(c) ? 1 : 0;
      skips += skipped(c) ? 1 : 0;
      total_s += c.wall_s;
      cases += case_text(c);
    }
    text += fmt::format(
        "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"{}\" "
        "time=\"{:.6f}\">\n",
        xml_escaped(suite.name), suite.cases.size(), failures, skips, total_s);
    if (!suite.machine.empty())
      text += fmt::format(
          "    <properties>\n      <property name=\"machine\" value=\"{}\"/>\n    </properties>\n",
          xml_escaped(suite.machine));
    text += cases + "  </testsuite>\n";
    all_tests += suite.cases.size();
    all_failures += failures;
    all_skipped += skips;
  }
  return fmt::format(
             "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"switchback-bench\" "
             "tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"{}\">\n",
             all_tests, all_failures, all_skipped) +
         text + "</testsuites>\n";
}

}  // namespace switchback::bench
