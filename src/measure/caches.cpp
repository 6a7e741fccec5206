// SPDX-License-Identifier: Apache-2.0
#include "measure/caches.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/context_state.hpp"
#include "core/cpu/isa.hpp"
#include "core/device.hpp"

namespace switchback::measure {

namespace {

// A system may report the cache of a whole host, of which one process has only a part.
double last_cache_bytes(Context& context) noexcept {
  constexpr double usual = 32.0 * (1 << 20);
  double cache = static_cast<double>(core::cpu_caches().l3_bytes);
  if (const auto& runtime = context.state().runtime; runtime != nullptr)
    cache = static_cast<double>(runtime->info().l2_bytes);
  return cache > 0 ? std::min(cache, 4 * usual) : usual;
}

}  // namespace

std::size_t rotation(Context& context, double bytes) noexcept {
  constexpr double most = 4;
  return static_cast<std::size_t>(
      std::clamp(std::ceil(1.5 * last_cache_bytes(context) / std::max(bytes, 1.0)), 1.0, most));
}

CacheSweep::CacheSweep(Context& context, double task_bytes)
    : context_(context), buffer_(context.state().make_buffer()) {
  constexpr double times_the_task = 4;
  const double most = last_cache_bytes(context);
  double least = 0;
  if (context.state().on_cpu()) {
    constexpr double usual_l2 = 1 << 20;
    const auto l2 = static_cast<double>(core::cpu_caches().l2_bytes);
    least = 2 * (l2 > 0 ? l2 : usual_l2) * context.state().threads.count();
  }
  bytes_ = static_cast<std::size_t>(
      std::clamp(times_the_task * task_bytes, std::min(least, most), most));
}

double CacheSweep::seconds() const noexcept {
  // A low estimate of a thread's memory bandwidth; a GPU's is much higher.
  const double bytes_per_s = context_.state().on_cpu() ? 6e9 : 200e9;
  return static_cast<double>(bytes_) / bytes_per_s;
}

void CacheSweep::run() noexcept {
  if (failed_) return;
  try {
    buffer_.reserve(bytes_);
    if (core::DeviceRuntime* runtime = context_.state().runtime.get(); runtime != nullptr)
      return runtime->fill(buffer_.as<std::byte>(), 0, bytes_);
    constexpr std::size_t line = 64;
    auto* const bytes = buffer_.as<std::uint8_t>();
    const auto lines = static_cast<std::int64_t>(bytes_ / line);
    const int workers = context_.state().threads.count();
    context_.state().threads.for_each(workers, [&](std::int64_t part, int) {
      for (std::int64_t i = lines * part / workers; i < lines * (part + 1) / workers; ++i)
        ++bytes[static_cast<std::size_t>(i) * line];
    });
  } catch (...) {
    failed_ = true;
  }
}

CacheFlush::CacheFlush(Context& context)
    : runtime_(*context.state().runtime),
      buffer_(context.state().make_buffer()),
      bytes_(2 * runtime_.info().l2_bytes) {
  buffer_.reserve(bytes_);
}

void CacheFlush::run() {
  runtime_.fill(buffer_.as<std::byte>(), 0, bytes_);
}

}  // namespace switchback::measure
