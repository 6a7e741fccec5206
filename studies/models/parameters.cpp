// SPDX-License-Identifier: Apache-2.0
#include "studies/models/parameters.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <vector>

#include "core/check.hpp"
#include "studies/models/memory.hpp"
#include "studies/models/philox.hpp"

namespace switchback::models {

namespace {

constexpr std::string_view magic = "switchback model 1\n";

// FNV-1a
std::uint64_t hash_of(std::string_view text) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text)
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

void fill(ContextState& state, std::span<float> values, float deviation, std::uint64_t key,
          std::uint64_t stream) {
  const float reach = deviation * std::sqrt(3.0f);  // of a uniform distribution
  constexpr std::int64_t grain = 65536;
  state.threads.for_ranges(
      static_cast<std::int64_t>(values.size()), grain,
      [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t i = begin; i < end; i += 4) {
          const auto counter = static_cast<std::uint64_t>(i / 4);
          const philox::Words words = philox::bits(
              key, {static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32),
                    static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)});
          for (std::int64_t j = 0; j < 4 && i + j < end; ++j) {
            const float unit =
                static_cast<float>(words[static_cast<std::size_t>(j)] >> 8) * 0x1p-24f;
            values[static_cast<std::size_t>(i + j)] = reach * (2.0f * unit - 1.0f);
          }
        }
      });
}

template <class T>
void put(std::ostream& to, const T& value) {
  to.write(reinterpret_cast<const char*>(&value), sizeof value);
}
template <class T>
T take(std::istream& from) {
  T value{};
  from.read(reinterpret_cast<char*>(&value), sizeof value);
  return value;
}

}  // namespace

Parameter& Parameters::get(const NewParameter& wanted) {
  if (const auto found = by_name_.find(wanted.name); found != by_name_.end()) {
    Parameter& p = *found->second;
    core::require(p.value.rows() == wanted.rows && p.value.cols() == wanted.cols,
                  "parameters: {} is {}x{}; it cannot be shared as {}x{}", p.name, p.value.rows(),
                  p.value.cols(), wanted.rows, wanted.cols);
    return p;
  }
  Parameter p;
  p.name = wanted.name;
  p.decays = wanted.decays;
  p.value = memory_.take(MemoryClass::param, DType::f32, wanted.rows, wanted.cols);
  p.gradient = memory_.take(MemoryClass::grad, DType::f32, wanted.rows, wanted.cols);
  if (wanted.read_as == DType::bf16)
    p.copy = memory_.take(MemoryClass::param, DType::bf16, wanted.rows, wanted.cols);
  std::vector<float> on_host;
  std::span<float> values = p.value.floats();
  if (!state_.on_cpu()) {
    on_host.resize(values.size());
    values = on_host;
  }
  if (wanted.deviation > 0)
    fill(state_, values, wanted.deviation, seed_, hash_of(wanted.name));
  else
    std::fill(values.begin(), values.end(), wanted.constant);
  if (!state_.on_cpu()) write(state_, on_host.data(), p.value);
  zero(state_, p.gradient.any());
  refresh_copy(p);
  all_.push_back(std::move(p));
  by_name_.emplace(wanted.name, &all_.back());
  return all_.back();
}

void Parameters::refresh_copy(Parameter& p) {
  if (p.copy.empty()) return;
  if (!state_.on_cpu()) return state_.runtime->convert(p.value.any(), p.copy.any(), false);
  std::transform(p.value.floats().begin(), p.value.floats().end(),
                 p.copy.values<bfloat16>().begin(), [](float v) { return bfloat16(v); });
}

std::int64_t Parameters::count() const noexcept {
  std::int64_t sum = 0;
  for (const Parameter& p : all_)
    sum += p.value.size();
  return sum;
}

void Parameters::save(const std::string& file) const {
  std::ofstream to(file, std::ios::binary | std::ios::trunc);
  to << magic;
  put(to, static_cast<std::uint64_t>(all_.size()));
  for (const Parameter& p : all_) {
    put(to, static_cast<std::uint64_t>(p.name.size()));
    to << p.name;
    put(to, p.value.rows());
    put(to, p.value.cols());
    to.write(reinterpret_cast<const char*>(floats_of(state_, p.value).data()),
             static_cast<std::streamsize>(p.value.size_bytes()));
  }
  to.close();
  if (!to) core::fail(Status::io_error, "parameters: {}: it cannot be written", file);
}

void Parameters::load(const std::string& file) {
  std::ifstream from(file, std::ios::binary);
  if (!from) core::fail(Status::io_error, "parameters: {}: it cannot be read", file);
  std::string head(magic.size(), '\0');
  from.read(head.data(), static_cast<std::streamsize>(head.size()));
  core::require(from.good() && head == magic, "parameters: {}: it is not a switchback model", file);
  const auto count = take<std::uint64_t>(from);
  core::require(from.good() && count == all_.size(), "parameters: {}: it has {} parameters, not {}",
                file, count, all_.size());
  std::vector<std::vector<float>> values;
  for (const Parameter& p : all_) {
    const auto length = take<std::uint64_t>(from);
    core::require(from.good() && length == p.name.size(),
                  "parameters: {}: the file has another parameter where {} is expected", file,
                  p.name);
    std::string name(p.name.size(), '\0');
    from.read(name.data(), static_cast<std::streamsize>(name.size()));
    const auto rows = take<std::int64_t>(from);
    const auto cols = take<std::int64_t>(from);
    core::require(from.good() && name == p.name,
                  "parameters: {}: the file has another parameter where {} is expected", file,
                  p.name);
    core::require(rows == p.value.rows() && cols == p.value.cols(),
                  "parameters: {}: {} is {}x{}, not {}x{}", file, p.name, rows, cols,
                  p.value.rows(), p.value.cols());
    values.emplace_back(static_cast<std::size_t>(p.value.size()));
    from.read(reinterpret_cast<char*>(values.back().data()),
              static_cast<std::streamsize>(p.value.size_bytes()));
    core::require(from.good(), "parameters: {}: the file ends within {}", file, p.name);
  }
  for (std::size_t i = 0; i < all_.size(); ++i) {
    write(state_, values[i].data(), all_[i].value);
    refresh_copy(all_[i]);
  }
}

}  // namespace switchback::models
