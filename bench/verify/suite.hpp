// SPDX-License-Identifier: Apache-2.0
// Bench: what the parts of `verify` share: the Context under test, the options, and how a check is
// made and reported.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "autotune/operations.hpp"
#include "bench/verify/verify.hpp"
#include "measure/expected.hpp"
#include "measure/matrix.hpp"
#include "measure/trial.hpp"
#include "switchback/quant.hpp"

namespace switchback::bench {

namespace oracle = measure::oracle;
using measure::all_rows;
using measure::element;
using measure::Group;
using measure::in_dtype;
using measure::not_measured;
using measure::Reference;
using measure::Rows;

/// The accuracy, compared with an f64 reference, that results of random data must reach in addition
/// to the other checks.
struct Accuracy {
  const Reference* reference = nullptr;
  double largest_relative_error = 0;  ///< upper limit of the relative error; 0: no limit
  double smallest_cosine = 0;
};

class Suite {
 public:
  Suite(Context& context, const VerifyOptions& options,
        const std::function<void(const Check&)>& sink, VerifySummary& summary)
      : context_(context), options_(options), sink_(sink), summary_(summary) {}

  [[nodiscard]] Context& context() const noexcept { return context_; }
  [[nodiscard]] const VerifyOptions& options() const noexcept { return options_; }
  [[nodiscard]] bool wants(std::string_view op) const;
  /// Whether the options ask for checks with this kind of data on matrices of this shape.
  [[nodiscard]] bool wants(Data data, const VerifyShape& shape) const;
  /// The names of the available engines that are to be forced, as the options select them.
  [[nodiscard]] std::vector<std::string> engines(const std::vector<EngineInfo>& infos) const;
  /// The rows to compare in an output [rows,cols] of a product, given its inner dimension.
  [[nodiscard]] Rows rows_for(std::int64_t rows, std::int64_t cols, std::int64_t inner) const;

  /// A check whose operation, types, data, shape and machine are filled in, but not its outcome.
  [[nodiscard]] Check check(std::string op, std::string part, DType dtype, Data data,
                            const VerifyShape& shape) const;
  /// Runs the operation. If it throws, reports a skipped or failed check and returns false.
  bool attempt(const Check& check, const std::function<void()>& operation);

  /// A matrix in memory that both the device and the host can access, for operations and for checks
  /// of their results.
  [[nodiscard]] measure::Matrix matrix(DType dtype, std::int64_t rows, std::int64_t cols) const {
    return measure::Matrix::visible(context_, dtype, rows, cols);
  }
  template <class T>
  [[nodiscard]] measure::Matrix filled(std::int64_t rows, std::int64_t cols, T value) const {
    measure::Matrix m = matrix(dtype_of<T>, rows, cols);
    std::fill(m.values<T>().begin(), m.values<T>().end(), value);
    return m;
  }
  template <class T>
  [[nodiscard]] measure::Matrix copied(std::int64_t rows, std::int64_t cols,
                                       const std::vector<T>& values) const {
    measure::Matrix m = matrix(dtype_of<T>, rows, cols);
    std::copy(values.begin(), values.end(), m.values<T>().begin());
    return m;
  }
  /// A matrix for an operation to write. It is filled with a finite value that no check expects, so
  /// unwritten elements are found whether the right value is a number or a NaN.
  [[nodiscard]] measure::Matrix unwritten(DType dtype, std::int64_t rows, std::int64_t cols) const;

  void exact(Check check, AnyMatrix written, const Rows& rows, ConstAnyMatrix want,
             std::string_view bound, const Accuracy& accuracy = {});
  void exact(Check check, AnyMatrix written, ConstAnyMatrix want, std::string_view bound);
  void bounded(Check check, AnyMatrix written, const Rows& rows, const Reference& reference,
               std::string_view bound);
  /// Runs and checks an operation's trials (measure/trial.hpp): the default configuration of each
  /// selected engine on all selected kinds of data.
  void trials(const autotune::Operation& operation, const VerifyShape& shape);

 private:
  void report(const Check& check);

  Context& context_;
  const VerifyOptions& options_;
  const std::function<void(const Check&)>& sink_;
  VerifySummary& summary_;
};

/// Wraps the expected values as a [1,n] or [rows,cols] matrix for comparisons.
template <class T>
ConstAnyMatrix as_matrix(const std::vector<T>& values, std::int64_t cols) {
  const auto count = static_cast<std::int64_t>(values.size());
  return {values.data(), dtype_of<T>, cols > 0 ? count / cols : 0, cols, cols};
}
template <class T>
ConstAnyMatrix as_row(const std::vector<T>& values) {
  return as_matrix(values, static_cast<std::int64_t>(values.size()));
}
/// The value that f32 scales and sums have before an operation writes them; no check expects it.
inline constexpr float unwritten_float = 0x1.D6D6D6p+87f;
/// How many rows share scales (a block) when codes of blocks are checked.
inline constexpr std::int64_t verified_block_rows = 128;
/// The elements of a matrix as floats, row after row.
std::vector<float> as_floats(ConstAnyMatrix m);
std::vector<float> rows_as_floats(ConstAnyMatrix m, const Rows& rows);

// The parts of `verify`. Each function makes the checks of one shape.
void verify_layer(Suite& suite, const VerifyShape& shape);
void verify_grouped(Suite& suite, const VerifyShape& shape);
void verify_fragmented(Suite& suite, const VerifyShape& shape);

}  // namespace switchback::bench
