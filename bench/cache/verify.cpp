// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstdio>
#include <map>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <system_error>

#include "autotune/operations.hpp"
#include "autotune/validation/validator.hpp"
#include "bench/cache/cache.hpp"
#include "bench/cache/files.hpp"
#include "bench/cli/cli.hpp"
#include "bench/cli/signals.hpp"
#include "bench/cli/table.hpp"
#include "core/context_state.hpp"

namespace switchback::bench {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

namespace {

// What the check of one cache file found.
struct Audit {
  std::int64_t winners = 0, wrong = 0, misses = 0;
  std::vector<autotune::Warning> unreadable;  ///< entries whose problem this program does not know
  /// Entries in another machine's file, where look-ups do not find them.
  std::vector<autotune::Warning> misplaced;
};

Audit audit(const CacheFile& file, bool of_machine) {
  Audit result;
  for (const CacheLine& line : file.entries) {
    result.winners += line.entry.winner ? 1 : 0;
    result.misses += line.entry.is_miss() ? 1 : 0;
    for (const autotune::Validated& validated : line.entry.validated)
      result.wrong += validated.is_right() ? 0 : 1;
    std::string why;
    const std::optional<autotune::KeyParts> parts = autotune::parse_key(line.entry.key.json, why);
    if (!parts)
      result.unreadable.push_back({file.path, line.number, why});
    else if (of_machine && is_misplaced(line, *parts))
      result.misplaced.push_back(
          {file.path, line.number,
           fmt::format("it is for {}, whose file is {}.jsonl; look-ups do not find it here",
                       autotune::describe(parts->machine),
                       autotune::machine_name(parts->machine))});
  }
  return result;
}

ordered_json to_json(const CacheFile& file, const Audit& audit) {
  ordered_json json = {{"type", "file"},
                       {"file", file.path.string()},
                       {"lines", file.lines},
                       {"winners", audit.winners},
                       {"wrong_candidates", audit.wrong},
                       {"misses", audit.misses},
                       {"skipped", file.skipped.size()},
                       {"newer", file.newer.size()},
                       {"unreadable_problems", audit.unreadable.size()},
                       {"misplaced", audit.misplaced.size()}};
  if (!file.problem.empty()) json["problem"] = file.problem;
  return json;
}

struct ValidationCounts {
  std::int64_t validated = 0;
  std::int64_t wrong = 0;
  std::int64_t refused = 0;   ///< winners that look-ups refuse, so they are not run
  std::int64_t in_doubt = 0;  ///< the refused winners whose measurement was disturbed
  std::int64_t foreign = 0;   ///< winners for another device, thread count or instruction set
  std::int64_t not_run = 0;   ///< winners that could not be run, mostly for lack of memory
};

// Runs a winner and says why its results are wrong; empty if they are correct. Sets `not_run` if it
// could not be run.
std::string validate(Context& context, autotune::Validator& validator, const ConfigQuery& query,
                     const ConfigChoice& choice, bool& not_run) {
  try {
    // A problem that was measured on a larger machine of the same kind may not fit into this
    // machine's memory.
    if (std::string too_large = autotune::too_large(query, context.state()); !too_large.empty()) {
      not_run = true;
      return too_large;
    }
    const std::unique_ptr<autotune::Trial> trial = autotune::make_trial(context, query);
    std::string why = trial->check(trial->candidates().front());
    if (!why.empty()) return "the default is wrong: " + why;
    if (trial->needs_validation(choice)) {
      autotune::Validation validation = validator.validate(query, choice);
      not_run = validation.result == autotune::Validation::Result::unvalidated;
      why = std::move(validation.why);
    }
    if (why.empty()) why = trial->check(choice);
    context.synchronize();
    return why;
  } catch (const Error& error) {
    not_run = error.status() == Status::out_of_memory;
    return error.what();
  } catch (const std::bad_alloc&) {
    not_run = true;
    return "there is not enough memory for it";
  }
}

// Runs and checks the winners that the cache has for this machine. Returns false if it was
// interrupted.
bool validate_winners(const CacheOptions& options, StatusLine& out, ValidationCounts& counts) {
  CacheView view(options);
  autotune::Validator validator(view.context.state(), this_program_as_validator());
  std::vector<CacheFile> files;
  files.push_back(read_cache_file(view.tuner().cache_file));
  const std::vector<KeyGroup> groups = group_keys(files);
  const StopSignals signals;
  Table table({"problem", "winner", "from", "what is wrong"}, {"winner", "from", "what is wrong"});
  std::size_t done = 0;
  for (const KeyGroup& group : groups) {
    if (StopSignals::requested()) return false;
    ++done;
    const Picked picked = pick(group, view);
    if (!view.foreign(group).empty()) {
      ++counts.foreign;
      continue;
    }
    if (picked.line == nullptr) continue;
    if (!picked.usable) {
      ++counts.refused;
      counts.in_doubt += autotune::in_doubt(*picked.line->entry.winner) ? 1 : 0;
      continue;
    }
    const ConfigQuery& query = group.parts->query;
    out.status(fmt::format("[{}/{}] {}, {} wrong so far", done, groups.size(), describe(group),
                           counts.wrong));
    std::string why;
    const autotune::CandidateText& candidate = picked.line->entry.winner->candidate;
    // The winner is usable here, so this program knows all its attributes, and the conversion
    // succeeds.
    const ConfigChoice choice = *autotune::to_choice(query.op, candidate, why);
    bool not_run = false;
    why = validate(view.context, validator, query, choice, not_run);
    if (why.empty()) {
      ++counts.validated;
      continue;
    }
    const std::string words = words_of(candidate, query.op);
    ++(not_run ? counts.not_run : counts.wrong);
    if (not_run)
      out.warning(fmt::format("{}: {} could not be run: {}", describe(group), words, why));
    else
      table.add({describe(group), words, place_of(*picked.line), why});
    if (options.json)
      print_json({{"type", not_run ? "not_run" : "wrong"},
                  {"key", name_of(group.key)},
                  {"problem", describe(group)},
                  {"winner", bench::to_json(*picked.line)},
                  {"why", why}});
  }
  out.clear();
  if (!options.json && !table.empty()) fmt::print("\n{}", table.text_for(stdout));
  return true;
}

// A table of the reasons why lines were skipped, with the number of lines for each.
std::string reasons(const std::map<std::string, std::int64_t>& counts) {
  Table table({"why lines were skipped", "lines"});
  for (const auto& [why, count] : counts)
    table.add({why, std::to_string(count)});
  return table.empty() ? "" : "\n" + table.text_for(stdout);
}

}  // namespace

int cache_verify(const CacheOptions& options, bool run) {
  StatusLine out(false);
  const fs::path directory = cache_directory_of(options);
  std::vector<fs::path> paths = files_of_cache(directory);
  const std::size_t of_machines = paths.size();
  std::error_code ignored;
  if (fs::exists(directory / "recorded.jsonl", ignored))
    paths.push_back(directory / "recorded.jsonl");

  Table table({"file", "lines", "winners", "wrong candidates", "misses", "skipped", "newer",
               "unknown here", "misplaced"});
  std::map<std::string, std::int64_t> why_skipped;
  bool wrong = false;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const CacheFile file = read_cache_file(paths[i]);
    const Audit found = audit(file, i < of_machines);
    warn_of_skipped(file, out);
    warn_of_lines(found.unreadable, "have problems that are unknown here", out);
    warn_of_lines(found.misplaced, "are for other machines than their file", out);
    for (const autotune::Warning& warning : file.skipped)
      ++why_skipped[warning.what];
    wrong = wrong || !file.problem.empty() || !file.skipped.empty() || !found.misplaced.empty();
    if (options.json) {
      print_json(to_json(file, found));
      for (const autotune::Warning& warning : file.skipped)
        print_json(bench::to_json(warning, "skipped"));
      for (const autotune::Warning& warning : file.newer)
        print_json(bench::to_json(warning, "newer"));
      for (const autotune::Warning& warning : found.unreadable)
        print_json(bench::to_json(warning, "unreadable_problem"));
      for (const autotune::Warning& warning : found.misplaced)
        print_json(bench::to_json(warning, "misplaced"));
      continue;
    }
    std::vector<std::string> row = {file.path.lexically_relative(directory).string(),
                                    std::to_string(file.lines)};
    for (const std::int64_t count : {found.winners, found.wrong, found.misses})
      row.push_back(std::to_string(count));
    for (const std::size_t count :
         {file.skipped.size(), file.newer.size(), found.unreadable.size(), found.misplaced.size()})
      row.push_back(std::to_string(count));
    table.add(std::move(row));
  }
  if (!options.json && paths.empty())
    fmt::print("The cache is still empty ({}); 'switchback-bench tune' fills it.\n",
               directory.string());
  if (!options.json && !paths.empty())
    fmt::print("Cache {}\n\n{}{}", directory.string(), table.text_for(stdout),
               reasons(why_skipped));

  ValidationCounts counts;
  if (run && !validate_winners(options, out, counts)) {
    out.warning("interrupted: not every winner was validated");
    return exit_codes::interrupted;
  }
  wrong = wrong || counts.wrong > 0;
  if (options.json) {
    ordered_json json = {{"type", "summary"}, {"cache", directory.string()}, {"ok", !wrong}};
    if (run)
      json["winners"] = {{"right", counts.validated},
                         {"wrong", counts.wrong},
                         {"refused", counts.refused},
                         {"in_doubt", counts.in_doubt},
                         {"not_of_this_context", counts.foreign},
                         {"not_run", counts.not_run}};
    print_json(json);
  } else if (run) {
    fmt::print("\nWinners: {} right, {} wrong", counts.validated, counts.wrong);
    if (counts.refused > 0) fmt::print(", {} not used here anyway", counts.refused);
    if (counts.in_doubt > 0) fmt::print(" ({} of them in doubt)", counts.in_doubt);
    if (counts.foreign > 0)
      fmt::print(", {} for another device, number of threads or instruction set", counts.foreign);
    if (counts.not_run > 0) fmt::print(", {} could not be run", counts.not_run);
    fmt::print("\n");
  }
  return wrong ? exit_codes::failed : exit_codes::ok;
}

}  // namespace switchback::bench
