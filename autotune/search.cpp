// SPDX-License-Identifier: Apache-2.0
#include "autotune/search.hpp"

#include <algorithm>
#include <cmath>
#include <new>
#include <span>
#include <utility>

#include "core/check.hpp"
#include "switchback/error.hpp"

namespace switchback::autotune {

namespace {

// The number of rounds of the final comparison. Each round times every finalist once.
int final_rounds(Effort effort) {
  switch (effort) {
    case Effort::thorough:
      return 41;
    case Effort::normal:
      return 15;
    default:
      return 7;
  }
}
// Short calls get more rounds, so that a final lasts longer than a short disturbance of the
// machine.
constexpr double least_final_s = 0.02;  // seconds of calls per finalist
constexpr int most_times_the_rounds = 6;
int final_rounds(Effort effort, double sample_s) {
  const int rounds = final_rounds(effort);
  const double wanted = std::ceil(least_final_s / std::max(sample_s, 1e-9));
  return static_cast<int>(std::clamp(wanted, static_cast<double>(rounds),
                                     static_cast<double>(rounds * most_times_the_rounds)));
}
// A final with fewer rounds cannot decide.
constexpr int least_rounds = 5;
constexpr std::size_t finalists = 5;  // at most, not counting the default
// Calls shorter than this are timed several at a time, because the clock itself takes time.
constexpr double least_sample_s = 30e-6;
constexpr int most_calls_per_sample = 1000;

// The search on one trial. It times calls and keeps track of the remaining time.
class Search {
 public:
  Search(Trial& trial, const SearchOptions& options)
      : trial_(trial), options_(options), deadline_(options.deadline) {}

  SearchResult run() {
    const Clock::time_point start = options_.now();
    std::vector<ConfigChoice> candidates =
        options_.effort == Effort::thorough ? trial_.all_candidates() : trial_.candidates();
    core::require(!candidates.empty(), "tune: the problem has no configuration");
    if (options_.by_default) {
      std::erase(candidates, *options_.by_default);
      candidates.insert(candidates.begin(), *options_.by_default);
    }
    begin_default(candidates.front());
    candidates.erase(candidates.begin());
    if (options_.max_candidates > 0 &&
        candidates.size() > static_cast<std::size_t>(options_.max_candidates)) {
      result_.left_out = candidates.size() - static_cast<std::size_t>(options_.max_candidates);
      candidates.resize(static_cast<std::size_t>(options_.max_candidates));
    }
    total_ = candidates.size();
    for (const ConfigChoice& choice : candidates)
      try_candidate(choice);
    halve();
    finish();
    result_.seconds = std::chrono::duration<double>(options_.now() - start).count();
    return std::move(result_);
  }

 private:
  [[nodiscard]] double left_s() const {
    if (deadline_ == Clock::time_point::max()) return 1e9;
    return std::chrono::duration<double>(deadline_ - options_.now()).count();
  }

  void stop_if_interrupted() const {
    if (options_.interrupted()) throw Interrupted{};
  }

  // A function that makes the calls of one timed sample of a candidate.
  static std::function<void()> calls_of(Trial& trial, const ConfigChoice& choice, int calls) {
    return [&trial, choice, calls] {
      for (int i = 0; i < calls; ++i)
        trial.run(choice);
    };
  }
  // Takes one timed sample of a candidate, in milliseconds per call.
  double sample(const ConfigChoice& choice, int calls) {
    stop_if_interrupted();
    return measure::seconds_of(*options_.watch, calls_of(trial_, choice, calls)) * 1e3 / calls;
  }

  // Takes samples of several candidates in rounds, `wanted` rounds if there is time, in
  // milliseconds per call. Every other round runs in reverse order, so that a candidate does not
  // always follow the same one.
  measure::Times samples(const std::vector<std::function<void()>>& of, int calls, int wanted,
                         measure::RoundRules rules) {
    rules.order = [count = of.size()](int round) {
      std::vector<std::size_t> order(count);
      for (std::size_t i = 0; i < count; ++i)
        order[i] = round % 2 == 0 ? i : count - 1 - i;
      return order;
    };
    rules.interrupted = options_.interrupted;
    rules.now = options_.now;
    rules.watch = options_.disturbance;
    measure::Times times_ms = measure::run_rounds(rules, of, *options_.watch);
    if (rules.watch != nullptr) {
      const std::vector<std::size_t> kept =
          rules.watch->keep(static_cast<std::size_t>(std::max(wanted, 0)));
      for (std::vector<double>& each : times_ms)
        each = measure::samples_at(each, kept);
      result_.disturbance += rules.watch->last();
    }
    for (std::vector<double>& each : times_ms)
      for (double& ms : each)
        ms /= calls;
    return times_ms;
  }

  // Whether enough rounds were timed: `wanted` undisturbed rounds, or the most that are allowed.
  static bool has_all(const measure::RoundsSoFar& so_far, int wanted) {
    return so_far.undisturbed >= wanted || so_far.rounds >= measure::with_spare_rounds(wanted);
  }

  void add_sample(Measured& m) { m.times_ms.push_back(sample(m.choice, calls_)); }

  // The shortest time of a candidate: an estimate of an undisturbed call.
  static double best_ms(const Measured& m) {
    return *std::min_element(m.times_ms.begin(), m.times_ms.end());
  }
  [[nodiscard]] double sample_s(const Measured& m) const { return best_ms(m) * calls_ / 1e3; }

  void begin_default(const ConfigChoice& choice) {
    Measured& m = result_.measured.emplace_back();
    m.choice = choice;
    stop_if_interrupted();
    m.failure = trial_.check(choice);
    if (!m.failure.empty())
      core::fail(Status::internal, "tune: the default configuration is wrong: {}", m.failure);
    calls_ = 1;
    const double once_s = sample(choice, 1) / 1e3;
    if (once_s < least_sample_s)
      calls_ = static_cast<int>(std::clamp(std::ceil(least_sample_s / std::max(once_s, 1e-9)), 1.0,
                                           static_cast<double>(most_calls_per_sample)));
    if (calls_ > 1) sample(choice, calls_);  // warm up
    add_sample(m);
  }

  // Validates a candidate and takes its first times, if there is time. Its duration is not known
  // yet, so the default's times for the check and for a sample serve as the estimate.
  void try_candidate(const ConfigChoice& choice) {
    const Measured& by_default = result_.measured.front();
    // The check makes up to two calls and compares their results. After it there must still be time
    // for the final.
    const double final_s = sample_s(by_default) * least_rounds * 2;
    if (left_s() < 3 * best_ms(by_default) / 1e3 + sample_s(by_default) + final_s) {
      ++result_.left_out;
      result_.budget_hit = true;
      return;
    }
    Measured m;
    m.choice = choice;
    if (trial_.needs_validation(choice)) {
      if (!options_.probe) {
        ++result_.left_out;
        return;
      }
      stop_if_interrupted();
      const Clock::time_point before = options_.now();
      const bool extra = options_.validation_is_extra;
      Validation validation = options_.probe(choice, extra ? 1e9 : left_s());
      if (extra && deadline_ != Clock::time_point::max()) deadline_ += options_.now() - before;
      if (validation.result == Validation::Result::unvalidated) {
        ++result_.left_out;
        ++result_.unvalidated;
        result_.why_unvalidated = std::move(validation.why);
        return;
      }
      m.failure = std::move(validation.why);
    }
    if (m.failure.empty()) validate_and_sample(m);
    if (m.failure.empty() && m.times_ms.empty()) {
      ++result_.left_out;
      result_.budget_hit = true;
      return;
    }
    result_.measured.push_back(std::move(m));
    report();
  }

  void validate_and_sample(Measured& m) {
    stop_if_interrupted();
    try {
      m.failure = trial_.check(m.choice);
      if (m.failure.empty() && left_s() > 0) add_sample(m);
    } catch (const Error& error) {
      m.failure = error.what();
    } catch (const std::bad_alloc&) {
      m.failure = "there was not enough memory to run it";
    }
  }

  void report() {
    ++done_;
    if (!options_.progress) return;
    double best = best_ms(result_.measured.front());
    const double by_default = best;
    for (const Measured& m : result_.measured)
      if (m.failure.empty() && !m.times_ms.empty()) best = std::min(best, best_ms(m));
    options_.progress(done_, total_, best > 0 ? by_default / best : 1.0);
  }

  [[nodiscard]] double best_of_all() const {
    double best = best_ms(result_.measured.front());
    for (const std::size_t i : alive_)
      best = std::min(best, best_ms(result_.measured[i]));
    return best;
  }
  void drop_slower(double times) {
    const double limit = times * best_of_all();
    std::erase_if(alive_, [&](std::size_t i) { return best_ms(result_.measured[i]) > limit; });
  }

  // Keeps the better half of the remaining candidates, with more samples in each step, until only
  // the finalists are left. Compares the shortest of a few times, because noise only adds to a
  // time.
  void halve() {
    for (std::size_t i = 1; i < result_.measured.size(); ++i)
      if (result_.measured[i].failure.empty()) alive_.push_back(i);
    const auto by_best = [&](std::size_t a, std::size_t b) {
      return best_ms(result_.measured[a]) < best_ms(result_.measured[b]);
    };
    // A candidate that is twice as slow as the fastest is dropped. One that is 1.5 times as slow is
    // timed again first, because the machine may have been slower for a while when it was timed.
    drop_slower(2);
    constexpr double hopeless = 1.5;
    const double limit = hopeless * best_of_all();
    for (const std::size_t i : alive_)
      if (best_ms(result_.measured[i]) > limit &&
          left_s() > sample_s(result_.measured[i]) + final_s())
        add_sample(result_.measured[i]);
    drop_slower(hopeless);
    int samples = options_.effort == Effort::quick ? 1 : 2;
    while (alive_.size() > finalists) {
      for (int s = 0; s < samples; ++s) {
        double round_s = 0;
        for (const std::size_t i : alive_)
          round_s += sample_s(result_.measured[i]);
        if (left_s() < round_s + final_s()) {
          result_.budget_hit = true;
          break;
        }
        for (const std::size_t i : alive_)
          add_sample(result_.measured[i]);
      }
      std::stable_sort(alive_.begin(), alive_.end(), by_best);
      alive_.resize(std::max(finalists, alive_.size() / 2));
      samples += 1;
    }
    std::stable_sort(alive_.begin(), alive_.end(), by_best);
  }

  // The shortest time, in seconds, that the final rounds with the remaining candidates can take. It
  // includes the rounds that confirm the winner.
  [[nodiscard]] double final_s() const {
    double round_s = sample_s(result_.measured.front());
    std::vector<double> each;
    for (const std::size_t i : alive_)
      each.push_back(sample_s(result_.measured[i]));
    std::sort(each.begin(), each.end());
    for (std::size_t i = 0; i < std::min(finalists, each.size()); ++i)
      round_s += each[i];
    // Add the time to confirm the candidate that is fastest so far.
    if (!each.empty()) round_s += pair_s(sample_s(result_.measured.front()) + each.front());
    return round_s * least_rounds;
  }

  void finish() {
    std::vector<std::size_t> in = {0};
    in.insert(in.end(), alive_.begin(), alive_.end());
    // Use fewer finalists rather than too few rounds.
    const auto round_s = [&] {
      double sum = 0;
      for (const std::size_t i : in)
        sum += sample_s(result_.measured[i]);
      return sum;
    };
    while (in.size() > 2 && round_s() * least_rounds > left_s()) {
      in.pop_back();
      result_.budget_hit = true;
    }
    std::sort(in.begin() + 1, in.end());  // among equals the first candidate wins
    const double default_s = sample_s(result_.measured.front());
    for (const std::size_t i : in) {
      Measured& m = result_.measured[i];
      // The statistics of the samples so far. Those of the final replace them below.
      if (i != 0) m.stats = measure::summarize(m.times_ms);
      m.times_ms.clear();
    }
    const int wanted = in.size() == 1 ? std::max(3, final_rounds(options_.effort) / 3)
                                      : final_rounds(options_.effort, default_s);
    std::vector<std::function<void()>> calls;
    for (const std::size_t i : in)
      calls.push_back(calls_of(trial_, result_.measured[i].choice, calls_));
    measure::RoundRules rules;
    rules.another = [&](const measure::RoundsSoFar& so_far) {
      if (so_far.rounds == 0) return wanted > 0;
      return !has_all(so_far, wanted) &&
             left_s() >= so_far.last_timed_ms / 1e3 + confirmation_s(so_far.times_ms);
    };
    measure::Times times_ms = samples(calls, calls_, wanted, std::move(rules));
    const auto rounds = static_cast<int>(times_ms.front().size());
    for (std::size_t f = 0; f < in.size(); ++f)
      result_.measured[in[f]].times_ms = std::move(times_ms[f]);
    if (rounds < wanted) result_.budget_hit = true;
    // If there was no time to measure other candidates, the default has not won.
    const bool decides = in.size() == 1 ? !result_.budget_hit : rounds >= least_rounds;
    result_.effort = !decides             ? Effort::cut
                     : result_.budget_hit ? std::min(options_.effort, Effort::quick)
                                          : options_.effort;
    const std::vector<double>& by_default = result_.measured.front().times_ms;
    for (const std::size_t i : in) {
      Measured& m = result_.measured[i];
      m.stats = measure::summarize(m.times_ms);
      m.speedup = measure::speed_ratio(by_default, m.times_ms).median;
    }
    rank(in, result_.effort != Effort::cut);
    confirm();
  }

  // The time of the shortest confirmation of a winner, if one is needed. The fastest candidate so
  // far serves as the estimate.
  [[nodiscard]] double confirmation_s(std::span<const std::vector<double>> samples_ms) const {
    if (samples_ms.size() < 2) return 0;
    const auto least_s = [](const std::vector<double>& ms) {
      return *std::min_element(ms.begin(), ms.end()) / 1e3;
    };
    double best = 1e18;
    for (const std::vector<double>& rival_ms : samples_ms.subspan(1))
      best = std::min(best, least_s(rival_ms));
    return least_rounds * pair_s(least_s(samples_ms.front()) + best);
  }
  [[nodiscard]] double pair_s(double calls_s) const {
    return calls_s + (options_.disturb ? 2 * options_.disturb_s : 0);
  }

  // A winner must win again under the conditions of a real program, which does other work between
  // its calls: the caches hold other data, and the operands are elsewhere in memory. A gain that
  // was measured by repeating the same calls may come from the repetition, or from one slow period
  // of the machine. The winner must be faster in each place, and clearly faster over all of them
  // together. Otherwise the default stays.
  void confirm() {
    const std::size_t winner = result_.ranking.front();
    if (winner == 0 || result_.effort == Effort::cut) return;
    const int places = result_.effort == Effort::thorough ? 3
                       : result_.effort == Effort::normal ? 2
                                                          : 1;
    const int wanted = final_rounds(options_.effort, sample_s(result_.measured.front()));
    const int rounds = std::max(least_rounds, wanted * 2 / (places + 1));
    Pairs all;
    bool ahead = true;
    for (int place = 0; place < places && ahead; ++place) {
      Trial* trial = &trial_;
      if (place > 0) trial = renewed(winner);
      if (trial == nullptr) break;
      const Pairs here = time_pairs(*trial, winner, rounds);
      ahead = measure::speed_ratio(here.default_ms, here.winner_ms).median > 1;
      all.default_ms.insert(all.default_ms.end(), here.default_ms.begin(), here.default_ms.end());
      all.winner_ms.insert(all.winner_ms.end(), here.winner_ms.begin(), here.winner_ms.end());
    }
    if (ahead && decide({{&all.default_ms, 0}, {&all.winner_ms, 0}}, trial_.least_gain()) == 1) {
      result_.measured[winner].speedup = measure::speed_ratio(all.default_ms, all.winner_ms).median;
      return;
    }
    std::erase(result_.ranking, std::size_t{0});
    result_.ranking.insert(result_.ranking.begin(), 0);
  }

  struct Pairs {
    std::vector<double> default_ms, winner_ms;
  };

  // The trial with operands elsewhere in memory; null if that is not possible or there is no time.
  Trial* renewed(std::size_t winner) {
    const double calls_s = sample_s(result_.measured.front()) + sample_s(result_.measured[winner]);
    if (!options_.renew || left_s() < options_.renew_s + (least_rounds + 1) * pair_s(calls_s))
      return nullptr;
    stop_if_interrupted();
    try {
      return options_.renew();
    } catch (const std::bad_alloc&) {
      return nullptr;
    } catch (const Error&) {
      return nullptr;
    }
  }

  // Times the default and the winner alternately on a trial.
  Pairs time_pairs(Trial& trial, std::size_t winner, int rounds) {
    // If other data is put into the caches before each sample, a sample is one call: a second call
    // would find its operands in the caches.
    const int calls = options_.disturb ? 1 : calls_;
    const ConfigChoice& by_default = result_.measured.front().choice;
    const ConfigChoice& fastest = result_.measured[winner].choice;
    if (&trial != &trial_) {  // not timed: the first call allocates and prepares
      trial.run(by_default);
      trial.run(fastest);
    }
    measure::RoundRules rules;
    rules.before_each = options_.disturb;
    rules.another = [&](const measure::RoundsSoFar& so_far) {
      return !has_all(so_far, rounds) &&
             (so_far.rounds < least_rounds || left_s() >= so_far.last_elapsed_s);
    };
    measure::Times times_ms =
        samples({calls_of(trial, by_default, calls), calls_of(trial, fastest, calls)}, calls,
                rounds, std::move(rules));
    return {std::move(times_ms[0]), std::move(times_ms[1])};
  }

  // Ranks the finalists: first the winner, then the winner of the remaining ones, and so on.
  void rank(std::vector<std::size_t> in, bool decides) {
    if (!decides) {
      result_.ranking = std::move(in);
      return;
    }
    while (!in.empty()) {
      std::vector<Finalist> still_in;
      for (const std::size_t i : in)
        still_in.push_back(
            {&result_.measured[i].times_ms, trial_.scratch_bytes(result_.measured[i].choice)});
      const std::size_t best = decide(still_in, trial_.least_gain());
      result_.ranking.push_back(in[best]);
      in.erase(in.begin() + static_cast<std::ptrdiff_t>(best));
    }
  }

  Trial& trial_;
  const SearchOptions& options_;
  Clock::time_point deadline_;
  SearchResult result_;
  std::vector<std::size_t> alive_;
  std::size_t done_ = 0;
  std::size_t total_ = 0;
  int calls_ = 1;
};

// Whether `subject` is faster than `rival` by at least the least gain and by more than twice the
// error of the measured ratio. Compares the ratios within each round, because the machine is in the
// same state for all times of one round.
bool clearly_faster(const std::vector<double>& subject, const std::vector<double>& rival,
                    double least_gain) {
  const auto rounds = static_cast<std::int64_t>(std::min(subject.size(), rival.size()));
  if (rounds < 1) return false;
  const measure::Middle ratio = measure::speed_ratio(rival, subject);
  return ratio.median >= 1 + least_gain &&
         ratio.median - 1 > 2 * measure::median_error(ratio, rounds);
}

}  // namespace

std::size_t decide(const std::vector<Finalist>& in, double least_gain) {
  std::size_t fastest = 0;
  double best = 1;
  for (std::size_t i = 1; i < in.size(); ++i) {
    const double gain = measure::speed_ratio(*in[0].times_ms, *in[i].times_ms).median;
    if (clearly_faster(*in[i].times_ms, *in[0].times_ms, least_gain) && gain > best) {
      fastest = i;
      best = gain;
    }
  }
  if (fastest == 0) return 0;
  // The tie band: candidates that the fastest does not clearly beat, and that beat the default.
  std::size_t chosen = fastest;
  for (std::size_t i = 1; i < in.size(); ++i) {
    if (i == fastest || clearly_faster(*in[fastest].times_ms, *in[i].times_ms, least_gain) ||
        !clearly_faster(*in[i].times_ms, *in[0].times_ms, least_gain))
      continue;
    const bool smaller = in[i].scratch_bytes < in[chosen].scratch_bytes;
    const bool as_small = in[i].scratch_bytes == in[chosen].scratch_bytes;
    if (smaller || (as_small && i < chosen)) chosen = i;
  }
  return chosen;
}

SearchResult search(Trial& trial, const SearchOptions& options) {
  SearchOptions whole = options;
  if (whole.watch == nullptr) whole.watch = measure::make_stopwatch(whole.now);
  return Search(trial, whole).run();
}

}  // namespace switchback::autotune
