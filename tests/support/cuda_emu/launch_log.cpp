// SPDX-License-Identifier: Apache-2.0
#include "launch_log.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <utility>

#include "symbols.hpp"

namespace switchback_cuda_emu {

namespace {

class Log {
 public:
  explicit Log(const char* file) : file_(file) {}
  ~Log() {
    std::FILE* const to = std::fopen(file_, "a");
    if (to == nullptr) return;
    for_each_symbol([this, to](const Symbol& symbol) {
      if (!symbol.function) return;
      for (auto it = most_.lower_bound({symbol.at, 0});
           it != most_.end() && it->first.first == symbol.at; ++it)
        std::fprintf(to, "%d %d %zu %zu %s\n", it->first.second, it->second.threads,
                     it->second.shared_bytes, it->second.shared_limit, symbol.name);
    });
    std::fclose(to);
  }
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  void add(const LoggedLaunch& launch) {
    LoggedLaunch& most = most_[{launch.function, launch.compute_capability}];
    most.threads = std::max(most.threads, launch.threads);
    most.shared_bytes = std::max(most.shared_bytes, launch.shared_bytes);
    most.shared_limit = std::max(most.shared_limit, launch.shared_limit);
  }

 private:
  const char* file_;
  std::map<std::pair<const void*, int>, LoggedLaunch> most_;
};

}  // namespace

void log_launch(const LoggedLaunch& launch) {
  static const char* const file = std::getenv("SWITCHBACK_CUDA_EMU_LAUNCHES");
  if (file == nullptr) return;
  static Log log(file);
  log.add(launch);
}

}  // namespace switchback_cuda_emu
