// SPDX-License-Identifier: Apache-2.0
#include "autotune/entry/key.hpp"

#include <fmt/format.h>

#include <functional>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "autotune/operations.hpp"
#include "core/cpu/isa.hpp"
#include "core/tunable.hpp"

namespace switchback::autotune {

namespace {

using core::Tunable;
using core::Word;
using core::Written;
using Json = nlohmann::json;

// The members of a key that describe a query's origin: its threads and instruction set. The kind of
// device is left out, because the members of the machine have it.
constexpr Word threads_word = {
    .name = "threads", .least = 1, .most = std::numeric_limits<int>::max()};
constexpr Word isa_word = {.name = "isa",
                           .most = core::isa_count - 1,
                           .value_name = core::value_name<core::isa_name, core::Isa>};

// The members of a flat JSON object. It does not use the JSON library, which does not survive
// running out of memory while it builds a value: a Context may be created while memory is short.
class Members {
 public:
  void set(std::string_view name, std::int64_t value) {
    values_[std::string(name)] = fmt::format("{}", value);
  }
  void set(std::string_view name, std::string_view value) {
    std::string text = "\"";
    for (const char c : value) {
      if (c == '"' || c == '\\') text += '\\';
      text += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
    values_[std::string(name)] = std::move(text) + '"';
  }
  void erase(std::string_view name) { values_.erase(std::string(name)); }
  /// The object as text. Names are sorted, without spaces, so that equal objects have equal text.
  [[nodiscard]] std::string text() const {
    std::string text = "{";
    for (const auto& [name, value] : values_) {
      if (text.size() > 1) text += ',';
      text += fmt::format("\"{}\":{}", name, value);
    }
    return std::move(text) + '}';
  }

 private:
  std::map<std::string, std::string, std::less<>> values_;
};

Members members_of(const Machine& m) {
  Members members;
  members.set("backend", m.backend);
  if (m.backend == "cpu") {
    members.set("cpu", m.design);
    members.set("machine_isa", m.isa);
    members.set("cores", m.cores);
    return members;
  }
  members.set("compute_capability", m.compute_capability);
  members.set("multiprocessors", m.multiprocessors);
  members.set("memory_gib", m.memory_gib);
  members.set("mig", m.mig);
  return members;
}

void set(Members& members, const Word& word, std::int64_t value) {
  if (word.value_name == nullptr)
    members.set(word.name, value);
  else
    members.set(word.name, core::value_text(word, value));
}

Members members_of(const ConfigQuery& query, const Machine& machine, const Policy& policy) {
  const Tunable& tunable = tunable_of(query.op);
  Members members = members_of(machine);
  members.set("cache", policy.cold_cache ? std::string_view("cold") : "hot");
  members.set("launch", policy.graph ? std::string_view("graph") : "eager");
  members.set("op", tunable.name);
  set(members, threads_word, query.origin.threads);
  if (tunable.depends_on_isa) set(members, isa_word, core::number(query.origin.isa));
  for (std::size_t i = 0; i < tunable.problem.size(); ++i)
    if (tunable.problem[i].written == Written::always)
      set(members, tunable.problem[i], query.words[i]);
  return members;
}

// Reads a member of a key into `out`. Returns false and sets `why` if it is missing or has another
// type.
template <class T>
bool read(const Json& json, std::string_view name, T& out, std::string& why) {
  const auto found = json.find(name);
  if (found == json.end()) {
    why = fmt::format("the key has no '{}'", name);
    return false;
  }
  if constexpr (std::is_same_v<T, std::string>) {
    if (!found->is_string()) {
      why = fmt::format("the key's '{}' is not a string", name);
      return false;
    }
  } else if (!found->is_number_integer()) {
    why = fmt::format("the key's '{}' is not an integer", name);
    return false;
  }
  out = found->template get<T>();
  return true;
}

bool read_machine(const Json& json, Machine& m, std::string& why) {
  if (!read(json, "backend", m.backend, why)) return false;
  if (m.backend == "cpu")
    return read(json, "cpu", m.design, why) && read(json, "machine_isa", m.isa, why) &&
           read(json, "cores", m.cores, why);
  return read(json, "compute_capability", m.compute_capability, why) &&
         read(json, "multiprocessors", m.multiprocessors, why) &&
         read(json, "memory_gib", m.memory_gib, why) && read(json, "mig", m.mig, why);
}

bool read(const Json& json, const Word& word, std::int64_t& value, std::string& why) {
  if (word.value_name == nullptr) return read(json, word.name, value, why);
  std::string name;
  if (!read(json, word.name, name, why)) return false;
  if (core::parse_value(word, name, value)) return true;
  why = fmt::format("the key's {} '{}' is unknown", word.name, name);
  return false;
}

bool read_origin(const Json& json, const Tunable& tunable, const Machine& machine,
                 ConfigOrigin& origin, std::string& why) {
  std::int64_t threads = 0;
  std::int64_t isa = 0;
  if (!read(json, threads_word, threads, why) ||
      (tunable.depends_on_isa && !read(json, isa_word, isa, why)))
    return false;
  if (!threads_word.accepts(threads)) {
    why = fmt::format("the key's threads = {} is not a valid number of threads", threads);
    return false;
  }
  origin = {device_kind_of(machine), static_cast<int>(threads), static_cast<core::Isa>(isa)};
  return true;
}

}  // namespace

Key key_of(const ConfigQuery& query, const Machine& machine, const Policy& policy) {
  return {members_of(query, machine, policy).text()};
}

std::optional<KeyParts> parse_key(std::string_view text, std::string& why) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) {
    why = "the key is not a JSON object";
    return std::nullopt;
  }
  KeyParts parts;
  std::string op;
  std::string cache;
  std::string launch;
  if (!read_machine(json, parts.machine, why) || !read(json, "op", op, why) ||
      !read(json, "cache", cache, why) || !read(json, "launch", launch, why))
    return std::nullopt;
  parts.policy = {cache == "cold", launch == "graph"};
  const Tunable* tunable = find_tunable(op);
  if (tunable == nullptr) {
    why = fmt::format("op '{}' is unknown", op);
    return std::nullopt;
  }
  parts.query.op = tunable->op;
  for (std::size_t i = 0; i < tunable->problem.size(); ++i) {
    const Word& word = tunable->problem[i];
    std::int64_t& value = parts.query.words[i];
    // A word that is not always written belongs to the machine's members. Not every machine has it.
    const bool is_there = word.written == Written::always || json.contains(word.name);
    if (is_there && !read(json, word, value, why)) return std::nullopt;
  }
  if (!read_origin(json, *tunable, parts.machine, parts.query.origin, why)) return std::nullopt;
  // A key with members that are unknown here describes another problem, so it is refused.
  if (Json::parse(members_of(parts.query, parts.machine, parts.policy).text()) != json) {
    why = "the key has members that this version does not know";
    return std::nullopt;
  }
  return parts;
}

Family family_of(const ConfigQuery& query, const Machine& machine, const Policy& policy) {
  const Tunable& tunable = tunable_of(query.op);
  const std::string_view tokens = tunable.size(query).tokens;
  Members members = members_of(query, machine, policy);
  Family family;
  for (std::size_t i = 0; i < tunable.problem.size(); ++i)
    if (tunable.problem[i].name == tokens) {
      family.m = query.words[i];
      members.erase(tokens);
    }
  family.key = {members.text()};
  return family;
}

std::string describe(const ConfigQuery& query) {
  const Tunable& tunable = tunable_of(query.op);
  const std::string text = tunable.describe(query);
  return text.empty() ? "unknown" : fmt::format("{}{}", tunable.label, text);
}

}  // namespace switchback::autotune
