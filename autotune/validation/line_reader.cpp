// SPDX-License-Identifier: Apache-2.0
#include "autotune/validation/line_reader.hpp"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "measure/stopwatch.hpp"

namespace switchback::autotune {

LineReader::Reply LineReader::read(int descriptor, std::chrono::duration<double> limit,
                                   std::string& line) {
  const measure::Clock::time_point end = measure::deadline_in(limit.count());
  std::array<char, 4096> part{};
  for (;;) {
    if (const std::size_t newline = read_.find('\n'); newline != std::string::npos) {
      line = read_.substr(0, newline);
      read_.erase(0, newline + 1);
      return Reply::line;
    }
    if (read_.size() > most_bytes_) return Reply::closed;
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(end - measure::Clock::now()).count();
    if (left <= 0) return Reply::late;
    pollfd waited{descriptor, POLLIN, 0};
    const int ready = ::poll(&waited, 1, static_cast<int>(std::min<long long>(left, 1000)));
    if (ready < 0 && errno != EINTR) return Reply::closed;
    if (ready <= 0) continue;
    const ssize_t count = ::read(descriptor, part.data(), part.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return Reply::closed;
    read_.append(part.data(), static_cast<std::size_t>(count));
  }
}

}  // namespace switchback::autotune
