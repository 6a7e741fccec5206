// SPDX-License-Identifier: Apache-2.0
#include "autotune/entry/candidate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "autotune/operations.hpp"
#include "core/tunable.hpp"
#include "gemm/cublaslt/choice.hpp"

namespace switchback::autotune {

namespace {

using core::Word;
using core::Written;

constexpr std::string_view cublaslt_prefix = "cublaslt_";
constexpr const char* workspace_name = "workspace_mib";

// Writes a cuBLASLt choice as names and values, which mean the same in every version of cuBLASLt.
// Its opaque 64 bytes have a meaning in one version only.
void add_cublaslt(CandidateText& text, const CublasLtChoice& choice) {
  if (choice == CublasLtChoice()) return;
  if (choice.algorithm)
    for (const CublasLtAttribute& attribute : cublaslt_attributes())
      text.attributes.emplace_back(fmt::format("{}{}", cublaslt_prefix, attribute.name),
                                   (*choice.algorithm).*attribute.value);
  text.attributes.emplace_back(workspace_name, choice.workspace_mib);
}

// Reads the attributes that describe a cuBLASLt choice; returns how many attributes it recognised.
std::size_t take_cublaslt(const CandidateText& text, CublasLtChoice& choice) {
  std::size_t used = 0;
  for (const auto& [name, value] : text.attributes) {
    if (name == workspace_name) {
      choice.workspace_mib = value;
      ++used;
    } else if (name.starts_with(cublaslt_prefix)) {
      for (const CublasLtAttribute& attribute : cublaslt_attributes())
        if (attribute.name == std::string_view(name).substr(cublaslt_prefix.size())) {
          if (!choice.algorithm) choice.algorithm.emplace();
          (*choice.algorithm).*attribute.value = value;
          ++used;
        }
    }
  }
  return used;
}

// The words of a ConfigChoice that hold a CublasLtChoice; empty if the operation has no such words.
template <class Words>
auto cublaslt_words(std::span<const Word> table, Words& words) {
  const auto first = std::find_if(table.begin(), table.end(),
                                  [](const Word& word) { return word.name == cublaslt_word; });
  const std::span all(words);
  if (first == table.end()) return all.first(0);
  return all.subspan(static_cast<std::size_t>(first - table.begin()),
                     std::tuple_size_v<CublasLtChoiceWords>);
}

}  // namespace

CandidateText to_text(ConfigOp op, const ConfigChoice& choice) {
  const std::span<const Word> table = tunable_of(op).config;
  CandidateText text;
  for (std::size_t i = 0; i < table.size(); ++i) {
    const std::int64_t value = choice.words[i];
    if (i == 0)
      text.engine = core::value_text(table[i], value);
    else if (table[i].written == Written::always)
      text.attributes.emplace_back(table[i].name, value);
  }
  if (const auto from = cublaslt_words(table, choice.words); !from.empty()) {
    CublasLtChoiceWords words{};
    std::copy(from.begin(), from.end(), words.begin());
    add_cublaslt(text, from_words(words));
  }
  return text;
}

std::optional<ConfigChoice> to_choice(ConfigOp op, const CandidateText& text, std::string& why) {
  const std::span<const Word> table = tunable_of(op).config;
  ConfigChoice choice;
  std::size_t used = 0;
  for (std::size_t i = 0; i < table.size(); ++i) {
    const Word& word = table[i];
    if (i == 0) {
      if (core::parse_value(word, text.engine, choice.words[i])) continue;
      why = fmt::format("engine '{}' is unknown", text.engine);
      return std::nullopt;
    }
    if (word.written == Written::elsewhere) continue;
    const auto found = std::find_if(text.attributes.begin(), text.attributes.end(),
                                    [&](const auto& pair) { return pair.first == word.name; });
    if (found == text.attributes.end()) continue;  // zero
    choice.words[i] = found->second;
    ++used;
  }
  if (const auto to = cublaslt_words(table, choice.words); !to.empty()) {
    CublasLtChoice cublaslt;
    used += take_cublaslt(text, cublaslt);
    why = out_of_range(cublaslt);
    if (!why.empty()) return std::nullopt;
    const CublasLtChoiceWords words = to_words(cublaslt);
    std::copy(words.begin(), words.end(), to.begin());
  }
  if (used != text.attributes.size()) {
    why = "the configuration has attributes that this version does not know";
    return std::nullopt;
  }
  return choice;
}

std::string mismatch(ConfigOp op, std::string_view engine, const Environment& then,
                     const Environment& now) {
  const auto differs = [](std::string_view what, std::string_view a, std::string_view b) {
    return fmt::format("measured with {} '{}', not with the current '{}'", what, a, b);
  };
  const core::Tunable& tunable = tunable_of(op);
  const bool everything = tunable.is_composed();
  const auto uses = [&](std::string_view library) {
    return everything || engine.starts_with(library);
  };
  const bool library_only =
      uses("onednn") || uses("openblas") || (tunable.cublaslt_alone && uses("cublaslt"));
  if ((everything || !library_only) && then.kernels != now.kernels)
    return differs("kernels", then.kernels, now.kernels);
  if (uses("onednn") && then.onednn != now.onednn)
    return differs("oneDNN", then.onednn, now.onednn);
  if (uses("openblas") && then.openblas != now.openblas)
    return differs("OpenBLAS", then.openblas, now.openblas);
  if (uses("cublaslt") && then.cublaslt != now.cublaslt)
    return differs("cuBLASLt", then.cublaslt, now.cublaslt);
  return {};
}

std::string refusal(const ConfigQuery& query, const ConfigChoice& choice,
                    const ContextState& state) {
  return tunable_of(query.op).refusal(query, choice, state);
}

std::vector<Verdict> judge(const Entry& entry, const ConfigQuery& query, const ContextState& state,
                           const Environment& now, bool strict,
                           std::optional<ConfigChoice>& choice) {
  const Winner& winner = *entry.winner;
  std::vector<Verdict> verdicts;
  // Adds a verdict; returns true if it refuses the candidate.
  const auto refused = [&](std::string validator, std::string why) {
    verdicts.push_back({std::move(validator), std::move(why)});
    return !verdicts.back().why.empty();
  };
  choice.reset();
  if (refused("libraries and kernels", mismatch(query.op, winner.candidate.engine, entry.env, now)))
    return verdicts;
  if (strict) {
    const auto same = [](std::string_view then, std::string_view here) {
      return then == here
                 ? std::string()
                 : fmt::format("measured with '{}', not with the current '{}'", then, here);
    };
    if (refused("driver", same(entry.env.driver, now.driver)) ||
        refused("product", same(entry.env.product, now.product)) ||
        refused("version", same(entry.env.tool, now.tool)))
      return verdicts;
  }
  std::string why;
  const std::optional<ConfigChoice> known = to_choice(query.op, winner.candidate, why);
  if (refused("words", known ? std::string() : why)) return verdicts;
  if (refused("engine", refusal(query, *known, state))) return verdicts;
  if (refused("measurement", in_doubt(winner) ? std::string(doubt_text) : std::string()))
    return verdicts;
  choice = known;
  return verdicts;
}

}  // namespace switchback::autotune
