// SPDX-License-Identifier: Apache-2.0
#include "gemm/cublaslt/choice.hpp"

#include <fmt/format.h>

namespace switchback {

namespace {

// Where an attribute is stored in the two words of a packed algorithm, in bits from the lowest. The
// values that cuBLASLt has today need at most half of each field.
struct Field {
  std::size_t word;
  int shift;
  int bits;
};

constexpr std::size_t count = 9;

constexpr std::array<Field, count> fields = {{
    {0, 0, 16},   // id + 1, so that it is never zero for a stored algorithm
    {0, 16, 16},  // tile
    {0, 32, 16},  // stages
    {1, 0, 16},   // split_k
    {0, 48, 6},   // reduction
    {0, 54, 8},   // swizzle
    {1, 16, 22},  // custom
    {1, 38, 8},   // inner_shape
    {1, 46, 16},  // CublasLtAlgorithm::cluster_shape
}};

constexpr std::int64_t most_of(std::size_t i) {
  return (std::int64_t{1} << fields[i].bits) - (i == 0 ? 2 : 1);
}

constexpr std::array<CublasLtAttribute, count> attributes = {{
    {"id", &CublasLtAlgorithm::id, most_of(0)},
    {"tile", &CublasLtAlgorithm::tile, most_of(1)},
    {"stages", &CublasLtAlgorithm::stages, most_of(2)},
    {"split_k", &CublasLtAlgorithm::split_k, most_of(3)},
    {"reduction", &CublasLtAlgorithm::reduction, most_of(4)},
    {"swizzle", &CublasLtAlgorithm::swizzle, most_of(5)},
    {"custom", &CublasLtAlgorithm::custom, most_of(6)},
    {"inner_shape", &CublasLtAlgorithm::inner_shape, most_of(7)},
    {"cluster_shape", &CublasLtAlgorithm::cluster_shape, most_of(8)},
}};

}  // namespace

std::span<const CublasLtAttribute> cublaslt_attributes() noexcept {
  return attributes;
}

std::string describe(const CublasLtAlgorithm& algorithm) {
  std::string text;
  for (const CublasLtAttribute& a : attributes)
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", a.name, algorithm.*a.value);
  return text;
}

bool is_valid(const CublasLtAlgorithm& algorithm) noexcept {
  for (const CublasLtAttribute& a : attributes)
    if (algorithm.*a.value < 0 || algorithm.*a.value > a.most) return false;
  return true;
}

std::string out_of_range(const CublasLtAlgorithm& algorithm) {
  for (const CublasLtAttribute& a : attributes)
    if (algorithm.*a.value < 0 || algorithm.*a.value > a.most)
      return fmt::format("{} = {} in a cuBLASLt algorithm; it must be 0 to {}", a.name,
                         algorithm.*a.value, a.most);
  return {};
}

CublasLtWords pack(const std::optional<CublasLtAlgorithm>& algorithm) noexcept {
  CublasLtWords words = {0, 0};
  if (!algorithm.has_value()) return words;
  if (!is_valid(*algorithm)) return {-1, -1};
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t value = *algorithm.*attributes[i].value + (i == 0 ? 1 : 0);
    words[fields[i].word] |= value << fields[i].shift;
  }
  return words;
}

bool unpack(const CublasLtWords& words, std::optional<CublasLtAlgorithm>& algorithm) noexcept {
  algorithm.reset();
  if (words == CublasLtWords{0, 0}) return true;
  // A negative word has its highest bit set, which belongs to no field, and a right shift would
  // copy it into fields.
  if (words[0] < 0 || words[1] < 0) return false;
  CublasLtAlgorithm found;
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t mask = (std::int64_t{1} << fields[i].bits) - 1;
    found.*attributes[i].value =
        (words[fields[i].word] >> fields[i].shift & mask) - (i == 0 ? 1 : 0);
  }
  if (found.id < 0 || pack(found) != words) return false;
  algorithm = found;
  return true;
}

namespace {

constexpr std::int64_t most_workspace_mib = 4096;

}  // namespace

std::string describe(const CublasLtChoice& choice) {
  std::string text;
  if (choice.algorithm.has_value()) text += " " + describe(*choice.algorithm);
  if (choice.workspace_mib != CublasLtChoice::default_workspace)
    text += fmt::format(" workspace={}MiB", choice.workspace_mib);
  return text;
}

bool is_valid(const CublasLtChoice& choice) noexcept {
  if (choice.workspace_mib < CublasLtChoice::default_workspace ||
      choice.workspace_mib > most_workspace_mib)
    return false;
  return !choice.algorithm.has_value() || is_valid(*choice.algorithm);
}

std::string out_of_range(const CublasLtChoice& choice) {
  if (choice.workspace_mib < CublasLtChoice::default_workspace ||
      choice.workspace_mib > most_workspace_mib)
    return fmt::format("workspace_mib = {}; it must be 0 to {}, or -1 for the default",
                       choice.workspace_mib, most_workspace_mib);
  return choice.algorithm.has_value() ? out_of_range(*choice.algorithm) : std::string();
}

std::int64_t workspace_bytes(const CublasLtChoice& choice) noexcept {
  const std::int64_t mib = choice.workspace_mib == CublasLtChoice::default_workspace
                               ? default_workspace_mib
                               : choice.workspace_mib;
  return mib << 20;
}

CublasLtChoiceWords to_words(const CublasLtChoice& choice) noexcept {
  const CublasLtWords algorithm = pack(choice.algorithm);
  return {algorithm[0], algorithm[1], choice.workspace_mib + 1};
}

CublasLtChoice from_words(const CublasLtChoiceWords& words) noexcept {
  CublasLtChoice choice;
  CublasLtAlgorithm invalid;
  invalid.id = -1;
  if (!unpack({words[0], words[1]}, choice.algorithm)) choice.algorithm = invalid;
  // Values far out of range are clamped: they stay out of range, and words[2] - 1 cannot overflow.
  choice.workspace_mib =
      words[2] < 0 || words[2] > most_workspace_mib + 1 ? most_workspace_mib + 1 : words[2] - 1;
  return choice;
}

}  // namespace switchback
