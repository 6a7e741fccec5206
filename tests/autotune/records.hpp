// SPDX-License-Identifier: Apache-2.0
// Tests of the tuner's store: records to put into it, and files to compare.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "autotune/store/crc32.hpp"
#include "autotune/store/record.hpp"

namespace switchback::test {

inline autotune::Key key_of(std::int64_t m, std::int64_t n = 1024, std::int64_t k = 512) {
  return autotune::make_key(fmt::format(
      R"({{"device":"cpu","env":"AMD EPYC","k":{},"m":{},"n":{},"op":"gemm_int8"}})", k, m, n));
}

inline autotune::Record record_of(autotune::RecordType type, std::int64_t m,
                                  autotune::Effort effort = autotune::Effort::normal,
                                  std::string_view time = "2026-11-21T17:36:23Z",
                                  std::int64_t mc = 96) {
  autotune::Record record;
  record.type = type;
  record.key = key_of(m);
  record.env.kernels = "7";
  record.env.onednn = "2.6.3";
  record.env.product = "AMD EPYC 9R45";
  record.env.tool = "0.1.0";
  record.effort = effort;
  record.time = time;
  if (type == autotune::RecordType::tombstone) return record;
  record.candidate = {"avx512_vnni", {{"mc", mc}, {"nc", 512}}, ""};
  if (type == autotune::RecordType::fail) {
    record.ok = false;
    record.why = "C[0,0] is 1, not 2";
    return record;
  }
  record.stats = {20, 0.1, 0.11, 0.125, 0.13, 0.5, 0.005};
  record.default_median_ms = 0.25;
  return record;
}
inline autotune::Record winner_of(std::int64_t m,
                                  autotune::Effort effort = autotune::Effort::normal,
                                  std::string_view time = "2026-11-21T17:36:23Z",
                                  std::int64_t mc = 96) {
  return record_of(autotune::RecordType::winner, m, effort, time, mc);
}

/// The same, measured while other programs disturbed most of it.
inline autotune::Record doubtful(autotune::Record record) {
  record.timed_rounds = 24;
  record.discarded_rounds = 4;
  record.disturbed_rounds = 20;
  return record;
}

/// A line of the given fields, "{…" without its closing brace, with the CRC of these bytes behind.
inline std::string with_crc(const std::string& fields) {
  return fields + fmt::format(",\"crc32\":\"{:08x}\"}}", autotune::crc32(fields));
}
/// The fields of a line: what with_crc() makes the line of.
inline std::string fields_of(const autotune::Record& record) {
  const std::string line = autotune::to_line(record);
  return line.substr(0, line.rfind(",\"crc32\""));
}

/// `text` with the first `what` replaced; unchanged where it is not in it.
inline std::string replaced(std::string text, std::string_view what, std::string_view with) {
  const std::size_t at = text.find(what);
  if (at != std::string::npos) text.replace(at, what.size(), with);
  return text;
}

inline void put(const std::filesystem::path& file, std::string_view text) {
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary) << text;
}
inline std::string content(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

}  // namespace switchback::test
