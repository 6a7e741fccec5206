// SPDX-License-Identifier: Apache-2.0
#include "switchback/error.hpp"

namespace switchback {

const char* status_name(Status status) noexcept {
  switch (status) {
    case Status::ok:
      return "ok";
    case Status::invalid_argument:
      return "invalid_argument";
    case Status::unsupported:
      return "unsupported";
    case Status::out_of_memory:
      return "out_of_memory";
    case Status::device_error:
      return "device_error";
    case Status::io_error:
      return "io_error";
    case Status::invalid_state:
      return "invalid_state";
    case Status::internal:
      return "internal";
  }
  return "unknown";
}

Error::Error(Status status, const std::string& message)
    : std::runtime_error(message), status_(status) {}
Error::~Error() = default;

}  // namespace switchback
