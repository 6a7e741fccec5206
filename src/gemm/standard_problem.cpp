// SPDX-License-Identifier: Apache-2.0
#include "gemm/standard_problem.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "gemm/standard_engine.hpp"

namespace switchback::standard {

std::string describe(const Problem& p) {
  return fmt::format("m {} n {} k {} {}{} {} -> {}{}{}, ld {} {} {}, threads {}", p.m, p.n, p.k,
                     p.transpose_a ? 'T' : 'N', p.transpose_b ? 'T' : 'N', dtype_name(p.input),
                     dtype_name(p.output), p.bias ? " + bias" : "",
                     p.accumulate ? ", accumulate" : "", p.lda, p.ldb, p.ldd, p.threads);
}

ConfigQuery to_query(const Problem& p) {
  const std::int64_t flags =
      (p.transpose_a ? 1 : 0) | (p.transpose_b ? 2 : 0) | (p.accumulate ? 4 : 0) | (p.bias ? 8 : 0);
  ConfigQuery query;
  query.op = ConfigOp::gemm_standard;
  query.words = {p.m,
                 p.n,
                 p.k,
                 p.lda,
                 p.ldb,
                 p.ldd,
                 static_cast<std::int64_t>(p.input),
                 static_cast<std::int64_t>(p.output),
                 flags,
                 p.threads};
  return query;
}

std::string describe(const Config& config) {
  return fmt::format("{}{}", engine(config.engine).name, config.pack_b ? " pack_b" : "");
}

ConfigChoice to_choice(const Config& config) {
  ConfigChoice choice;
  choice.words[0] = static_cast<std::int64_t>(config.engine);
  choice.words[1] = config.pack_b ? 1 : 0;
  return choice;
}

bool from_choice(const ConfigChoice& choice, Config& config) {
  const auto known = [&](const Engine* e) {
    return static_cast<std::int64_t>(e->id) == choice.words[0];
  };
  if (std::ranges::none_of(engines(), known)) return false;
  if (choice.words[1] != 0 && choice.words[1] != 1) return false;
  config.engine = static_cast<EngineId>(choice.words[0]);
  config.pack_b = choice.words[1] == 1;
  return true;
}

}  // namespace switchback::standard
