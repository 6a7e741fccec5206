// SPDX-License-Identifier: Apache-2.0
#include "bench/cli/terminal.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "bench/cli/table.hpp"
#include "core/check.hpp"

namespace switchback::bench {

namespace {

// The least width of a terminal that is respected. In fewer columns a table of numbers cannot be
// laid out.
constexpr std::size_t fewest_columns = 40;

// Calls the function with each line of a text, without the newline.
template <class Function>
void for_each_line(std::string_view text, const Function& function) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    function(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

// Appends `line`, broken at spaces, with later lines indented by `indent`. A word longer than a
// line stays whole, because it may be a path or a command to copy.
void add_wrapped(std::string& out, std::string_view line, std::size_t columns, std::size_t indent) {
  indent = std::min(indent, columns / 2);
  const std::string gap(indent, ' ');
  bool first = true;
  while (text_columns(line) + (first ? 0 : indent) > columns) {
    const std::size_t room = columns - (first ? 0 : indent);
    // The spaces before the first word are indentation; the line is not broken there.
    const std::size_t begin = std::max(line.find_first_not_of(' '), first ? indent : 0);
    std::size_t at = std::string_view::npos;
    for (std::size_t i = begin; i < line.size(); ++i) {
      if (line[i] != ' ') continue;
      if (text_columns(line.substr(0, i)) > room && at != std::string_view::npos) break;
      at = i;
      if (text_columns(line.substr(0, i)) > room) break;
    }
    if (at == std::string_view::npos) break;
    std::string_view part = line.substr(0, at);
    part = part.substr(0, part.find_last_not_of(' ') + 1);
    out.append(first ? "" : gap).append(part).append("\n");
    line.remove_prefix(at);
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    first = false;
  }
  out.append(first ? "" : gap).append(line).append("\n");
}

}  // namespace

std::size_t terminal_columns(std::FILE* stream) {
  if (const char* columns = std::getenv("COLUMNS")) {
    std::size_t value = 0;
    const char* end = columns + std::strlen(columns);
    const auto [rest, error] = std::from_chars(columns, end, value);
    if (error == std::errc() && rest == end && value >= fewest_columns) return value;
  }
  winsize size{};
  const int fd = ::fileno(stream);
  if (::isatty(fd) == 1 && ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col >= fewest_columns)
    return size.ws_col;
  return 0;
}

void flush_stdout() {
  errno = 0;
  const bool failed = std::fflush(stdout) != 0 || std::ferror(stdout) != 0;
  if (!failed) return;
  const int reason = errno;
  // Clears the stream's error, so that the flush at the end of the program does not report it
  // again.
  std::clearerr(stdout);
  core::fail(Status::io_error, "standard output: cannot be written{}{}", reason == 0 ? "" : ": ",
             reason == 0 ? "" : std::strerror(reason));
}

std::string wrapped_help(std::string_view text, std::size_t columns,
                         std::size_t description_column) {
  std::string out;
  for_each_line(text, [&](std::string_view line) {
    const std::size_t begin = std::min(line.find_first_not_of(' '), line.size());
    // In CLI11's help, at least two spaces separate an option from its description.
    const bool described =
        line.size() > description_column && description_column > 2 &&
        line[description_column] != ' ' &&
        line.substr(description_column - 2, 2).find_first_not_of(' ') == std::string_view::npos;
    add_wrapped(out, line, columns, described ? description_column : begin == 0 ? 0 : begin + 4);
  });
  return out;
}

std::string filled_paragraphs(std::string_view text, std::size_t columns) {
  std::string out;
  std::string paragraph;
  const auto end_paragraph = [&] {
    if (!paragraph.empty()) add_wrapped(out, paragraph, columns, 0);
    paragraph.clear();
  };
  for_each_line(text, [&](std::string_view line) {
    if (!line.empty() && line.front() != ' ') {
      paragraph.append(paragraph.empty() ? "" : " ").append(line);
      return;
    }
    end_paragraph();
    out.append(line).append("\n");
  });
  end_paragraph();
  return out;
}

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
