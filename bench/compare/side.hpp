// SPDX-License-Identifier: Apache-2.0
// Bench: one side of a comparison: the times of every case in a file of records, with the samples
// from the run file that belongs to it.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace switchback::bench {

/// The times of one field in one run of a program.
struct RunTimes {
  double median_ms = 0;
  /// Median absolute deviation; empty: not known, as in a record alone.
  std::optional<double> mad_ms;
  std::int64_t count = 0;        ///< number of timed calls; 0: not known
  std::vector<double> times_ms;  ///< time of each call, by round; empty: not known
  bool disturbed = false;        ///< whether other programs disturbed this run
  std::string started;           ///< start time of the run, from the run file; empty: not known
};

/// All runs of one field of a case, in file order.
struct FieldTimes {
  std::string name;
  std::vector<RunTimes> runs;
  std::string engine;  ///< engine of the last run; may be empty
  bool sum = false;    ///< whether the field is the sum of other fields
};

/// The members, such as "dtype" = "f32", that identify a case in addition to its name. A member
/// that one file does not have matches every value of the other side.
using KeyMembers = std::vector<std::pair<std::string, std::string>>;

/// The members of a record that identify its case: texts, whole numbers and booleans, up to the
/// first time. Used for all workloads except `run`.
KeyMembers leading_members(const nlohmann::ordered_json& record);

struct CaseTimes {
  std::string workload;  ///< the workload of the case: "run", "transformer", …, "micro gemm"
  std::string id;        ///< the case's id: "1024x1024x4096"
  KeyMembers key;
  std::vector<FieldTimes> fields;

  [[nodiscard]] const FieldTimes* field(std::string_view name) const;
  /// The case's full name: "run 64x512x512 dtype=f32 mode=default".
  [[nodiscard]] std::string name() const;
};

struct Side {
  std::string path;
  std::string machine;  ///< the machine as text: "CPU, device, isa, threads"; empty: not known
  std::string commit;   ///< commit of the measured program; empty: not known
  bool has_run_file = false;
  std::vector<CaseTimes> cases;
};

/// Reads one side from a file: records of any workload, the output of `micro --out`, or published
/// records with 22 or 25 keys. Also reads the run file if it exists. Several records of a case are
/// several runs of it. Throws Error.
Side load_side(const std::string& path);

/// Whether two cases can be the same: their names are equal, and their keys do not contradict each
/// other.
bool same_case(const CaseTimes& a, const CaseTimes& b);

}  // namespace switchback::bench
