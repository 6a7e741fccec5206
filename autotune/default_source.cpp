// SPDX-License-Identifier: Apache-2.0
#include "autotune/default_source.hpp"

#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "autotune/installed.hpp"
#include "core/config_source.hpp"
#include "core/context_state.hpp"

namespace switchback {

namespace {

std::atomic<bool> nothing_by_itself = false;

// The default source of configurations of one Context. It opens the tuner at the first look-up, so
// a Context that never looks anything up, or gets another source, reads no file.
class DefaultSource final : public ConfigSource {
 public:
  bool find(const ConfigQuery& query, const ContextState& state,
            ConfigChoice& choice) const override {
    return tuner(state).find(query, state, choice);
  }
  bool by_default(const ConfigQuery& query, const ContextState& state,
                  ConfigChoice& choice) const override {
    return tuner(state).by_default(query, state, choice);
  }
  void refused(const ConfigQuery& query, const ConfigChoice& choice,
               std::string_view reason) const noexcept override {
    if (const TunerState* tuner = opened_.load(std::memory_order_acquire))
      tuner->refused(query, choice, reason);
  }
  void warn(std::string text) const override {
    if (const TunerState* tuner = opened_.load(std::memory_order_acquire))
      tuner->warn(std::move(text));
  }

 private:
  const TunerState& tuner(const ContextState& state) const {
    if (const TunerState* tuner = opened_.load(std::memory_order_acquire)) return *tuner;
    const std::lock_guard lock(mutex_);
    if (tuner_ == nullptr) tuner_ = autotune::default_tuner(state);
    opened_.store(tuner_.get(), std::memory_order_release);
    return *tuner_;
  }

  mutable std::mutex mutex_;
  mutable std::shared_ptr<const TunerState> tuner_;
  mutable std::atomic<const TunerState*> opened_ = nullptr;
};

}  // namespace

std::shared_ptr<const ConfigSource> core::default_source() {
  if (nothing_by_itself.load(std::memory_order_relaxed) ||
      autotune::from_environment("SWITCHBACK_TUNE") == tune_mode_name(TuneMode::off))
    return nullptr;
  return std::make_shared<DefaultSource>();
}

namespace autotune {

std::shared_ptr<const TunerState> default_tuner(const ContextState& state) {
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<const TunerState>> tuners;
  std::string setting = machine_name(machine_of(state));
  constexpr std::array names = {"SWITCHBACK_TUNE",        "SWITCHBACK_TUNE_CACHE",
                                "SWITCHBACK_TUNE_SYSTEM", "SWITCHBACK_TUNE_RECORD",
                                "XDG_CACHE_HOME",         "HOME"};
  for (const char* name : names)
    setting += '\n' + from_environment(name);
  const std::lock_guard lock(mutex);
  std::weak_ptr<const TunerState>& known = tuners[setting];
  std::shared_ptr<const TunerState> tuner = known.lock();
  if (tuner == nullptr) {
    // One thread suffices here: a tuner serves Contexts of one kind of device with any number of
    // threads and any instruction set.
    const Context like({.device = device_name(state.device), .threads = 1});
    known = tuner = std::make_shared<TunerState>(like, TunerOptions());
  }
  return tuner;
}

void look_nothing_up_by_itself() noexcept {
  nothing_by_itself.store(true, std::memory_order_relaxed);
}

}  // namespace autotune

}  // namespace switchback
