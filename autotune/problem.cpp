// SPDX-License-Identifier: Apache-2.0
#include "autotune/problem.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <nlohmann/json.hpp>
#include <span>

#include "autotune/words.hpp"
#include "core/cpu/isa.hpp"
#include "core/device.hpp"
#include "gemm/cublaslt/choice.hpp"
#include "gemm/floating/problem.hpp"
#include "gemm/int8/problem.hpp"
#include "gemm/library_versions.hpp"
#include "linear/mode.hpp"
#include "quant/problem.hpp"

#if !defined(SWITCHBACK_VERSION)
#error "the build names the version"
#endif

namespace switchback::autotune {

namespace {

using Json = nlohmann::json;

std::string_view backend_name(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::cuda:
      return "cuda";
    case DeviceKind::emulated:
      return "emulated";
    default:
      return "cpu";
  }
}

// 80 GB of an H100 and 79.6 of what its driver reports are one class.
std::int64_t memory_class_gib(std::size_t bytes) {
  const double gib = static_cast<double>(bytes) / static_cast<double>(std::size_t{1} << 30);
  std::int64_t best = 1;
  for (std::int64_t power = 1; power <= (std::int64_t{1} << 20); power *= 2)
    for (const std::int64_t size : {power, power * 3 / 2, power * 5 / 4})
      if (std::abs(static_cast<double>(size) - gib) < std::abs(static_cast<double>(best) - gib))
        best = size;
  return best;
}

// The members of a flat JSON object. Not the JSON library's: that one does not survive running out
// of memory while it builds a value, and a Context is made here.
class Members {
 public:
  void set(const char* name, std::int64_t value) { values_[name] = fmt::format("{}", value); }
  void set(const char* name, std::string_view value) {
    std::string text = "\"";
    for (const char c : value) {
      if (c == '"' || c == '\\') text += '\\';
      text += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
    values_[name] = std::move(text) + '"';
  }
  void erase(const char* name) { values_.erase(name); }
  /// Names in order, no spaces: equal objects have equal text.
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

Members members_of(const ConfigQuery& query, const Machine& machine, const Policy& policy) {
  Members members = members_of(machine);
  members.set("cache", policy.cold_cache ? std::string_view("cold") : "hot");
  members.set("launch", policy.graph ? std::string_view("graph") : "eager");
  members.set("op", op_name(query.op));
  for (const Word& word : query_words(query.op)) {
    const std::int64_t value = query.words[word.index];
    if (word.kind == WordKind::integer)
      members.set(word.name, value);
    else
      members.set(word.name, word_text(word, value));
  }
  return members;
}

// Reads a member into `out`; false and why if it is missing or of another kind.
template <class T>
bool read(const Json& json, const char* name, T& out, std::string& why) {
  const auto found = json.find(name);
  if (found == json.end()) {
    why = fmt::format("the key has no '{}'", name);
    return false;
  }
  if constexpr (std::is_same_v<T, std::string>) {
    if (!found->is_string()) {
      why = fmt::format("the key's '{}' is no string", name);
      return false;
    }
  } else if (!found->is_number_integer()) {
    why = fmt::format("the key's '{}' is no integer", name);
    return false;
  }
  out = found->template get<T>();
  return true;
}

bool read_machine(const Json& json, Machine& m, std::string& why) {
  if (!read(json, "backend", m.backend, why)) return false;
  if (m.backend == "cpu")
    return read(json, "machine_isa", m.isa, why) && read(json, "cores", m.cores, why);
  return read(json, "compute_capability", m.compute_capability, why) &&
         read(json, "multiprocessors", m.multiprocessors, why) &&
         read(json, "memory_gib", m.memory_gib, why) && read(json, "mig", m.mig, why);
}

// The backend stands in every query and, in a key, for the whole machine once.
void set_machine(ConfigQuery& query, const Machine& machine) {
  const auto kind = static_cast<std::int64_t>(machine.backend == "cuda"       ? DeviceKind::cuda
                                              : machine.backend == "emulated" ? DeviceKind::emulated
                                                                              : DeviceKind::cpu);
  query.words[device_word(query.op)] = kind;
  if (query.op == ConfigOp::gemm_floating && kind != 0)
    query.words[11] = machine.compute_capability;
}

std::optional<ConfigOp> op_named(std::string_view name) {
  for (const ConfigOp op : all_ops)
    if (op_name(op) == name) return op;
  return std::nullopt;
}

}  // namespace

Machine machine_of(const ContextState& state) {
  Machine m;
  m.backend = backend_name(state.device.kind);
  if (state.runtime == nullptr) {
    m.isa = core::isa_name(core::cpu_features().level());
    m.cores = core::available_cores();
    return m;
  }
  const core::DeviceInfo& info = state.runtime->info();
  m.compute_capability = info.compute_capability();
  m.multiprocessors = info.multiprocessors;
  m.memory_gib = memory_class_gib(info.memory_bytes);
  // The driver names a part of a device "NVIDIA A100-SXM4-40GB MIG 1g.5gb".
  constexpr std::string_view mark = " MIG ";
  const std::size_t at = info.name.find(mark);
  if (at != std::string::npos) m.mig = info.name.substr(at + mark.size());
  return m;
}

std::string environment_name(const Machine& machine) {
  return make_key(members_of(machine).text()).sha.substr(0, 16);
}

std::string describe(const Machine& m) {
  if (m.backend == "cpu") return fmt::format("cpu {}, {} cores", m.isa, m.cores);
  return fmt::format("{} sm_{}, {} multiprocessors, {} GiB{}", m.backend, m.compute_capability,
                     m.multiprocessors, m.memory_gib, m.mig.empty() ? "" : ", MIG " + m.mig);
}

Key key_of(const ConfigQuery& query, const Machine& machine, const Policy& policy) {
  return make_key(members_of(query, machine, policy).text());
}

std::optional<KeyParts> parse_key(std::string_view text, std::string& why) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) {
    why = "the key is no JSON object";
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
  const std::optional<ConfigOp> known = op_named(op);
  if (!known) {
    why = fmt::format("op '{}' is unknown", op);
    return std::nullopt;
  }
  parts.query.op = *known;
  for (const Word& word : query_words(*known)) {
    std::int64_t& value = parts.query.words[word.index];
    if (word.kind == WordKind::integer) {
      if (!read(json, word.name, value, why)) return std::nullopt;
      continue;
    }
    std::string name;
    if (!read(json, word.name, name, why)) return std::nullopt;
    const std::optional<std::int64_t> number = word_value(word, name);
    if (!number) {
      why = fmt::format("the key's {} '{}' is unknown", word.name, name);
      return std::nullopt;
    }
    value = *number;
  }
  set_machine(parts.query, parts.machine);
  // A key that says more than is known here is another problem.
  if (Json::parse(members_of(parts.query, parts.machine, parts.policy).text()) != json) {
    why = "the key has members that are unknown here";
    return std::nullopt;
  }
  return parts;
}

Family family_of(const ConfigQuery& query, const Machine& machine, const Policy& policy) {
  Members members = members_of(query, machine, policy);
  Family family;
  // In dW = Gᵀ · X the tokens are the inner dimension.
  const bool inner = query.op == ConfigOp::gemm_floating && (query.words[8] & 1) != 0;
  for (const Word& word : query_words(query.op))
    if (inner ? std::string_view(word.name) == "k" : word.is_rows) {
      family.m = query.words[word.index];
      members.erase(word.name);
    }
  family.key = make_key(members.text());
  return family;
}

std::int64_t m_bucket(std::int64_t m) noexcept {
  if (m <= 16) return m;
  const auto above = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(m)));
  return m <= above / 4 * 3 ? above / 4 * 3 : above;
}

std::string describe(const ConfigQuery& query) {
  switch (query.op) {
    case ConfigOp::quantize: {
      quant::Problem problem;
      if (quant::from_query(query, problem)) return quant::to_string(problem);
      break;
    }
    case ConfigOp::gemm_int8: {
      gemm_int8::GemmProblem problem;
      if (gemm_int8::from_query(query, problem)) return "int8 " + gemm_int8::describe(problem);
      break;
    }
    case ConfigOp::gemm_floating: {
      floating::Problem problem;
      if (floating::from_query(query, problem)) return "standard " + floating::describe(problem);
      break;
    }
    case ConfigOp::layer_mode: {
      linear::PassProblem problem;
      if (linear::from_query(query, problem)) return linear::describe(problem);
      break;
    }
  }
  return "unknown";
}

namespace {

// Where the words of a CublasLtChoice begin in a choice of this op; -1: it has none.
int cublaslt_words_at(ConfigOp op) {
  return op == ConfigOp::gemm_int8 ? 7 : op == ConfigOp::gemm_floating ? 3 : -1;
}
constexpr std::string_view cublaslt_prefix = "cublaslt_";
constexpr const char* workspace_name = "workspace_mib";
constexpr const char* unranked_name = "unranked";

// The library's own 64 bytes mean something to one of its versions; what they say in words means
// the same to all.
void add_cublaslt(CandidateText& text, const CublasLtChoice& choice) {
  if (choice == CublasLtChoice()) return;
  if (choice.algorithm)
    for (const CublasLtAttribute& attribute : cublaslt_attributes())
      text.attributes.emplace_back(fmt::format("{}{}", cublaslt_prefix, attribute.name),
                                   (*choice.algorithm).*attribute.value);
  text.attributes.emplace_back(workspace_name, choice.workspace_mib);
  text.attributes.emplace_back(unranked_name, choice.unranked ? 1 : 0);
}

// Takes what a text says of cuBLASLt; returns how many of its attributes that were.
std::size_t take_cublaslt(const CandidateText& text, CublasLtChoice& choice) {
  std::size_t used = 0;
  for (const auto& [name, value] : text.attributes) {
    if (name == workspace_name) {
      choice.workspace_mib = value;
      ++used;
    } else if (name == unranked_name) {
      choice.unranked = value != 0;
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

}  // namespace

CandidateText to_text(ConfigOp op, const ConfigChoice& choice) {
  CandidateText text;
  for (const Word& word : choice_words(op)) {
    const std::int64_t value = choice.words[word.index];
    if (word.index == 0)
      text.engine = word_text(word, value);
    else if (value != 0 || !word.unless_zero)
      text.attributes.emplace_back(word.name, value);
  }
  if (const int at = cublaslt_words_at(op); at >= 0) {
    CublasLtChoiceWords words{};
    std::copy_n(choice.words.begin() + at, words.size(), words.begin());
    add_cublaslt(text, from_words(words));
  }
  return text;
}

std::optional<ConfigChoice> to_choice(ConfigOp op, const CandidateText& text, std::string& why) {
  ConfigChoice choice;
  std::size_t used = 0;
  for (const Word& word : choice_words(op)) {
    if (word.index == 0) {
      const std::optional<std::int64_t> engine = word_value(word, text.engine);
      if (!engine) {
        why = fmt::format("engine '{}' is unknown", text.engine);
        return std::nullopt;
      }
      choice.words[0] = *engine;
      continue;
    }
    const auto found = std::find_if(text.attributes.begin(), text.attributes.end(),
                                    [&](const auto& pair) { return pair.first == word.name; });
    if (found == text.attributes.end()) continue;  // zero, as before there was such a word
    choice.words[word.index] = found->second;
    ++used;
  }
  if (const int at = cublaslt_words_at(op); at >= 0) {
    CublasLtChoice cublaslt;
    used += take_cublaslt(text, cublaslt);
    why = out_of_range(cublaslt);
    if (!why.empty()) return std::nullopt;
    const CublasLtChoiceWords words = to_words(cublaslt);
    std::copy(words.begin(), words.end(), choice.words.begin() + at);
  }
  if (used != text.attributes.size()) {
    why = "the configuration has attributes that are unknown here";
    return std::nullopt;
  }
  return choice;
}

namespace {

// Counted up whenever the meaning of a configuration or the speed of kernels changes so much that
// what was measured before says nothing any more.
constexpr std::string_view kernels_of_cpu = "quantize 2, int8 1";
constexpr std::string_view kernels_of_cuda = "quantize 1, int8 1";

}  // namespace

Environment environment_of(const ContextState& state) {
  Environment env;
  const bool cpu = state.runtime == nullptr;
  env.kernels = cpu ? kernels_of_cpu : kernels_of_cuda;
  for (const auto& [name, version] : library_versions(state.device.kind)) {
    if (name == "oneDNN") env.onednn = version;
    if (name == "OpenBLAS") env.openblas = version;
    if (name == "cuBLASLt") env.cublaslt = version;
  }
  if (cpu) {
    env.product = core::cpu_model();
  } else {
    const core::DeviceInfo& info = state.runtime->info();
    env.product = info.name;
    env.driver = fmt::format("{}.{}", info.driver_version / 1000, info.driver_version % 1000 / 10);
  }
  env.tool = SWITCHBACK_VERSION;
  return env;
}

std::string mismatch(ConfigOp op, std::string_view engine, const Environment& then,
                     const Environment& now) {
  const auto differs = [](std::string_view what, std::string_view a, std::string_view b) {
    return fmt::format("measured with {} '{}', this is '{}'", what, a, b);
  };
  // A ranking of modes was made of everything.
  const bool everything = op == ConfigOp::layer_mode;
  const auto uses = [&](std::string_view library) {
    return everything || engine.starts_with(library);
  };
  const bool library_only =
      uses("onednn") || uses("openblas") || (uses("cublaslt") && op == ConfigOp::gemm_floating);
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

}  // namespace switchback::autotune
