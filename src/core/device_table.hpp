// SPDX-License-Identifier: Apache-2.0
// Core: tables with one entry for each kind of device, such as its platform or its engines for an
// operation.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "core/device_kind.hpp"

namespace switchback::core {

/// The public name of the reference engine of every operation, with which tests compare results.
inline constexpr std::string_view oracle_name = "reference";

/// One entry for each kind of device, in the order of DeviceKind; the entry is empty if this build
/// has nothing for a kind. The owner of a table makes it from the CPU's entry and the entry of the
/// linked CUDA backend (core/cuda/platform.hpp).
template <class T>
struct DeviceTable {
  using Entry = T;
  std::array<Entry, device_kinds> entries = {};

  [[nodiscard]] const Entry& of(DeviceKind kind) const noexcept {
    return entries[static_cast<std::size_t>(kind)];
  }
  void install(DeviceKind kind, Entry entry) noexcept {
    entries[static_cast<std::size_t>(kind)] = entry;
  }
};

/// The engines (implementations) of an operation for each kind of device, in order of preference.
/// An Engine has an `id`, which caches store, and a `name`, which users see.
template <class Engine>
struct EngineTable : DeviceTable<std::span<const Engine* const>> {
  /// Finds an engine by number or name; null if the device has no such engine.
  [[nodiscard]] const Engine* find(DeviceKind kind, decltype(Engine::id) id) const noexcept {
    for (const Engine* engine : this->of(kind))
      if (engine->id == id) return engine;
    return nullptr;
  }
  [[nodiscard]] const Engine* find(DeviceKind kind, std::string_view name) const noexcept {
    for (const Engine* engine : this->of(kind))
      if (engine->name == name) return engine;
    return nullptr;
  }
  /// The names of a device's engines, as in "avx2, reference", for error messages.
  [[nodiscard]] std::string names(DeviceKind kind) const {
    std::string names;
    for (const Engine* engine : this->of(kind))
      names.append(names.empty() ? "" : ", ").append(engine->name);
    return names;
  }
};

}  // namespace switchback::core
