// SPDX-License-Identifier: Apache-2.0
// Bench: `verify`: checks every operation, layer mode, dtype and engine against separate reference
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

/// The sizes of a layer: X[batch, dim_in], W[dim_out, dim_in].
struct VerifyShape {
  std::int64_t batch = 0;
  std::int64_t dim_in = 0;
  std::int64_t dim_out = 0;
};

/// Parses the value of --shape, as parse_sides() does. Throws Error(invalid_argument).
VerifyShape parse_verify_shape(std::string_view text);
/// The shapes in a grid file, or in a built-in grid given by its name. Throws Error.
std::vector<VerifyShape> verify_shapes_of_grid(const std::string& file_or_name);

/// The kind of data with this name. For an unknown name, throws Error(invalid_argument) that lists
/// the names.
Data parse_data(std::string_view name);

/// One check of a result, and its outcome.
struct Check {
  enum class Outcome { pass, fail, skipped };

  std::string op;      ///< the operation: "quantize_rowwise", "gemm", "layer", …
  std::string part;    ///< the checked output: "codes", "absmax", "forward", "dw", …
  std::string mode;    ///< the layer's mode; empty for other operations
  std::string dtype;   ///< type of the input
  std::string output;  ///< type of the output
  std::string engine;  ///< name of the forced engine; "chosen" if the library chooses
  std::string isa;
  int threads = 0;
  Data data = Data::normal;
  VerifyShape shape;

  Outcome outcome = Outcome::pass;
  std::string reason;  ///< why the check was skipped, or the error that was thrown
  Comparison comparison;
  std::string bound;  ///< which results are allowed, and where this rule comes from
};

nlohmann::ordered_json to_json(const Check& check);

struct VerifyOptions {
  ContextOptions context;
  std::vector<VerifyShape> shapes;  ///< shapes to check; empty: the default shapes
  std::vector<DType> dtypes = {DType::f32, DType::f16, DType::bf16};
  std::vector<Mode> modes =
      modes_where([](const ModeTraits& mode) { return mode.mode != Mode::automatic; });
  std::vector<Data> data;  ///< kinds of data; empty: all kinds, or three of them on large shapes
  std::vector<std::string> ops;  ///< operations to check, from verify_ops(); empty: all
  std::string engine;            ///< the only engine to check for products; empty: all engines
  std::uint64_t seed = 1;
  /// The most multiply-adds of a reference product. If a product needs more, only a sample of its
  /// rows is compared.
  std::int64_t reference_macs = std::int64_t{1} << 26;
  /// Called with each result before it is checked. Tests change the result here, to see that the
  /// check then fails.
  std::function<void(const Check&, AnyMatrix written)> tamper;
};

/// The names of the operations that VerifyOptions::ops accepts.
const std::vector<std::string>& verify_ops();
/// The shapes that are checked by default: odd, small and medium ones.
const std::vector<VerifyShape>& default_verify_shapes();

struct VerifySummary {
  std::int64_t passed = 0;
  std::int64_t failed = 0;
  std::int64_t skipped = 0;
};
/// Makes all checks that the options select, and calls `sink` after each. Throws Error for invalid
/// options: an engine that does not exist (invalid_argument) or that cannot run here (unsupported),
/// and a device that is missing.
VerifySummary run_verify(const VerifyOptions& options,
                         const std::function<void(const Check&)>& sink);

}  // namespace switchback::bench
