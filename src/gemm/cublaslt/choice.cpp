// SPDX-License-Identifier: Apache-2.0
#include "gemm/cublaslt/choice.hpp"

#include <fmt/format.h>

namespace switchback {

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
