// SPDX-License-Identifier: Apache-2.0
#include "measure/caches.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "core/context_state.hpp"
#include "core/cpu/isa.hpp"
#include "core/device.hpp"

namespace switchback::measure {

namespace {

// The size of the last cache, at most 128 MiB: a system may report the cache of a whole host, of
// which one process has only a part.
double last_cache_bytes(Context& context) noexcept {
  constexpr double by_default = 32.0 * (1 << 20);
  double cache = static_cast<double>(core::cpu_caches().l3_bytes);
  if (const auto& runtime = context.state().runtime; runtime != nullptr)
    cache = static_cast<double>(runtime->info().l2_bytes);
  return cache > 0 ? std::min(cache, 4 * by_default) : by_default;
}

}  // namespace

std::size_t rotation(Context& context, double bytes) noexcept {
  constexpr double most = 4;
  return static_cast<std::size_t>(
      std::clamp(std::ceil(1.5 * last_cache_bytes(context) / std::max(bytes, 1.0)), 1.0, most));
}

double cold_bytes() noexcept {
  constexpr double by_default = 32.0 * (1 << 20);
  const auto& caches = core::cpu_caches();
  const auto last = static_cast<double>(std::max(caches.l2_bytes, caches.l3_bytes));
  return 2 * std::max(last, by_default);
}

std::size_t Turns::add(double bytes, std::function<void()> add_copy) {
  operands_.push_back({.bytes = bytes, .add_copy = std::move(add_copy)});
  return operands_.size() - 1;
}

std::size_t Turns::next(std::size_t operand) noexcept {
  Operand& one = operands_[operand];
  ++one.uses;
  one.at = (one.at + 1) % one.copies;
  return one.at;
}

// Each use of an operand in a round has its own copy. Further rounds have further copies, until
// `bytes` bytes of memory have been used. The number of copies is also limited to those that use
// `bytes` by themselves. Operands of a few bytes would need millions of copies, which cost more
// than they tell.
std::size_t Turns::copies_of(double operand_bytes, std::int64_t uses, double round_bytes,
                             double bytes) noexcept {
  constexpr double most = 16384;
  if (!(bytes > 0) || uses < 1 || !(operand_bytes > 0)) return 1;
  const double rounds = std::ceil(bytes / std::max(round_bytes, 1.0));
  const double by_itself = std::ceil(bytes / operand_bytes);
  return static_cast<std::size_t>(
      std::clamp(std::min(static_cast<double>(uses) * rounds, by_itself), 1.0, most));
}

void Turns::make_copies(Calls calls) {
  if (!cold()) return;
  for (Operand& operand : operands_)
    operand.uses = 0;
  for (const auto& call : calls)
    call();
  double round_bytes = 0;
  for (const Operand& operand : operands_)
    round_bytes += operand.bytes * static_cast<double>(operand.uses);
  for (Operand& operand : operands_) {
    const std::size_t wanted = copies_of(operand.bytes, operand.uses, round_bytes, bytes_);
    for (; operand.copies < wanted; ++operand.copies)
      operand.add_copy();
  }
}

double Turns::total_bytes() const noexcept {
  double total = 0;
  for (const Operand& operand : operands_)
    total += operand.bytes * static_cast<double>(operand.copies);
  return total;
}

CacheSweep::CacheSweep(Context& context, double task_bytes)
    : context_(context), buffer_(context.state().make_buffer()) {
  constexpr double times_the_task = 4;
  const double most = last_cache_bytes(context);
  double least = 0;
  if (context.state().on_cpu()) {
    constexpr double typical_l2 = 1 << 20;
    const auto l2 = static_cast<double>(core::cpu_caches().l2_bytes);
    least = 2 * (l2 > 0 ? l2 : typical_l2) * context.state().threads.count();
  }
  bytes_ = static_cast<std::size_t>(
      std::clamp(times_the_task * task_bytes, std::min(least, most), most));
}

double CacheSweep::seconds() const noexcept {
  // A low estimate of the memory bandwidth of a CPU thread; that of a GPU is much higher.
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

CacheFlush::CacheFlush(const Context& context)
    : runtime_(*context.state().runtime),
      buffer_(context.state().make_buffer()),
      bytes_(2 * runtime_.info().l2_bytes) {
  buffer_.reserve(bytes_);
}

void CacheFlush::run() {
  runtime_.fill(buffer_.as<std::byte>(), 0, bytes_);
}

}  // namespace switchback::measure
