// SPDX-License-Identifier: Apache-2.0
// Entry zone: how a failed call is reported. Every function of the C++ API that fails throws Error.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "switchback/export.h"
#include "switchback/language.hpp"

namespace switchback {

/// The kind of failure of a call. The values never change: they are the C ABI's status codes too.
enum class Status : std::int32_t {
  ok = 0,                ///< success; an Error never has this status
  invalid_argument = 1,  ///< a shape, stride, pointer, dtype, name or value breaks a rule
  unsupported = 2,       ///< a valid call that this build, machine or engine cannot do
  out_of_memory = 3,     ///< an allocation failed; outputs are unchanged
  device_error = 4,      ///< the device is missing or failed
  io_error = 5,          ///< a file could not be read or written
  invalid_state = 6,  ///< the object cannot do this now (backward before a forward that saves, …)
  internal = 7,       ///< a bug in the library: please report it
};

/// The name of a status as the enum writes it, such as "invalid_argument"; "unknown" for any other
/// value.
SWITCHBACK_API const char* status_name(Status status) noexcept;

/// Thrown by every failing call. what() names the argument, its value and the rule it breaks.
class SWITCHBACK_API Error : public std::runtime_error {
 public:
  /// Makes an Error whose what() returns `message`.
  Error(Status status, const std::string& message);
  ~Error() override;
  /// The kind of failure. status_name() gives its name.
  [[nodiscard]] Status status() const noexcept { return status_; }

 private:
  Status status_;
};

}  // namespace switchback
