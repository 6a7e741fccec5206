// SPDX-License-Identifier: Apache-2.0
// Test support: runs the command of a workload as a user runs it.
#pragma once

#include <gtest/gtest.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "bench/cli/cli.hpp"
#include "bench/workload/command.hpp"
#include "bench/workload/workload.hpp"
#include "switchback/error.hpp"

namespace switchback::bench {

using Arguments = std::vector<std::string>;

/// Runs the workload's command and returns its standard output.
inline std::string output_of(std::string_view workload, const Arguments& shared,
                             const Arguments& more, int code = exit_codes::ok) {
  CLI::App app;
  const std::shared_ptr<Workload> made = make_workload(workload);
  add_workload_command(app, made);
  Arguments reversed = {std::string(made->command())};
  for (const Arguments* some : {&shared, &more})
    reversed.insert(reversed.end(), some->begin(), some->end());
  std::reverse(reversed.begin(), reversed.end());
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  try {
    app.parse(std::move(reversed));
  } catch (...) {
    testing::internal::GetCapturedStderr();
    testing::internal::GetCapturedStdout();
    throw;
  }
  EXPECT_EQ(exit_code(), code);
  testing::internal::GetCapturedStderr();
  return testing::internal::GetCapturedStdout();
}

/// Runs the workload's command and returns the records that it prints, one per line.
inline std::vector<Json> rows_of(std::string_view workload, const Arguments& shared,
                                 const Arguments& more, int code = exit_codes::ok) {
  std::istringstream out(output_of(workload, shared, more, code));
  std::vector<Json> rows;
  for (std::string line; std::getline(out, line);)
    rows.push_back(Json::parse(line));
  return rows;
}

/// The message of the Error that the workload's command ends with; "accepted" if there is none.
inline std::string message_of(std::string_view workload, const Arguments& shared,
                              const Arguments& more) {
  try {
    output_of(workload, shared, more);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace switchback::bench
