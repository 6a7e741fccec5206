// SPDX-License-Identifier: Apache-2.0
#include "autotune/tuner_state.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "autotune/validity.hpp"
#include "core/check.hpp"
#include "core/context_state.hpp"
#include "core/device.hpp"

namespace switchback {

using namespace autotune;

namespace {

std::string from_environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// share/switchback/configs beside the folder that this code was loaded from: of an installed
// library, of a build and of a program that was linked with it alike. (One folder higher where
// libraries lie in lib/<architecture>.)
std::filesystem::path installed_list() {
  Dl_info info;
  if (dladdr(reinterpret_cast<const void*>(&installed_list), &info) == 0 ||
      info.dli_fname == nullptr)
    return {};
  std::error_code error;
  const std::filesystem::path file = std::filesystem::canonical(info.dli_fname, error);
  if (error) return {};
  const std::filesystem::path list = std::filesystem::path("share") / "switchback" / "configs";
  const std::filesystem::path prefix = file.parent_path().parent_path();
  const std::filesystem::path higher = prefix.parent_path() / list;
  if (!std::filesystem::is_directory(prefix / list, error) &&
      std::filesystem::is_directory(higher, error))
    return higher;
  return prefix / list;
}

// Look-ups that a measurement makes are not to be measured in turn, but for the parts of a layer.
thread_local int measuring_depth = 0;
thread_local bool measuring_layer = false;

// One measurement at a time: two would disturb each other.
std::recursive_mutex& measuring_mutex() {
  static std::recursive_mutex mutex;
  return mutex;
}

}  // namespace

TunerState::TunerState(const Context& context, const TunerOptions& given) : options(given) {
  const std::string words =
      options.mode.empty() ? from_environment("SWITCHBACK_TUNE") : options.mode;
  mode = words.empty() ? TuneMode::read : parse_tune_mode(words);
  core::require(options.budget_per_key_s > 0 && std::isfinite(options.budget_per_key_s),
                "tuner: budget_per_key_s = {}; it must be positive", options.budget_per_key_s);
  const ContextState& state = context.state();
  machine = machine_of(state);
  environment = environment_of(state);
  cache_directory = options.cache_directory.empty()
                        ? default_cache_directory()
                        : std::filesystem::path(options.cache_directory);
  if (!cache_directory.empty()) {
    store.emplace(autotune::cache_file(cache_directory, environment_name(machine)));
    record_file = (cache_directory / "recorded.jsonl").string();
  }
  const std::string recorded = options.record_file.empty()
                                   ? from_environment("SWITCHBACK_TUNE_RECORD")
                                   : options.record_file;
  if (!recorded.empty()) record_file = recorded;
  if (mode == TuneMode::off) return;

  if (store) cache.add_file(store->file());
  system_directory = options.system_directory;
  if (system_directory.empty()) system_directory = from_environment("SWITCHBACK_TUNE_SYSTEM");
  if (system_directory.empty()) system_directory = installed_list();
  std::error_code error;
  for (std::filesystem::directory_iterator it(system_directory, error), end; !error && it != end;
       it.increment(error))
    if (it->path().extension() == ".jsonl") system_files.push_back(it->path());
  std::sort(system_files.begin(), system_files.end());
  for (const std::filesystem::path& file : system_files)
    system_list.add_file(file);
  for (const Snapshot* snapshot : {&cache, &system_list})
    for (const Warning& warning : snapshot->warnings())
      warn(autotune::describe(warning));
}

void TunerState::warn(std::string text) const {
  {
    const std::lock_guard lock(warnings_mutex_);
    constexpr std::size_t most = 1000;
    if (warnings_.size() >= most ||
        std::find(warnings_.begin(), warnings_.end(), text) != warnings_.end())
      return;
    warnings_.push_back(text);
  }
  if (options.warn) options.warn(text);
}

std::vector<std::string> TunerState::warnings() const {
  const std::lock_guard lock(warnings_mutex_);
  return warnings_;
}

bool TunerState::give(const Answer& answer, const ConfigQuery& query, ConfigChoice& choice) const {
  if (answer.origin != TuneOrigin::fallback) {
    hits.fetch_add(1, std::memory_order_relaxed);
    choice = answer.choice;
    return true;
  }
  misses.fetch_add(1, std::memory_order_relaxed);
  if (answer.refused) refusals.fetch_add(1, std::memory_order_relaxed);
  if (mode == TuneMode::require && !is_empty(query))
    core::fail(Status::unsupported,
               "tuner: {} is not in the cache{}, and its mode is require; measure it with "
               "'switchback-bench tune', or choose mode read",
               autotune::describe(query),
               answer.refused ? " in a form that can be used here (see its warnings)" : "");
  return false;
}

bool TunerState::find(const ConfigQuery& query, const ContextState& state,
                      ConfigChoice& choice) const {
  if (!stale_.load(std::memory_order_acquire))
    if (const Answer* answer = answers_.find(query)) return give(*answer, query, choice);
  return first_answer(query, state, choice);
}

bool TunerState::first_answer(const ConfigQuery& query, const ContextState& state,
                              ConfigChoice& choice) const {
  Answer answer;
  {
    const std::lock_guard lock(mutex_);
    if (stale_.exchange(false, std::memory_order_acq_rel)) answers_.clear();
    const Answer* known = answers_.find(query);
    answer = known != nullptr ? *known : resolve(query, state);
    if (known != nullptr || answer.origin != TuneOrigin::fallback || mode != TuneMode::tune) {
      if (known == nullptr && mode == TuneMode::record && answer.origin == TuneOrigin::fallback &&
          !is_empty(query))
        record_miss(query);
      answers_.insert(query, answer);
      return give(answer, query, choice);
    }
  }
  const bool may_measure =
      !is_empty(query) && !(state.runtime != nullptr && state.runtime->capturing()) &&
      (measuring_depth == 0 || (measuring_layer && query.op != ConfigOp::layer_mode));
  if (!may_measure) return give(answer, query, choice);  // and it is asked again
  const std::unique_lock turn(measuring_mutex(), std::try_to_lock);
  if (!turn.owns_lock()) return give(answer, query, choice);
  const bool was_layer = measuring_layer;
  ++measuring_depth;
  measuring_layer = query.op == ConfigOp::layer_mode;
  const std::optional<ConfigChoice> found = measure_now(query, state);
  measuring_layer = was_layer;
  --measuring_depth;
  if (found) answer = {*found, TuneOrigin::exact, false};
  const std::lock_guard lock(mutex_);
  answers_.insert(query, answer);
  return give(answer, query, choice);
}

std::optional<ConfigChoice> TunerState::measure_now(const ConfigQuery& query,
                                                    const ContextState& state) const {
  try {
    ContextOptions like;
    like.device = device_name(state.device);
    if (state.on_cpu()) {
      like.threads = state.threads.count();
      like.isa = core::isa_name(state.features.level());
    }
    Context context(like);
    context.set_config_source(std::shared_ptr<const ConfigSource>(std::shared_ptr<void>(), this));
    SearchOptions search;
    search.effort = Effort::quick;
    search.deadline = Clock::now() + from_seconds(options.budget_per_key_s);
    TuneOutcome outcome = tune_problem(context, query, machine, policy, std::move(search));
    const ConfigChoice choice = outcome.choice;
    store_records(std::move(outcome.records));
    return choice;
  } catch (const std::exception& error) {
    warn(fmt::format("{} was not measured: {}", autotune::describe(query), error.what()));
    return std::nullopt;
  }
}

void TunerState::add(std::vector<Record> records) {
  store_records(std::move(records));
  stale_.store(true, std::memory_order_release);
}

void TunerState::store_records(std::vector<Record> records) const {
  const std::lock_guard lock(mutex_);
  if (store && !store_failed_) {
    try {
      autotune::Store(*store).append(records);
    } catch (const Error& error) {
      store_failed_ = true;
      warn(fmt::format("{}; what is measured is known to this process alone", error.what()));
    }
  }
  families_indexed_ = false;
  for (Record& record : records) {
    if (record.type == RecordType::sample) continue;
    std::vector<Record>& known = fresh_[record.key.json];
    known.push_back(std::move(record));
  }
}

std::vector<Record> TunerState::records_of(const Key& key, const Snapshot& snapshot) const {
  std::vector<Warning> problems;
  std::vector<Record> records = snapshot.find(key, &problems);
  for (const Warning& problem : problems)
    warn(autotune::describe(problem));
  if (&snapshot == &cache) {
    const auto found = fresh_.find(key.json);
    if (found != fresh_.end())
      records.insert(records.end(), found->second.begin(), found->second.end());
  }
  return records;
}

std::optional<ConfigChoice> TunerState::best_of(const Snapshot& snapshot, const Key& key,
                                                const ConfigQuery& query, const ContextState& state,
                                                bool& was_refused) const {
  const std::vector<Record> records = records_of(key, snapshot);
  std::optional<ConfigChoice> choice;
  std::string why;
  const Record* best = Snapshot::best(records, [&](const Record& record) {
    std::optional<ConfigChoice> usable;
    const std::vector<Verdict> verdicts =
        judge(record, query, state, environment, options.strict, usable);
    if (!usable)
      why = fmt::format("{}: {}", autotune::describe(record.candidate), verdicts.back().why);
    return usable.has_value();
  });
  if (best != nullptr) {
    judge(*best, query, state, environment, options.strict, choice);
    return choice;
  }
  if (!why.empty()) {
    was_refused = true;
    warn(fmt::format("{}: its entry is not used: {}", autotune::describe(query), why));
  }
  return std::nullopt;
}

void TunerState::index_families() const {
  const auto add = [&](const Record& record) {
    if (record.type != RecordType::winner) return;
    std::string why;
    const std::optional<KeyParts> parts = parse_key(record.key.json, why);
    if (!parts || parts->machine != machine || parts->policy != policy) return;
    const Family family = family_of(parts->query, machine, policy);
    families_[family.key.json].push_back({family.m, parts->query});
  };
  families_.clear();
  cache.for_each(add);
  for (const auto& [key, records] : fresh_)
    for (const Record& record : records)
      add(record);
}

std::optional<ConfigChoice> TunerState::near(const ConfigQuery& query,
                                             const ContextState& state) const {
  if (!families_indexed_) index_families();
  families_indexed_ = true;
  const Family family = family_of(query, machine, policy);
  const auto found = families_.find(family.key.json);
  if (found == families_.end()) return std::nullopt;
  const auto distance = [&](const Member& member) {
    return std::abs(std::log(static_cast<double>(member.m) / static_cast<double>(family.m)));
  };
  const Member* nearest = nullptr;
  for (const Member& member : found->second)
    if (m_bucket(member.m) == m_bucket(family.m) &&
        (nearest == nullptr || distance(member) < distance(*nearest)))
      nearest = &member;
  if (nearest == nullptr) return std::nullopt;
  bool ignored = false;
  return best_of(cache, key_of(nearest->query, machine, policy), query, state, ignored);
}

Answer TunerState::resolve(const ConfigQuery& query, const ContextState& state) const {
  Answer answer;
  if (machine.backend != machine_of(state).backend || is_empty(query)) return answer;
  if (std::find(refused_.begin(), refused_.end(), query) != refused_.end()) {
    answer.refused = true;
    return answer;
  }
  const Key key = key_of(query, machine, policy);
  const auto take = [&](std::optional<ConfigChoice> choice, TuneOrigin origin) {
    if (choice) answer = {*choice, origin, false};
    return choice.has_value();
  };
  bool was_refused = false;
  if (take(best_of(cache, key, query, state, was_refused), TuneOrigin::exact)) return answer;
  if (options.near_shapes && take(near(query, state), TuneOrigin::near_shape)) return answer;
  if (take(best_of(system_list, key, query, state, was_refused), TuneOrigin::system_list))
    return answer;
  answer.refused = was_refused;
  return answer;
}

void TunerState::refused(const ConfigQuery& query, const ConfigChoice& choice,
                         std::string_view reason) const noexcept {
  try {
    {
      const std::lock_guard lock(mutex_);
      if (std::find(refused_.begin(), refused_.end(), query) == refused_.end())
        refused_.push_back(query);
    }
    stale_.store(true, std::memory_order_release);
    warn(fmt::format("{}: its entry is not used: {}: {}", autotune::describe(query),
                     autotune::describe(to_text(query.op, choice)), reason));
  } catch (...) {  // out of memory: it will be told again
  }
}

Answer TunerState::look_up(const ConfigQuery& query, const ContextState& state) const {
  const std::lock_guard lock(mutex_);
  return resolve(query, state);
}

bool TunerState::knows(const ConfigQuery& query, const ContextState& state, Effort effort) const {
  const std::lock_guard lock(mutex_);
  const std::vector<Record> records = records_of(key_of(query, machine, policy), cache);
  const Record* best = Snapshot::best(records, [&](const Record& record) {
    std::optional<ConfigChoice> usable;
    judge(record, query, state, environment, options.strict, usable);
    return usable.has_value();
  });
  return best != nullptr && best->effort >= effort;
}

void TunerState::record_miss(const ConfigQuery& query) const {
  if (record_file.empty() || record_failed_) return;
  Record record;
  record.type = RecordType::miss;
  record.key = key_of(query, machine, policy);
  record.env = environment;
  record.time = time_now();
  try {
    autotune::Store(record_file).append(std::span(&record, 1));
  } catch (const Error& error) {
    record_failed_ = true;
    warn(fmt::format("{}; what is not in the cache is not recorded", error.what()));
  }
}

}  // namespace switchback
