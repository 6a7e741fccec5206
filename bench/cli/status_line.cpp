// SPDX-License-Identifier: Apache-2.0
#include "bench/cli/status_line.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "bench/cli/table.hpp"

namespace switchback::bench {

namespace {

bool can_redraw() {
  const char* term = std::getenv("TERM");
  return ::isatty(STDERR_FILENO) == 1 && term != nullptr && std::string_view(term) != "dumb";
}

// The most columns that a status line may fill. If a line wraps, it cannot be redrawn in place.
std::size_t columns() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 10) return size.ws_col - 1u;
  return 79;
}

}  // namespace

StatusLine::StatusLine(bool quiet) : quiet_(quiet), terminal_(can_redraw()) {}

StatusLine::~StatusLine() {
  clear();
}

void StatusLine::clear() {
  if (!shown_) return;
  fmt::print(stderr, "\r\033[K");
  shown_ = false;
}

void StatusLine::line(const std::string& text) {
  clear();
  fmt::print(stderr, "{}\n", printable(text));
}

void StatusLine::status(const std::string& text) {
  if (quiet_ || !terminal_) return;
  clear();
  fmt::print(stderr, "{}", printable(text.substr(0, columns())));
  std::fflush(stderr);
  shown_ = true;
}

void StatusLine::note(const std::string& text) {
  if (!quiet_) line(text);
}

void StatusLine::warning(const std::string& text) {
  line("switchback-bench: " + text);
}

}  // namespace switchback::bench
