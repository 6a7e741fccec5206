// SPDX-License-Identifier: Apache-2.0
// Test support: the message with which a call is refused.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "switchback/error.hpp"

namespace switchback::test {

/// The message of the Error that a call throws, which must have this status; "accepted" if it
/// throws none.
template <class Call>
std::string refusal(Call&& call, Status status = Status::invalid_argument) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), status) << error.what();
    return error.what();
  }
  return "accepted";
}

}  // namespace switchback::test
