// SPDX-License-Identifier: Apache-2.0
#include "bench/micro/proven.hpp"

#include <fmt/format.h>

#include "core/check.hpp"
#include "core/context_state.hpp"

namespace switchback::bench {

bool is_right(autotune::Prover& prover, const ConfigQuery& query, const ConfigChoice& choice,
              const std::string& name, LeftOut& left_out) {
  using autotune::Proof;
  const Proof proof = prover.prove(query, choice);
  if (proof.result == Proof::Result::right) return true;
  (proof.result == Proof::Result::wrong ? left_out.wrong : left_out.unproven)
      .push_back(fmt::format("{}: {}", name, proof.why));
  return false;
}

void LeftOutWarnings::add(Session& session, const LeftOut& of_case, std::string_view bench,
                          bool is_last) {
  for (const std::string& what : of_case.unproven)
    session.warning("left out: " + what);
  for (const std::string& what : of_case.wrong)
    session.warning("WRONG: " + what);
  wrong_ += of_case.wrong.size();
  if (is_last && wrong_ > 0)
    core::fail(Status::device_error, "micro {}: {} configurations are wrong on {}: see above",
               bench, wrong_, session.context().device());
}

}  // namespace switchback::bench
