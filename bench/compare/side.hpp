// SPDX-License-Identifier: Apache-2.0
// Bench: one side of a comparison: the times of every case in a file of records, with the samples
// from the run file next to it.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace switchback::bench {

/// The times of a field in one run of a program.
struct RunTimes {
  double median_ms = 0;
  std::optional<double> mad_ms;  ///< empty: a record alone does not have it
  std::int64_t count = 0;        ///< calls; 0: not known
  std::vector<double> times_ms;  ///< of each call, by round; empty: not known
  bool disturbed = false;        ///< other programs disturbed the run
  std::string started;           ///< start time, as in the run file; empty: not known
};

/// All runs of a field of a case, in file order.
struct FieldTimes {
  std::string name;
  std::vector<RunTimes> runs;
  std::string engine;  ///< of the last run; may be empty
  bool sum = false;    ///< whether it is the sum of other fields
};

/// What identifies a case in addition to its name: "dtype" = "f32", … A member that a file does not
/// have is missing; it matches every value of the other side.
using KeyMembers = std::vector<std::pair<std::string, std::string>>;

/// The members of a record, up to its first time, for a workload with its own format: texts, whole
/// numbers and booleans.
KeyMembers leading_members(const nlohmann::ordered_json& record);

struct CaseTimes {
  std::string workload;  ///< "run", "multimodel", …, "micro gemm"
  std::string id;        ///< "1024x1024x4096"
  KeyMembers key;
  std::vector<FieldTimes> fields;

  [[nodiscard]] const FieldTimes* field(std::string_view name) const;
  /// "run 64x512x512 dtype=f32 mode=default"
  [[nodiscard]] std::string name() const;
};

struct Side {
  std::string path;
  std::string machine;  ///< "CPU, isa, threads"; empty: not known
  std::string commit;   ///< of the program; empty: not known
  bool has_run_file = false;
  std::vector<CaseTimes> cases;
};

/// Reads records of any workload, the output of `micro --out`, or published records with 22 or 25
/// keys, and the run file if there is one. Several records of a case are several runs of it. Throws
/// Error.
Side load_side(const std::string& path);

/// Whether the keys do not contradict each other.
bool same_case(const CaseTimes& a, const CaseTimes& b);

}  // namespace switchback::bench
