// SPDX-License-Identifier: Apache-2.0
#include "core/cpu/threads.hpp"

#include <mutex>
#include <thread>
#include <vector>

namespace switchback::core {

void try_threads(int count) {
  std::mutex gate;
  std::vector<std::thread> threads;
  const auto open = [&] {
    for (std::thread& thread : threads)
      thread.join();
  };
  threads.reserve(static_cast<std::size_t>(count));
  {
    std::unique_lock closed(gate);
    try {
      for (int i = 0; i < count; ++i)
        threads.emplace_back([&gate] { const std::scoped_lock pass(gate); });
    } catch (...) {
      closed.unlock();
      open();
      throw;
    }
  }
  open();
}

}  // namespace switchback::core
