// SPDX-License-Identifier: Apache-2.0
// Bench: `verify`: checks every operation, layer mode, dtype and engine against its own reference
// code.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/modes.hpp"
#include "measure/compare.hpp"
#include "measure/data_kinds.hpp"
#include "switchback/context.hpp"
#include "switchback/types.hpp"

namespace switchback::bench {

using measure::Comparison;
using measure::Data;

/// X[batch, dim_in], W[dim_out, dim_in].
struct VerifyShape {
  std::int64_t batch = 0;
  std::int64_t dim_in = 0;
  std::int64_t dim_out = 0;
};

/// The shape of --shape; see parse_sides(). Throws Error(invalid_argument).
VerifyShape parse_verify_shape(std::string_view text);
/// The cases of a grid file, or of a built-in grid by its name. Throws Error.
std::vector<VerifyShape> verify_shapes_of_grid(const std::string& file_or_name);

/// Throws Error(invalid_argument) that lists the names.
Data parse_data(std::string_view name);

/// One check.
struct Check {
  enum class Outcome { pass, fail, skipped };

  std::string op;      ///< "quantize_rowwise", "gemm", "layer", …
  std::string part;    ///< its output: "codes", "absmax", "forward", "dw", …
  std::string mode;    ///< of a layer, else empty
  std::string dtype;   ///< of the input
  std::string output;  ///< of the output
  std::string engine;  ///< forced by name; "chosen" if the library chooses
  std::string isa;
  int threads = 0;
  Data data = Data::normal;
  VerifyShape shape;

  Outcome outcome = Outcome::pass;
  std::string reason;  ///< why it was skipped, or the error that was thrown
  Comparison comparison;
  std::string bound;  ///< the rule for the result, and where it comes from
};

nlohmann::ordered_json to_json(const Check& check);

struct VerifyOptions {
  ContextOptions context;
  std::vector<VerifyShape> shapes;  ///< empty: the default shapes
  std::vector<DType> dtypes = {DType::f32, DType::f16, DType::bf16};
  std::vector<Mode> modes =
      modes_where([](const ModeTraits& mode) { return mode.mode != Mode::automatic; });
  std::vector<Data> data;        ///< empty: all kinds, or on large shapes three of them
  std::vector<std::string> ops;  ///< names of verify_ops(); empty: all
  std::string engine;            ///< only this engine of the products; empty: all
  std::uint64_t seed = 1;
  /// The most multiply-adds of a reference. Of a larger product, only a sample of rows is compared.
  std::int64_t reference_macs = std::int64_t{1} << 26;
  /// Tests change the results of an operation here, to see that the check then fails.
  std::function<void(const Check&, AnyMatrix written)> tamper;
};

/// The names that VerifyOptions::ops accepts.
const std::vector<std::string>& verify_ops();
/// Odd, small and medium shapes.
const std::vector<VerifyShape>& default_verify_shapes();

struct VerifySummary {
  std::int64_t passed = 0;
  std::int64_t failed = 0;
  std::int64_t skipped = 0;
};
/// Calls sink after each check. Throws Error for invalid options: an engine that does not exist
/// (invalid_argument) or that cannot run here (unsupported), and a device that is missing.
VerifySummary run_verify(const VerifyOptions& options,
                         const std::function<void(const Check&)>& sink);

}  // namespace switchback::bench
