// SPDX-License-Identifier: Apache-2.0
// Bench: `micro quantize`: each quantize operation compared with a copy. On the CPU, fingerprint,
// which writes nothing, is compared with a read. On a device the copy is the device's own, with the
// same total number of bytes.
#include "bench/micro/benches.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "bench/cli/cli.hpp"
#include "bench/cli/table.hpp"
#include "bench/machine/ceilings.hpp"
#include "bench/machine/copy_kernel.hpp"
#include "bench/workload/session.hpp"
#include "core/context_state.hpp"
#include "measure/data.hpp"
#include "measure/matrix.hpp"
#include "quant/dispatch.hpp"
#include "switchback/fingerprint.hpp"
#include "switchback/quant.hpp"
#include "switchback/rotation.hpp"
#include "switchback/rounding.hpp"

namespace switchback::bench {

namespace {

constexpr double quantize_min_time_s = 0.3;
constexpr std::int64_t row_elements = 4096;
constexpr std::int64_t block_rows = 256;

struct Buffers {
  std::int64_t rows;
  DType dtype;
  measure::Matrix x;      // the floating point matrix that is quantized or dequantized
  measure::Matrix codes;  // memory of q[rows,row_elements], then of q_t[row_elements,rows]
  measure::Matrix row_scales, column_scales, column_sums, scale, block_scales;
  measure::Matrix copied;  // on a device: the destination of the copies that are timed
  Fingerprint seen{};
  std::uint64_t read = 0;

  Buffers(Context& context, DType dtype_, std::int64_t rows_, std::uint64_t seed)
      : rows(rows_),
        dtype(dtype_),
        x(context, dtype, rows, row_elements),
        codes(context, DType::s8, rows + whole_block_rows(rows, block_rows), row_elements),
        row_scales(context, DType::f32, 1, rows),
        column_scales(context, DType::f32, 1, row_elements),
        column_sums(context, DType::f32, 1, row_elements),
        scale(context, DType::f32, 1, 1),
        block_scales(context, DType::f32, 1,
                     whole_block_rows(rows, block_rows) / block_rows * row_elements) {
    measure::fill_normal(context, x.any(), seed);
    if (context.state().runtime == nullptr)
      measure::fill_codes(context, codes.view<std::int8_t>(), seed + 1);
    else
      copied = measure::Matrix(context, dtype, rows, row_elements);
    quantize_rowwise(context, x.any(), q(), absmax_rows());
    measure::fill_normal(context, column_scales.any(), seed + 2);
  }
  [[nodiscard]] MatrixView<std::int8_t> q() const {
    return {codes.view<std::int8_t>().data, rows, row_elements};
  }
  [[nodiscard]] MatrixView<std::int8_t> q_t() const {
    return {codes.view<std::int8_t>().data + rows * row_elements, row_elements, rows};
  }
  [[nodiscard]] MatrixView<std::int8_t> q_of_blocks() const {
    return {q_t().data, row_elements, whole_block_rows(rows, block_rows)};
  }
  [[nodiscard]] std::span<float> absmax_blocks() const { return block_scales.floats(); }
  [[nodiscard]] std::span<float> absmax_rows() const { return row_scales.floats(); }
  [[nodiscard]] std::span<float> absmax_cols() const { return column_scales.floats(); }
  [[nodiscard]] std::span<float> absmax_all() const { return scale.floats(); }
  [[nodiscard]] std::span<float> sums() const { return column_sums.floats(); }
};

struct Operation {
  const char* name;
  int code_matrices;  // number of code matrices written (dequantize: read); 0: it only reads floats
  bool dequantizes;
  std::function<void(Context&, Buffers&)> call;
};

std::vector<Operation> operations() {
  return {
      {"rowwise", 1, false,
       [](Context& c, Buffers& b) { quantize_rowwise(c, b.x.any(), b.q(), b.absmax_rows()); }},
      {"rowwise + column sums", 1, false,
       [](Context& c, Buffers& b) {
         quantize_rowwise_column_sums(c, b.x.any(), b.q(), b.absmax_rows(), b.sums());
       }},
      {"rotation (g = 256), rowwise", 1, false,
       [](Context& c, Buffers& b) {
         rotate_quantize(c, b.x.any(), Rotation::hadamard_256, b.q(), b.absmax_rows());
       }},
      {"rotation (g = 1024), rowwise", 1, false,
       [](Context& c, Buffers& b) {
         rotate_quantize(c, b.x.any(), Rotation::hadamard_1024, b.q(), b.absmax_rows());
       }},
      {"rowwise, stochastic", 1, false,
       [](Context& c, Buffers& b) {
         quantize_rowwise_stochastic(c, b.x.any(), {}, b.q(), b.absmax_rows());
       }},
      // This operation makes the codes of G that dX and an int8 dW read if one int8 W is used for
      // forward and dX.
      {"rowwise, columns scaled", 1, false,
       [](Context& c, Buffers& b) {
         quantize_rowwise_scaled(c, b.x.any(), b.absmax_cols(), b.q(), b.absmax_rows());
       }},
      {"rowwise, columns scaled, and blocks transposed", 2, false,
       [](Context& c, Buffers& b) {
         quant::run(c.state(), {.x = b.x.any(),
                                .q = {quant::Scales::per_row, b.q(), b.absmax_rows()},
                                .q_t = {quant::Scales::per_block, b.q_of_blocks(),
                                        b.absmax_blocks(), block_rows},
                                .column_scales = b.absmax_cols()});
       }},
      {"columnwise, transposed", 1, false,
       [](Context& c, Buffers& b) {
         quantize_columnwise_transpose(c, b.x.any(), b.q_t(), b.absmax_cols());
       }},
      {"global", 1, false,
       [](Context& c, Buffers& b) { quantize_global(c, b.x.any(), b.q(), b.absmax_all()); }},
      {"global, transposed", 1, false,
       [](Context& c, Buffers& b) {
         quantize_global_transpose(c, b.x.any(), b.q_t(), b.absmax_all());
       }},
      {"rowwise and columnwise transposed", 2, false,
       [](Context& c, Buffers& b) {
         quantize_rowwise_and_columnwise_transpose(c, b.x.any(), b.q(), b.absmax_rows(), b.q_t(),
                                                   b.absmax_cols());
       }},
      {"global and transposed", 2, false,
       [](Context& c, Buffers& b) {
         quantize_global_and_transpose(c, b.x.any(), b.q(), b.q_t(), b.absmax_all());
       }},
      {"blocks of 256 rows, transposed", 1, false,
       [](Context& c, Buffers& b) {
         quantize_blockwise_transpose(c, b.x.any(), block_rows, b.q_of_blocks(), b.absmax_blocks());
       }},
      {"rowwise and blocks transposed", 2, false,
       [](Context& c, Buffers& b) {
         quantize_rowwise_and_blockwise_transpose(c, b.x.any(), b.q(), b.absmax_rows(), block_rows,
                                                  b.q_of_blocks(), b.absmax_blocks());
       }},
      {"cast to int8", 1, false, [](Context& c, Buffers& b) { cast_to_int8(c, b.x.any(), b.q()); }},
      {"fingerprint", 0, false, [](Context& c, Buffers& b) { b.seen = fingerprint(c, b.x.any()); }},
      // Dequantize is last, because the copy that it is compared with overwrites the floats in x.
      {"dequantize rowwise", 1, true,
       [](Context& c, Buffers& b) { dequantize_rowwise(c, b.q(), b.absmax_rows(), b.x.any()); }},
  };
}

// A level of the memory hierarchy, and the bytes of floats and of two code matrices that fit there.
struct Place {
  const char* name;
  std::int64_t bytes;
};

// The baselines of a quantize operation: copies of the same number of bytes, read and written at
// the same addresses.
std::vector<measure::Rival> memory_rivals(Context& context, const Operation& operation,
                                          const Traffic& traffic, Buffers& buffers) {
  void* x = buffers.x.any().data;
  if (core::DeviceRuntime* runtime = context.state().runtime.get()) {
    // A device's copy reads as much as it writes, so half of the total traffic is copied. It fits
    // into `copied`, because no operation moves more than twice the bytes of x.
    void* to = buffers.copied.any().data;
    const auto bytes = static_cast<std::size_t>(traffic.read_bytes + traffic.write_bytes) / 2;
    return {{"copy", [runtime, x, to, bytes] { runtime->copy(to, bytes, x, bytes, bytes, 1); }}};
  }
  void* q = buffers.codes.any().data;
  const void* from = operation.dequantizes ? q : x;
  void* to = operation.dequantizes ? x : q;
  if (traffic.write_bytes == 0)
    return {{"read", [&context, &buffers, x, traffic] {
               buffers.read |= read_lines(context, x, traffic.read_bytes);
             }}};
  return {
      {"copy, plain stores",
       [&context, from, to, traffic] { copy_lines(context, from, to, traffic, Stores::plain); }},
      {"copy, streaming stores", [&context, from, to, traffic] {
         copy_lines(context, from, to, traffic, Stores::streaming);
       }}};
}

void race_with_memory(Context& context, const QuantizeOptions& options, const RaceSink& sink,
                      const Operation& operation, const Place& place, Buffers& buffers) {
  const auto floats = static_cast<std::int64_t>(buffers.x.size_bytes());
  const std::int64_t codes = operation.code_matrices * buffers.rows * row_elements;
  const Traffic traffic = codes == 0 ? Traffic{floats, 0}
                                     : in_lines(operation.dequantizes ? Traffic{codes, floats}
                                                                      : Traffic{floats, codes});
  std::vector<measure::Rival> rivals = memory_rivals(context, operation, traffic, buffers);
  const std::size_t subject = rivals.size();
  rivals.push_back({operation.name, [&] { operation.call(context, buffers); }});
  const std::vector<measure::Timed> timed =
      measure::race(rivals, micro_rounds(context, options, quantize_min_time_s, 2));
  RaceRow row("quantize", operation.name, timed[subject], measure::fastest(timed, 0, subject));
  row.variant = place.name;
  row.dtype = buffers.dtype;
  row.shape = {buffers.rows, row_elements, 0};
  row.gb_s = static_cast<double>(traffic.read_bytes + traffic.write_bytes) /
             (timed[subject].stats.median_ms * 1e-3) * 1e-9;
  sink(row);
}

// A case of this bench: a level of the memory hierarchy and the dtype of the data.
struct Setup {
  Place place;
  DType dtype;
};

std::vector<Setup> setups(const Context& context, const QuantizeOptions& options) {
  std::vector<Place> places;
  if (options.quantize_bytes > 0) {
    places = {{"past the caches", options.quantize_bytes}};
  } else if (const auto& runtime = context.state().runtime; runtime != nullptr) {
    const auto l2_bytes = static_cast<std::int64_t>(runtime->info().l2_bytes);
    places = {{"past the caches", 8 * l2_bytes}, {"in L2", l2_bytes / 2}};
  } else {
    places = {{"past the caches", past_caches_bytes()},
              {"in L3", inside_l3_bytes(context.threads())}};
  }
  // With cold caches, only the data size beyond the caches is measured.
  if (options.cold && options.quantize_bytes == 0) places.resize(1);
  std::vector<DType> dtypes = {DType::f32, DType::f16, DType::bf16};
  if (options.dtype) dtypes = {*options.dtype};
  std::vector<Setup> all;
  for (const Place& place : places)
    for (const DType dtype : dtypes)
      if (place.bytes > 0) all.push_back({place, dtype});
  return all;
}

void measure_setup(Context& context, const QuantizeOptions& options, const Setup& setup,
                   const RaceSink& sink) {
  // Bytes of a row: its floats and its part of two code matrices.
  const auto row_bytes =
      row_elements * static_cast<std::int64_t>(dtype_size_bytes(setup.dtype) + 2);
  const std::int64_t rows = std::max<std::int64_t>(1, setup.place.bytes / row_bytes);
  const bool on_cpu = context.state().runtime == nullptr;
  std::vector<Operation> wanted = operations();
  std::erase_if(wanted, [&](const Operation& operation) {
    // Fingerprint, which writes no codes, is measured on the CPU only.
    return !options.takes(operation.name) || (!on_cpu && operation.code_matrices == 0);
  });
  if (wanted.empty()) return;
  Buffers buffers(context, setup.dtype, rows, options.seed);
  for (const Operation& operation : wanted)
    race_with_memory(context, options, sink, operation, setup.place, buffers);
}

class QuantizeBench final : public RaceBench {
 public:
  using RaceBench::RaceBench;
  [[nodiscard]] std::string_view name() const override { return "quantize"; }
  [[nodiscard]] std::string_view about() const override {
    return "quantize operations compared with a copy";
  }
  [[nodiscard]] std::string_view explanation() const override {
    return "each operation is compared with a copy that reads and writes the same number of bytes\n"
           "once, with plain or streaming stores, whichever is faster. An absmax over all of W, or "
           "over a\n"
           "column, needs a second read.";
  }
  void add_options(CLI::App& command, SessionOptions& /*shared*/) override {
    add_integer_option(
        command, "--size", [this](std::uint64_t n) { bytes_ = static_cast<std::int64_t>(n); }, 0,
        std::uint64_t{1} << 50,
        "of quantize: bytes of the floats and codes of an operation; 0 (default): one size larger "
        "than L3 and one within it")
        ->type_name("BYTES");
  }
  [[nodiscard]] bool has_operations() const override { return true; }
  [[nodiscard]] Table table() const override {
    return Table({"data", "dtype", "operation", "ms", "GB/s", "best copy", "ratio"},
                 {"dtype", "operation", "best copy"});
  }
  std::vector<CasePlan> plan(Session& session) override {
    setups_ = setups(session.context(), options());
    std::vector<CasePlan> plans;
    for (const Setup& setup : setups_)
      plans.push_back({.id = fmt::format("{} {}", setup.place.name, dtype_name(setup.dtype)),
                       .bytes = static_cast<double>(setup.place.bytes)});
    return plans;
  }
  CaseOutcome measure(Session& session, std::size_t i, const Sink& sink) override {
    measure_setup(session.context(), options(), setups_[i], rows_to(sink));
    return {};
  }

 private:
  [[nodiscard]] std::vector<std::string> cells(const RaceRow& r) const override {
    return {r.variant + " " + shape_text(r.shape),
            std::string(dtype_name(r.dtype)),
            r.subject,
            time_text(r.subject_ms),
            number(r.gb_s),
            r.rival,
            ratio_text(r)};
  }
  [[nodiscard]] QuantizeOptions options() const { return {shared(), bytes_}; }

  std::int64_t bytes_ = 0;
  std::vector<Setup> setups_;
};

}  // namespace

void micro_quantize(Context& context, const QuantizeOptions& options, const RaceSink& sink) {
  for (const Setup& setup : setups(context, options))
    measure_setup(context, options, setup, sink);
}

std::unique_ptr<MicroBench> make_micro_quantize(const MicroOptions& shared) {
  return std::make_unique<QuantizeBench>(shared);
}

}  // namespace switchback::bench
