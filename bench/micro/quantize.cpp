// SPDX-License-Identifier: Apache-2.0
// Bench: `micro quantize`: each operation against a copy that reads and writes as many bytes, and
// fingerprint, which writes none, against a read.
#include <algorithm>
#include <cmath>

#include "bench/machine/ceilings.hpp"
#include "bench/machine/copy_kernel.hpp"
#include "bench/micro/micro.hpp"
#include "measure/data.hpp"
#include "measure/matrix.hpp"
#include "switchback/fingerprint.hpp"

namespace switchback::bench {

namespace {

constexpr double default_min_time_s = 0.3;
constexpr std::int64_t columns = 4096;

struct Buffers {
  measure::Matrix x;      // the floating point side
  measure::Matrix codes;  // q[rows,columns], and behind it q_t[columns,rows]
  std::vector<float> absmax_rows, absmax_cols, sums;
  float absmax_all = 0;
  Fingerprint seen{};
  std::uint64_t read = 0;

  Buffers(Context& context, DType dtype, std::int64_t rows, std::uint64_t seed)
      : x(dtype, rows, columns),
        codes(DType::s8, 2 * rows, columns),
        absmax_rows(static_cast<std::size_t>(rows)),
        absmax_cols(static_cast<std::size_t>(columns)),
        sums(static_cast<std::size_t>(columns)) {
    measure::fill_normal(context, x.any(), seed);
    measure::fill_codes(context, codes.view<std::int8_t>(), seed + 1);
    quantize_rowwise(context, x.any(), q(), absmax_rows);
  }
  [[nodiscard]] MatrixView<std::int8_t> q() const {
    return {codes.view<std::int8_t>().data, x.rows(), columns};
  }
  [[nodiscard]] MatrixView<std::int8_t> q_t() const {
    return {codes.view<std::int8_t>().data + x.rows() * columns, columns, x.rows()};
  }
};

struct Operation {
  const char* name;
  int code_matrices;  // written (or, by dequantize, read); 0: it only reads
  bool dequantizes;
  std::function<void(Context&, Buffers&)> call;
  std::optional<Target> target;  // of f32 past the caches
};

std::vector<Operation> operations() {
  return {
      {"rowwise", 1, false,
       [](Context& c, Buffers& b) { quantize_rowwise(c, b.x.any(), b.q(), b.absmax_rows); },
       Target{0.8, 0.92, 0.98}},
      {"rowwise + column sums", 1, false,
       [](Context& c, Buffers& b) {
         quantize_rowwise_column_sums(c, b.x.any(), b.q(), b.absmax_rows, b.sums);
       },
       std::nullopt},
      {"columnwise, transposed", 1, false,
       [](Context& c, Buffers& b) {
         quantize_columnwise_transpose(c, b.x.any(), b.q_t(), b.absmax_cols);
       },
       Target{0.3, 0.4, 0.5}},
      {"global", 1, false,
       [](Context& c, Buffers& b) {
         quantize_global(c, b.x.any(), b.q(), std::span(&b.absmax_all, 1));
       },
       std::nullopt},
      {"global, transposed", 1, false,
       [](Context& c, Buffers& b) {
         quantize_global_transpose(c, b.x.any(), b.q_t(), std::span(&b.absmax_all, 1));
       },
       Target{0.45, 0.55, 0.65}},
      {"rowwise and columnwise transposed", 2, false,
       [](Context& c, Buffers& b) {
         quantize_rowwise_and_columnwise_transpose(c, b.x.any(), b.q(), b.absmax_rows, b.q_t(),
                                                   b.absmax_cols);
       },
       std::nullopt},
      {"global and transposed", 2, false,
       [](Context& c, Buffers& b) {
         quantize_global_and_transpose(c, b.x.any(), b.q(), b.q_t(), std::span(&b.absmax_all, 1));
       },
       std::nullopt},
      {"cast to int8", 1, false, [](Context& c, Buffers& b) { cast_to_int8(c, b.x.any(), b.q()); },
       std::nullopt},
      {"fingerprint", 0, false, [](Context& c, Buffers& b) { b.seen = fingerprint(c, b.x.any()); },
       Target{0.8, 0.9, 0.97}},
      // Last: a copy of its traffic leaves no floats in x.
      {"dequantize rowwise", 1, true,
       [](Context& c, Buffers& b) { dequantize_rowwise(c, b.q(), b.absmax_rows, b.x.any()); },
       std::nullopt},
  };
}

// Where the data lies: how many bytes of floats and (both) codes fit there.
struct Place {
  const char* name;
  std::int64_t bytes;
};

void race_with_memory(Context& context, const MicroOptions& options, const MicroSink& sink,
                      const Operation& operation, const Place& place, Buffers& buffers) {
  const auto floats = static_cast<std::int64_t>(buffers.x.size_bytes());
  const std::int64_t codes = operation.code_matrices * buffers.x.rows() * columns;
  const bool only_reads = codes == 0;
  const Traffic traffic = only_reads ? Traffic{floats, 0}
                                     : in_lines(operation.dequantizes ? Traffic{codes, floats}
                                                                      : Traffic{floats, codes});
  // From and to where the operation reads and writes.
  void* x = buffers.x.any().data;
  void* q = buffers.codes.any().data;
  const void* from = operation.dequantizes ? q : x;
  void* to = operation.dequantizes ? x : q;
  std::vector<measure::Rival> rivals;
  if (only_reads) {
    rivals.push_back({"read", [&] { buffers.read |= read_lines(context, x, floats); }});
  } else {
    rivals.push_back(
        {"copy, plain stores", [&] { copy_lines(context, from, to, traffic, Stores::plain); }});
    rivals.push_back({"copy, streaming stores",
                      [&] { copy_lines(context, from, to, traffic, Stores::streaming); }});
  }
  const std::size_t subject = rivals.size();
  rivals.push_back({operation.name, [&] { operation.call(context, buffers); }});
  const double min_time_s =
      options.min_time_s > 0 ? options.min_time_s : default_min_time_s * options.time_factor;
  const std::vector<measure::Timed> timed =
      measure::race(rivals, {.repeat = 5,
                             .min_time_s = min_time_s,
                             .deadline = measure::deadline_in(4 * min_time_s),
                             .fewest = fewest_micro_rounds,
                             .warmup = 2});
  const measure::Timed& best = measure::fastest(timed, 0, subject);
  MicroRow row;
  row.bench = "quantize";
  row.subject = operation.name;
  row.rival = best.name;
  row.variant = place.name;
  row.dtype = buffers.x.dtype();
  row.shape = {buffers.x.rows(), buffers.x.cols(), 0};
  row.subject_ms = timed[subject].stats;
  row.rival_ms = best.stats;
  row.ratio = measure::speed_ratio(best.times_ms, timed[subject].times_ms);
  row.gb_s = static_cast<double>(traffic.read_bytes + traffic.write_bytes) /
             (timed[subject].stats.median_ms * 1e-3) * 1e-9;
  if (row.dtype == DType::f32 && place.name == std::string_view("past the caches"))
    row.target = operation.target;
  sink(row);
}

}  // namespace

void micro_quantize(Context& context, const MicroOptions& options, const MicroSink& sink) {
  const Place places[] = {
      {"past the caches",
       options.quantize_bytes > 0 ? options.quantize_bytes : past_caches_bytes()},
      {"in L3", options.quantize_bytes > 0 ? 0 : inside_l3_bytes(context.threads())}};
  for (const Place& place : places) {
    if (place.bytes <= 0) continue;
    for (const DType dtype : options.quantize_dtypes) {
      // Floats and two matrices of codes.
      const auto row_bytes = columns * static_cast<std::int64_t>(dtype_size_bytes(dtype) + 2);
      const std::int64_t rows = std::max<std::int64_t>(1, place.bytes / row_bytes);
      Buffers buffers(context, dtype, rows, options.seed);
      for (const Operation& operation : operations())
        race_with_memory(context, options, sink, operation, place, buffers);
    }
  }
}

}  // namespace switchback::bench
