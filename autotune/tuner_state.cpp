// SPDX-License-Identifier: Apache-2.0
#include "autotune/tuner_state.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "autotune/entry/candidate.hpp"
#include "autotune/entry/machine.hpp"
#include "autotune/installed.hpp"
#include "autotune/operations.hpp"
#include "core/check.hpp"
#include "core/context_state.hpp"
#include "core/device.hpp"
#include "core/rows_bucket.hpp"

namespace switchback {

using namespace autotune;

namespace {

// Limits on what a tuner remembers of look-ups: answers that no file has (problems measured in this
// process, near shapes, validated defaults), and problems for which no configuration is known. When
// a limit is reached, the remembered answers are dropped and looked up again when needed.
constexpr std::size_t most_others = 2048;
constexpr std::size_t most_unknown = 32768;
constexpr std::size_t most_refused = 4096;
constexpr std::int64_t most_recorded = 8192;
constexpr std::int64_t most_measured = 16384;
constexpr std::size_t most_warning_bytes = 4096;

// A look-up inside a measurement does not start another one, except for the operations inside a
// layer's pass.
thread_local int measuring_depth = 0;
thread_local bool measuring_composed = false;

// Locked during a measurement, because two measurements at a time would disturb each other.
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
  const auto tell = [this](std::string text) { warn(std::move(text)); };
  if (!cache_directory.empty()) {
    cache_file = autotune::cache_file(cache_directory, machine_name(machine));
    writer_.emplace(cache_file, "measured results are kept in this process only", tell);
    record_file = cache_directory / "recorded.jsonl";
  }
  const std::string recorded = options.record_file.empty()
                                   ? from_environment("SWITCHBACK_TUNE_RECORD")
                                   : options.record_file;
  if (!recorded.empty()) record_file = recorded;
  if (mode == TuneMode::record && !record_file.empty())
    recorder_.emplace(record_file, "problems that are missing from the cache are not recorded",
                      tell);
  if (mode != TuneMode::off) read_files(state);
  answers_.emplace(cache.keys() + system_list.keys() + most_others);
  unknown_.emplace(most_unknown);
  refused_.emplace(most_refused);
}

void TunerState::read_files(const ContextState& state) {
  cache.add_file(cache_file);
  if (!state.on_cpu()) {
    std::vector<Entry> entries;
    for (const Operation& operation : operations())
      if (const std::string_view engine = operation.tunable->engine_to_validate; !engine.empty())
        cache.for_each_with(fmt::format("\"{}\"", engine),
                            [&](const Entry& entry) { entries.push_back(entry); });
    learn_kernels(entries);
  }
  system_directory = options.system_directory;
  if (system_directory.empty()) {
    system_directory = from_environment("SWITCHBACK_TUNE_SYSTEM");
    std::error_code error;
    if (!system_directory.empty() && !std::filesystem::exists(system_directory, error))
      warn(fmt::format("SWITCHBACK_TUNE_SYSTEM = {}: it cannot be read: {}; no system list is used",
                       system_directory.string(),
                       error ? error.message() : "no such file or directory"));
  }
  if (system_directory.empty()) system_directory = installed_list();
  find_system_files();
  for (const std::filesystem::path& file : system_files)
    system_list.add_file(file);
  for (const Snapshot* snapshot : {&cache, &system_list})
    for (const Warning& warning : snapshot->warnings())
      warn(autotune::describe(warning));
  if (const std::string_view why = core::why_no_int8(state); !why.empty())
    warn(fmt::format("on this device, mode auto always uses mode standard: {}", why));
}

void TunerState::find_system_files() {
  std::error_code error;
  if (std::filesystem::is_regular_file(system_directory, error))
    system_files.push_back(system_directory);
  for (std::filesystem::directory_iterator it(system_directory, error), end; !error && it != end;
       it.increment(error))
    if (it->path().extension() == ".jsonl") system_files.push_back(it->path());
  std::sort(system_files.begin(), system_files.end());
}

TunerState::~TunerState() {
  try {
    flush();
  } catch (...) {  // out of memory: the waiting entries are lost
  }
}

void TunerState::flush() const {
  const std::lock_guard lock(mutex_);
  for (std::optional<PatientWriter>* file : {&writer_, &recorder_})
    if (*file) (*file)->flush(lock_wait);
}

void TunerState::warn(std::string text) const {
  if (text.size() > most_warning_bytes) {
    text.resize(most_warning_bytes);
    text += " …";
  }
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
  if (answer.is_entry()) {
    hits.fetch_add(1, std::memory_order_relaxed);
    choice = answer.choice;
    return true;
  }
  misses.fetch_add(1, std::memory_order_relaxed);
  if (answer.refused) refusals.fetch_add(1, std::memory_order_relaxed);
  if (mode == TuneMode::require && !is_empty(query))
    core::fail(Status::unsupported,
               "tuner: {} is not in the cache{}, and the tuner's mode is require; measure it with "
               "'switchback-bench tune', or choose mode read",
               autotune::describe(query),
               answer.refused ? " in a usable form (see the tuner's warnings)" : "");
  if (answer.origin != TuneOrigin::validated) return false;
  choice = answer.choice;
  return true;
}

bool TunerState::find(const ConfigQuery& query, const ContextState& state,
                      ConfigChoice& choice) const {
  if (!stale_.load(std::memory_order_acquire)) {
    const std::uint64_t hash = hash_of(query);
    Answer answer;
    if (answers_->find(query, hash, answer)) return give(answer, query, choice);
    if (unknown_->contains(hash)) return give({}, query, choice);
  }
  return first_answer(query, state, choice);
}

void TunerState::remember(const ConfigQuery& query, std::uint64_t hash,
                          const Answer& answer) const {
  const bool is_unknown = answer.origin == TuneOrigin::fallback && !answer.refused;
  const auto insert = [&] {
    return is_unknown ? unknown_->insert(hash) : answers_->insert(query, hash, answer);
  };
  if (insert()) return;
  is_unknown ? unknown_->clear() : answers_->clear();
  insert();
}

std::int64_t TunerState::memory_bytes() const {
  const std::lock_guard lock(mutex_);
  return static_cast<std::int64_t>(answers_->bytes() + unknown_->bytes() + refused_->bytes());
}

bool TunerState::first_answer(const ConfigQuery& query, const ContextState& state,
                              ConfigChoice& choice) const {
  const std::uint64_t hash = hash_of(query);
  Answer answer;
  bool may_measure = mode == TuneMode::tune;
  {
    const std::lock_guard lock(mutex_);
    if (stale_.exchange(false, std::memory_order_acq_rel)) {
      answers_->clear();
      unknown_->clear();
    }
    // Another thread may have measured this problem in the meantime.
    if (answers_->find(query, hash, answer) || unknown_->contains(hash))
      return give(answer, query, choice);
    answer = resolve(query, state);
    may_measure = may_measure && !answer.is_entry() && measured_ < most_measured;
    if (!may_measure) {
      if (recorder_ && !answer.is_entry()) record_miss(query);
      remember(query, hash, answer);
      return give(answer, query, choice);
    }
  }
  const bool is_composed = tunable_of(query.op).is_composed();
  may_measure = !is_empty(query) && !(state.runtime != nullptr && state.runtime->capturing()) &&
                (measuring_depth == 0 || (measuring_composed && !is_composed));
  // The answer is not remembered, so that the next look-up may measure the problem.
  if (!may_measure) return give(answer, query, choice);
  const std::unique_lock turn(measuring_mutex(), std::try_to_lock);
  if (!turn.owns_lock()) return give(answer, query, choice);
  const bool was_composed = measuring_composed;
  ++measuring_depth;
  measuring_composed = is_composed;
  const std::optional<ConfigChoice> found = measure_now(query, state);
  measuring_composed = was_composed;
  --measuring_depth;
  if (found) answer = {*found, TuneOrigin::exact, false};
  const std::lock_guard lock(mutex_);
  if (++measured_ == most_measured)
    warn(
        fmt::format("mode tune has measured {} problems in this process, which is the limit; "
                    "further problems run the default configuration",
                    most_measured));
  remember(query, hash, answer);
  return give(answer, query, choice);
}

std::optional<measure::DisturbanceWatch> TunerState::watch_for(const Context& context) const {
  if (!options.notice_others) return std::nullopt;
  return std::make_optional<measure::DisturbanceWatch>(context.state().on_cpu() ? context.threads()
                                                                                : 1);
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
    search.deadline = Clock::now() + measure::from_seconds(options.budget_per_key_s);
    search.probe = [&](const ConfigChoice& candidate, double limit_s) {
      return is_validated(query, candidate) ? Validation()
                                            : validate(query, state, candidate, limit_s);
    };
    search.validation_is_extra = true;
    std::optional<measure::DisturbanceWatch> watch = watch_for(context);
    if (watch) search.disturbance = &*watch;
    TuneOutcome outcome = tune_problem(context, query, machine, policy, std::move(search));
    tell_unvalidated(outcome.search);
    const bool doubtful = in_doubt(*outcome.entry.winner);
    store_entries({std::move(outcome.entry)});
    if (!doubtful) return outcome.choice;
    warn(fmt::format("{}: the default configuration runs: {}", autotune::describe(query),
                     doubt_text));
    return std::nullopt;
  } catch (const std::exception& error) {
    warn(fmt::format("{} was not measured: {}", autotune::describe(query), error.what()));
    return std::nullopt;
  }
}

Validation TunerState::validate(const ConfigQuery& query, const ContextState& state,
                                const ConfigChoice& choice, double limit_s) const {
  const std::lock_guard lock(validator_mutex_);
  if (!validator_) {
    ValidatorOptions found;
    found.command = helper_command(options.validator, found.why_none);
    validator_.emplace(state, std::move(found));
  }
  return validator_->validate(query, choice, limit_s);
}

void TunerState::end_validation() const {
  const std::lock_guard lock(validator_mutex_);
  validator_.reset();
}

void TunerState::tell_unvalidated(const SearchResult& found) const {
  if (found.unvalidated > 0)
    warn(
        fmt::format("candidates that were never validated on this machine were skipped, because "
                    "they could not be validated in a separate process: {}",
                    found.why_unvalidated));
}

void TunerState::add(std::vector<Entry> entries) {
  store_entries(std::move(entries));
  stale_.store(true, std::memory_order_release);
}

TunerState::Stored TunerState::stored() const {
  const std::lock_guard lock(mutex_);
  return writer_ ? Stored{writer_->written(), writer_->lost(), writer_->error()} : unstored_;
}

void TunerState::store_entries(std::vector<Entry> entries) const {
  const std::lock_guard lock(mutex_);
  families_.reset();
  for (const Entry& entry : entries)
    cache.add(entry);
  learn_kernels(entries);
  if (writer_) return writer_->add(std::move(entries), lock_wait);
  unstored_.lost += std::ssize(entries);
  unstored_.error =
      "there is no cache directory: none of SWITCHBACK_TUNE_CACHE, XDG_CACHE_HOME and HOME is set";
  warn(unstored_.error + "; measured results are kept in this process only");
}

std::vector<Verdict> TunerState::judge(const Entry& entry, const ConfigQuery& query,
                                       const ContextState& state,
                                       std::optional<ConfigChoice>& choice) const {
  return autotune::judge(entry, query, state, environment, options.strict, choice);
}

std::vector<Entry> TunerState::entries_of(const Key& key, const Snapshot& snapshot) const {
  std::vector<Warning> problems;
  std::vector<Entry> entries = snapshot.find(key, &problems);
  for (const Warning& problem : problems)
    warn(autotune::describe(problem));
  return entries;
}

std::optional<ConfigChoice> TunerState::best_of(const Snapshot& snapshot, const Key& key,
                                                const ConfigQuery& query, const ContextState& state,
                                                bool& was_refused) const {
  const std::vector<Entry> entries = entries_of(key, snapshot);
  std::optional<ConfigChoice> choice;
  std::string why;
  const Entry* best = autotune::best_of(entries, [&](const Entry& entry) {
    std::optional<ConfigChoice> usable;
    const std::vector<Verdict> verdicts = judge(entry, query, state, usable);
    if (!usable)
      why = fmt::format("{}: {}", autotune::describe(entry.winner->candidate), verdicts.back().why);
    return usable.has_value();
  });
  if (best != nullptr) {
    judge(*best, query, state, choice);
    return choice;
  }
  if (!why.empty()) {
    was_refused = true;
    warn(fmt::format("{}: its entry is not used: {}", autotune::describe(query), why));
  }
  return std::nullopt;
}

void TunerState::index_families() const {
  families_.emplace();
  cache.for_each([&](const Entry& entry) {
    if (!entry.winner || in_doubt(*entry.winner)) return;
    std::string why;
    const std::optional<KeyParts> parts = parse_key(entry.key.json, why);
    if (!parts || parts->machine != machine || parts->policy != policy) return;
    const Family family = family_of(parts->query, machine, policy);
    (*families_)[family.key.json].push_back({family.m, parts->query});
  });
}

std::optional<ConfigChoice> TunerState::near(const ConfigQuery& query,
                                             const ContextState& state) const {
  if (!families_) index_families();
  const Family family = family_of(query, machine, policy);
  const auto found = families_->find(family.key.json);
  if (found == families_->end()) return std::nullopt;
  const auto distance = [&](const Member& member) {
    return std::abs(std::log(static_cast<double>(member.m) / static_cast<double>(family.m)));
  };
  const Member* nearest = nullptr;
  for (const Member& member : found->second)
    if (core::rows_bucket(member.m) == core::rows_bucket(family.m) &&
        (nearest == nullptr || distance(member) < distance(*nearest)))
      nearest = &member;
  if (nearest == nullptr) return std::nullopt;
  bool ignored = false;
  return best_of(cache, key_of(nearest->query, machine, policy), query, state, ignored);
}

Answer TunerState::resolve(const ConfigQuery& query, const ContextState& state) const {
  Answer answer;
  if (machine.backend != machine_of(state).backend || is_empty(query)) return answer;
  if (refused_->contains(hash_of(query))) {
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
  if (validated_default(query, state, answer.choice)) answer.origin = TuneOrigin::validated;
  return answer;
}

void TunerState::learn_kernels(const std::vector<Entry>& entries) const {
  struct Said {
    ConfigQuery query;
    const Validated* validated;
  };
  std::vector<Said> all;
  for (const Entry& entry : entries) {
    std::string why;
    const std::optional<KeyParts> parts = parse_key(entry.key.json, why);
    if (!parts || parts->machine != machine || !(entry.env == environment)) continue;
    for (const Validated& validated : entry.validated)
      all.push_back({parts->query, &validated});
  }
  // The last result for a kernel counts. Of two results in the same second, "wrong" counts.
  std::stable_sort(all.begin(), all.end(), [](const Said& a, const Said& b) {
    return a.validated->time != b.validated->time
               ? a.validated->time < b.validated->time
               : a.validated->is_right() && !b.validated->is_right();
  });
  for (const Said& said : all) {
    const core::Tunable& tunable = tunable_of(said.query.op);
    if (tunable.kernel_of == nullptr ||
        said.validated->candidate.engine != tunable.engine_to_validate)
      continue;
    std::string why;
    const std::optional<ConfigChoice> choice =
        to_choice(said.query.op, said.validated->candidate, why);
    core::KernelId kernel;
    if (!choice || !tunable.kernel_of(said.query, *choice, kernel)) continue;
    auto of_op = std::find_if(known_kernels_.begin(), known_kernels_.end(),
                              [&](const KernelsOfOp& each) { return each.op == said.query.op; });
    if (of_op == known_kernels_.end())
      of_op = known_kernels_.insert(known_kernels_.end(), {said.query.op, {}});
    core::KnownKernels& known = of_op->kernels;
    std::vector<core::KernelId>& same = said.validated->is_right() ? known.right : known.wrong;
    std::vector<core::KernelId>& other = said.validated->is_right() ? known.wrong : known.right;
    if (std::find(same.begin(), same.end(), kernel) != same.end()) continue;
    same.push_back(kernel);
    std::erase(other, kernel);
    if (tunable.validated_default != nullptr) stale_.store(true, std::memory_order_release);
  }
}

const core::KnownKernels* TunerState::known_kernels(ConfigOp op) const {
  for (const KernelsOfOp& each : known_kernels_)
    if (each.op == op) return &each.kernels;
  return nullptr;
}

bool TunerState::validated_default(const ConfigQuery& query, const ContextState& state,
                                   ConfigChoice& choice) const {
  const core::Tunable& tunable = tunable_of(query.op);
  const core::KnownKernels* known = known_kernels(query.op);
  return known != nullptr && tunable.validated_default != nullptr &&
         tunable.validated_default(query, state, *known, choice);
}

bool TunerState::by_default(const ConfigQuery& query, const ContextState& state,
                            ConfigChoice& choice) const {
  const std::lock_guard lock(mutex_);
  return validated_default(query, state, choice);
}

bool TunerState::is_validated(const ConfigQuery& query, const ConfigChoice& choice) const {
  const core::Tunable& tunable = tunable_of(query.op);
  core::KernelId kernel;
  if (tunable.kernel_of == nullptr || !tunable.kernel_of(query, choice, kernel)) return false;
  const std::lock_guard lock(mutex_);
  const core::KnownKernels* known = known_kernels(query.op);
  return known != nullptr &&
         std::find(known->right.begin(), known->right.end(), kernel) != known->right.end();
}

void TunerState::refused(const ConfigQuery& query, const ConfigChoice& choice,
                         std::string_view reason) const noexcept {
  try {
    {
      const std::lock_guard lock(mutex_);
      if (!refused_->insert(hash_of(query))) {
        refused_->clear();  // the set was full: the other refusals may be reported again
        refused_->insert(hash_of(query));
      }
    }
    stale_.store(true, std::memory_order_release);
    warn(fmt::format("{}: its entry is not used: {}: {}", autotune::describe(query),
                     autotune::describe(to_text(query.op, choice)), reason));
  } catch (...) {  // out of memory: the refusal will be reported again
  }
}

Answer TunerState::look_up(const ConfigQuery& query, const ContextState& state) const {
  const std::lock_guard lock(mutex_);
  return resolve(query, state);
}

bool TunerState::knows(const ConfigQuery& query, const ContextState& state, Effort effort) const {
  const std::lock_guard lock(mutex_);
  const std::vector<Entry> entries = entries_of(key_of(query, machine, policy), cache);
  const Entry* best = autotune::best_of(entries, [&](const Entry& entry) {
    std::optional<ConfigChoice> usable;
    judge(entry, query, state, usable);
    return usable.has_value();
  });
  return best != nullptr && best->winner->effort >= effort;
}

void TunerState::record_miss(const ConfigQuery& query) const {
  if (is_empty(query) || recorded_ > most_recorded) return;
  if (recorded_++ < most_recorded)
    recorder_->add({{key_of(query, machine, policy), environment, {}, {}}}, lock_wait);
  else
    warn(fmt::format(
        "{} problems were recorded in {}, which is the limit; further problems are not recorded",
        most_recorded, record_file.string()));
}

}  // namespace switchback
