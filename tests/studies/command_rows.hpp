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

/// Runs a command with these arguments and returns its standard output. The first argument is the
/// command's name.
inline std::string output_of(CLI::App& app, Arguments arguments) {
  std::reverse(arguments.begin(), arguments.end());
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  try {
    app.parse(std::move(arguments));
  } catch (...) {
    testing::internal::GetCapturedStderr();
    testing::internal::GetCapturedStdout();
    throw;
  }
  testing::internal::GetCapturedStderr();
  return testing::internal::GetCapturedStdout();
}

/// The command of a workload, with arguments that all its runs share.
class WorkloadCommand {
 public:
  WorkloadCommand(std::string workload, Arguments shared)
      : workload_(std::move(workload)), shared_(std::move(shared)) {}

  /// Runs the command and returns its standard output.
  [[nodiscard]] std::string output(const Arguments& more, int code = exit_codes::ok) const {
    CLI::App app;
    const std::shared_ptr<Workload> made = make_workload(workload_);
    add_workload_command(app, made);
    Arguments arguments = {std::string(made->command()), "--quiet"};
    for (const Arguments* some : {&shared_, &more})
      arguments.insert(arguments.end(), some->begin(), some->end());
    std::string text = output_of(app, std::move(arguments));
    EXPECT_EQ(exit_code(), code);
    return text;
  }
  /// Runs the command and returns the records that it prints, one per line.
  [[nodiscard]] std::vector<Json> rows(const Arguments& more, int code = exit_codes::ok) const {
    std::istringstream out(output(more, code));
    std::vector<Json> rows;
    for (std::string line; std::getline(out, line);)
      rows.push_back(Json::parse(line));
    return rows;
  }
  [[nodiscard]] std::vector<Json> rows_on(const std::string& device, Arguments more) const {
    more.insert(more.end(), {"--device", device});
    return rows(more);
  }
  /// The message of the Error that the command ends with; "accepted" if there is none.
  [[nodiscard]] std::string message(const Arguments& more) const {
    try {
      static_cast<void>(output(more));
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  }

 private:
  std::string workload_;
  Arguments shared_;
};

}  // namespace switchback::bench
