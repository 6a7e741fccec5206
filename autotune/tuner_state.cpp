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
#include "autotune/entry/environment.hpp"
#include "autotune/entry/validity.hpp"
#include "autotune/installed.hpp"
#include "autotune/operations.hpp"
#include "core/check.hpp"
#include "core/context_state.hpp"
#include "core/device.hpp"
#include "core/rows_bucket.hpp"

namespace switchback {

using namespace autotune;

namespace {

// How much is remembered of look-ups besides problems in files: answers for unknown problems, and
// problems that are measured while the tuner lives.
constexpr std::size_t most_misses = 2048;
constexpr std::size_t most_new = 1024;
// Knowing all known problems takes some 30 microseconds of each. Where there are more, or where
// near shapes count, what was remembered is forgotten when it is too much.
constexpr std::size_t most_indexed = 8192;
constexpr std::size_t most_refused = 4096;
constexpr std::size_t most_recorded = 65536;
constexpr std::int64_t most_measured = 16384;
constexpr std::size_t most_warning_bytes = 4096;

// Look-ups inside a measurement are not measured themselves, except for the parts of a layer.
thread_local int measuring_depth = 0;
thread_local bool measuring_composed = false;

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
  answers_.emplace(mode == TuneMode::off ? 1 : most_misses + most_new);
  if (mode == TuneMode::off) return;

  if (store) cache.add_file(store->file());
  if (!state.on_cpu())
    for (const Operation& operation : operations())
      if (!operation.tunable->proven_engine.empty())
        cache.for_each_of_engine(operation.tunable->proven_engine,
                                 [&](const Record& record) { learn_kernel(record); });
  system_directory = options.system_directory;
  if (system_directory.empty()) {
    system_directory = from_environment("SWITCHBACK_TUNE_SYSTEM");
    std::error_code error;
    if (!system_directory.empty() && !std::filesystem::exists(system_directory, error))
      warn(
          fmt::format("SWITCHBACK_TUNE_SYSTEM = {}: it cannot be read: {}; there is no system list",
                      system_directory.string(),
                      error ? error.message() : "there is no such file or directory"));
  }
  if (system_directory.empty()) system_directory = installed_list();
  find_system_files();
  for (const std::filesystem::path& file : system_files)
    system_list.add_file(file);
  for (const Snapshot* snapshot : {&cache, &system_list})
    for (const Warning& warning : snapshot->warnings())
      warn(autotune::describe(warning));
  if (const std::string_view why = core::why_no_int8(state); !why.empty())
    warn(fmt::format("mode auto of a layer is standard on this device: {}", why));
  const std::size_t keys = cache.keys() + system_list.keys();
  if (keys > 0) answers_.emplace(keys + most_misses + most_new);
  if (keys == 0) index_known();
  if (mode == TuneMode::record) recorded_.emplace(most_recorded);
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
  } catch (...) {  // out of memory
  }
}

void TunerState::flush() const {
  const std::lock_guard lock(mutex_);
  next_try_ = {};
  write_unsaved();
  std::string error;
  if (!unrecorded_.empty()) {
    autotune::Store file(record_file);
    write(file, unrecorded_, record_failed_, "what is not in the cache is not recorded", error);
  }
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
               "tuner: {} is not in the cache{}, and its mode is require; measure it with "
               "'switchback-bench tune', or choose mode read",
               autotune::describe(query),
               answer.refused ? " in a form that can be used here (see its warnings)" : "");
  if (answer.origin != TuneOrigin::proven) return false;
  choice = answer.choice;
  return true;
}

bool TunerState::find(const ConfigQuery& query, const ContextState& state,
                      ConfigChoice& choice) const {
  if (!stale_.load(std::memory_order_acquire)) {
    const std::uint64_t hash = hash_of(query);
    Answer answer;
    if (answers_->find(query, hash, answer)) return give(answer, query, choice);
    if (is_settled_miss(hash)) return give({}, query, choice);
  }
  return first_answer(query, state, choice);
}

bool TunerState::is_settled_miss(std::uint64_t hash) const noexcept {
  const QuerySet* known = known_.load(std::memory_order_acquire);
  if (known == nullptr || knows_kernels_.load(std::memory_order_relaxed) ||
      mode == TuneMode::tune || known->contains(hash))
    return false;
  return mode != TuneMode::record || recording_over_.load(std::memory_order_relaxed) ||
         recorded_->contains(hash);
}

void TunerState::index_known() const {
  if (options.near_shapes || cache.keys() + system_list.keys() > most_indexed) return;
  auto known =
      std::make_unique<QuerySet>(cache.keys() + system_list.keys() + fresh_.size() + most_new);
  const auto add = [&](const Key& key) {
    std::string why;
    const std::optional<KeyParts> parts = parse_key(key.json, why);
    if (parts && parts->machine == machine && parts->policy == policy)
      known->insert(hash_of(parts->query));
  };
  for (const Snapshot* snapshot : {&cache, &system_list})
    snapshot->for_each_key(add);
  for (const auto& [key, records] : fresh_)
    if (!records.empty()) add(records.front().key);
  known_sets_.push_back(std::move(known));
  known_.store(known_sets_.back().get(), std::memory_order_release);
}

void TunerState::add_known(const ConfigQuery& query) const {
  if (known_sets_.empty() || known_sets_.back()->insert(hash_of(query))) return;
  // Readers may still use the smaller sets; all of them together are no larger than the last one.
  auto larger = std::make_unique<QuerySet>(2 * known_sets_.back()->most());
  known_sets_.back()->for_each([&](std::uint64_t hash) { larger->insert(hash); });
  larger->insert(hash_of(query));
  known_sets_.push_back(std::move(larger));
  known_.store(known_sets_.back().get(), std::memory_order_release);
}

void TunerState::remember(const ConfigQuery& query, std::uint64_t hash,
                          const Answer& answer) const {
  const auto forget = [&] {
    answers_->clear();
    misses_remembered_ = 0;
  };
  // Entries of files are bounded by the files; what is near one of them is not.
  const bool bounded = answer.origin == TuneOrigin::exact ||
                       answer.origin == TuneOrigin::system_list ||
                       (answer.refused && !options.near_shapes);
  if (!bounded) {
    if (is_settled_miss(hash)) return;
    if (misses_remembered_ >= most_misses) {
      if (known_sets_.empty()) index_known();
      if (known_sets_.empty()) forget();
    }
    if (!known_sets_.empty() && misses_remembered_ >= most_misses) {
      if (is_settled_miss(hash)) return;
      forget();
    }
    ++misses_remembered_;
  }
  if (answers_->insert(query, hash, answer)) return;
  forget();
  answers_->insert(query, hash, answer);
}

std::int64_t TunerState::memory_bytes() const {
  if (mode == TuneMode::off) return 0;
  const std::lock_guard lock(mutex_);
  std::size_t bytes = answers_->bytes();
  for (const auto& set : known_sets_)
    bytes += set->bytes();
  for (const std::optional<QuerySet>* set : {&recorded_, &refused_})
    if (*set) bytes += (*set)->bytes();
  return static_cast<std::int64_t>(bytes);
}

std::int64_t TunerState::most_memory_bytes() const {
  const std::lock_guard lock(mutex_);
  const std::size_t keys = cache.keys() + system_list.keys();
  const std::size_t known = keys + most_new + static_cast<std::size_t>(fresh_.size());
  // A set has two slots for each of its queries, rounded up to a power of two, and its predecessors
  // as many again.
  return static_cast<std::int64_t>(LookupTable::most_bytes(keys + most_misses + most_new) +
                                   (8 * known + 4 * most_refused + 4 * most_recorded) *
                                       sizeof(std::uint64_t));
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
      misses_remembered_ = 0;
    }
    const bool is_known = answers_->find(query, hash, answer);
    if (!is_known) answer = resolve(query, state);
    may_measure = may_measure && !is_known && !answer.is_entry() && measured_ < most_measured;
    if (!may_measure) {
      if (!is_known && mode == TuneMode::record && !answer.is_entry()) record_miss(query, hash);
      if (!is_known) remember(query, hash, answer);
      return give(answer, query, choice);
    }
  }
  const bool is_composed = tunable_of(query.op).is_composed();
  may_measure = !is_empty(query) && !(state.runtime != nullptr && state.runtime->capturing()) &&
                (measuring_depth == 0 || (measuring_composed && !is_composed));
  if (!may_measure) return give(answer, query, choice);  // and looked up again next time
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
    warn(fmt::format("mode tune has measured {} problems in this process; others run the default",
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
      return is_proven(query, candidate) ? Proof() : prove(query, state, candidate, limit_s);
    };
    search.proofs_are_extra = true;
    std::optional<measure::DisturbanceWatch> watch = watch_for(context);
    if (watch) search.disturbance = &*watch;
    TuneOutcome outcome = tune_problem(context, query, machine, policy, std::move(search));
    tell_unproven(outcome.search);
    const bool doubtful = in_doubt(outcome.records.back());
    const ConfigChoice choice = outcome.choice;
    store_records(std::move(outcome.records));
    if (!doubtful) return choice;
    warn(fmt::format("{}: the default runs: {}", autotune::describe(query), doubt_text));
    return std::nullopt;
  } catch (const std::exception& error) {
    warn(fmt::format("{} was not measured: {}", autotune::describe(query), error.what()));
    return std::nullopt;
  }
}

Proof TunerState::prove(const ConfigQuery& query, const ContextState& state,
                        const ConfigChoice& choice, double limit_s) const {
  const std::lock_guard lock(prover_mutex_);
  if (!prover_) {
    ProverOptions found;
    found.command = helper_command(options.prover, found.why_none);
    prover_.emplace(state, std::move(found));
  }
  return prover_->prove(query, choice, limit_s);
}

void TunerState::end_proofs() const {
  const std::lock_guard lock(prover_mutex_);
  prover_.reset();
}

void TunerState::tell_unproven(const SearchResult& found) const {
  if (found.unproven > 0)
    warn(
        fmt::format("candidates that may fail on a machine they never ran on were left out, since "
                    "they could not be tried in another process: {}",
                    found.why_unproven));
}

void TunerState::add(std::vector<Record> records) {
  store_records(std::move(records));
  stale_.store(true, std::memory_order_release);
}

// Appends the waiting records to a file. True: they are written, and nothing waits. Records that
// cannot be written are dropped; if another process holds the lock they stay, as far as there is
// room.
bool TunerState::write(autotune::Store& file, std::vector<Record>& waiting, bool& failed,
                       const char* consequence, std::string& error) const {
  // After a time-out it does not wait again until it has got the lock once.
  autotune::LockWait wait = lock_wait;
  if (locked_out_) wait.most = {};
  // Each try prepares all waiting lines.
  constexpr std::size_t few = 64;
  const Clock::time_point now = Clock::now();
  if (locked_out_ && waiting.size() > few && now < next_try_) return false;
  next_try_ = now + std::chrono::seconds(1);
  file.set_wait(std::move(wait));
  try {
    file.append(waiting);
    waiting.clear();
    locked_out_ = false;
    return true;
  } catch (const autotune::Locked& locked) {
    locked_out_ = true;
    error = locked.what();
    warn(fmt::format("{}; what is to be written is kept, and tried again with the next",
                     locked.what()));
    if (waiting.size() <= most_recorded) return false;
  } catch (const Error& cause) {
    error = cause.what();
  }
  failed = true;
  waiting.clear();
  warn(fmt::format("{}; {}", error, consequence));
  return false;
}

void TunerState::write_unsaved() const {
  if (unsaved_.empty()) return;
  autotune::Store file(*store);
  if (write(file, unsaved_, store_failed_, "what is measured is known to this process alone",
            stored_.error)) {
    stored_.stored += unsaved_calls_;
    stored_.error.clear();
    unsaved_calls_ = 0;
  } else if (store_failed_) {
    stored_.lost += unsaved_calls_;
    unsaved_calls_ = 0;
  }
}

TunerState::Stored TunerState::stored() const {
  const std::lock_guard lock(mutex_);
  Stored all = stored_;
  all.lost += unsaved_calls_;
  return all;
}

void TunerState::store_records(std::vector<Record> records) const {
  const std::lock_guard lock(mutex_);
  if (records.empty()) return;
  if (store && !store_failed_) {
    unsaved_.insert(unsaved_.end(), records.begin(), records.end());
    ++unsaved_calls_;
    write_unsaved();
  } else {
    ++stored_.lost;
    if (!store) {
      stored_.error =
          "there is no cache directory: none of SWITCHBACK_TUNE_CACHE, XDG_CACHE_HOME "
          "and HOME is set";
      warn(stored_.error + "; what is measured is known to this process alone");
    }
  }
  families_indexed_ = false;
  for (Record& record : records) {
    learn_kernel(record);
    if (record.type == RecordType::sample) continue;
    std::string why;
    if (const std::optional<KeyParts> parts = parse_key(record.key.json, why))
      add_known(parts->query);
    std::vector<Record>& known = fresh_[record.key.json];
    known.push_back(std::move(record));
  }
}

std::vector<Verdict> TunerState::judge(const Record& record, const ConfigQuery& query,
                                       const ContextState& state,
                                       std::optional<ConfigChoice>& choice) const {
  return autotune::judge(record, query, state, environment, options.strict, choice);
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
    const std::vector<Verdict> verdicts = judge(record, query, state, usable);
    if (!usable)
      why = fmt::format("{}: {}", autotune::describe(record.candidate), verdicts.back().why);
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
  const auto add = [&](const Record& record) {
    if (record.type != RecordType::winner || in_doubt(record)) return;
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
  if (refused_ && refused_->contains(hash_of(query))) {
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
  if (proven_default(query, state, answer.choice)) answer.origin = TuneOrigin::proven;
  return answer;
}

void TunerState::learn_kernel(const Record& record) const {
  const bool right = record.type == RecordType::winner || record.type == RecordType::sample;
  if (!right && record.type != RecordType::fail) return;
  std::string why;
  const std::optional<KeyParts> parts = parse_key(record.key.json, why);
  if (!parts || parts->machine != machine) return;
  const core::Tunable& tunable = tunable_of(parts->query.op);
  if (tunable.kernel_of == nullptr || record.candidate.engine != tunable.proven_engine) return;
  const Environment& then = record.env;
  if (!same_hard(then, environment) || then.driver != environment.driver ||
      then.product != environment.product || then.tool != environment.tool)
    return;
  const std::optional<ConfigChoice> choice = to_choice(parts->query.op, record.candidate, why);
  core::RiskyKernel kernel;
  if (!choice || !tunable.kernel_of(parts->query, *choice, kernel)) return;
  auto of_op = std::find_if(known_kernels_.begin(), known_kernels_.end(),
                            [&](const KernelsOfOp& each) { return each.op == parts->query.op; });
  if (of_op == known_kernels_.end())
    of_op = known_kernels_.insert(known_kernels_.end(), {parts->query.op, {}});
  core::KnownKernels& known = of_op->kernels;
  std::vector<core::RiskyKernel>& same = right ? known.right : known.wrong;
  if (std::find(same.begin(), same.end(), kernel) != same.end()) return;
  same.push_back(kernel);
  std::erase(right ? known.wrong : known.right, kernel);
  if (tunable.proven_default == nullptr) return;  // no answer changes
  knows_kernels_.store(true, std::memory_order_relaxed);
  stale_.store(true, std::memory_order_release);
}

const core::KnownKernels* TunerState::known_kernels(ConfigOp op) const {
  for (const KernelsOfOp& each : known_kernels_)
    if (each.op == op) return &each.kernels;
  return nullptr;
}

bool TunerState::proven_default(const ConfigQuery& query, const ContextState& state,
                                ConfigChoice& choice) const {
  const core::Tunable& tunable = tunable_of(query.op);
  const core::KnownKernels* known = known_kernels(query.op);
  return known != nullptr && tunable.proven_default != nullptr &&
         tunable.proven_default(query, state, *known, choice);
}

bool TunerState::usual(const ConfigQuery& query, const ContextState& state,
                       ConfigChoice& choice) const {
  const std::lock_guard lock(mutex_);
  return proven_default(query, state, choice);
}

bool TunerState::is_proven(const ConfigQuery& query, const ConfigChoice& choice) const {
  const core::Tunable& tunable = tunable_of(query.op);
  core::RiskyKernel kernel;
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
      if (!refused_) refused_.emplace(most_refused);
      if (!refused_->insert(hash_of(query))) {
        refused_.emplace(most_refused);  // near shapes: the others are told again
        refused_->insert(hash_of(query));
      }
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
    judge(record, query, state, usable);
    return usable.has_value();
  });
  return best != nullptr && best->effort >= effort;
}

void TunerState::record_miss(const ConfigQuery& query, std::uint64_t hash) const {
  if (recording_over_.load(std::memory_order_relaxed) || recorded_->contains(hash)) return;
  if (record_file.empty() || record_failed_) {
    recording_over_.store(true, std::memory_order_relaxed);
    return;
  }
  if (!recorded_->insert(hash)) {
    recording_over_.store(true, std::memory_order_relaxed);
    warn(
        fmt::format("{} problems were recorded in {}; others are not", most_recorded, record_file));
    return;
  }
  if (is_empty(query)) return;
  Record record;
  record.type = RecordType::miss;
  record.key = key_of(query, machine, policy);
  record.env = environment;
  record.time = time_now();
  unrecorded_.push_back(std::move(record));
  autotune::Store file(record_file);
  std::string error;
  write(file, unrecorded_, record_failed_, "what is not in the cache is not recorded", error);
}

}  // namespace switchback
