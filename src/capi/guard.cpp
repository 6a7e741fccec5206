// SPDX-License-Identifier: Apache-2.0
#include "capi/guard.hpp"

#include <algorithm>
#include <cstring>

namespace switchback::capi {

namespace {
// The buffer of a thread's last error. It is trivially constructed and destroyed, so that it can be
// used before other thread-local objects exist and after they are gone.
constexpr std::size_t message_bytes = 1024;
thread_local char message_buffer[message_bytes] = {};
}  // namespace

switchback_status failed(Status status, const char* message) noexcept {
  constexpr char cut[] = "...";
  const std::size_t length = std::strlen(message);
  const std::size_t kept = std::min(length, message_bytes - 1);
  std::memmove(message_buffer, message, kept);  // the message may already be in this buffer
  message_buffer[kept] = '\0';
  if (kept < length) std::memcpy(message_buffer + message_bytes - sizeof(cut), cut, sizeof(cut));
  return static_cast<switchback_status>(status);
}

const char* last_error() noexcept {
  return message_buffer;
}

}  // namespace switchback::capi
