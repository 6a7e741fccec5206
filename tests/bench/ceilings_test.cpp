// SPDX-License-Identifier: Apache-2.0
#include "bench/machine/ceilings.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include <cmath>
#include <vector>

#include "bench/machine/copy_kernel.hpp"
#include "core/aligned_buffer.hpp"
#include "support/contexts.hpp"

namespace switchback::bench {
namespace {

constexpr std::int64_t line_bytes = 64;

/// A buffer with bytes that depend on their place, and a guard of a line after them.
core::AlignedBuffer filled(std::int64_t bytes) {
  core::AlignedBuffer buffer;
  buffer.reserve(static_cast<std::size_t>(bytes + line_bytes));
  for (std::int64_t i = 0; i < bytes + line_bytes; ++i)
    buffer.as<unsigned char>()[i] = static_cast<unsigned char>(i * 31 + i / 977);
  return buffer;
}

/// What a copy writes at a byte: the OR of the bytes that are read together, or the byte that is
/// written several times.
unsigned char expected_byte(const unsigned char* from, std::int64_t at, Traffic traffic) {
  const std::int64_t out = at / line_bytes, byte = at % line_bytes;
  if (traffic.read_bytes < traffic.write_bytes)
    return from[out / (traffic.write_bytes / traffic.read_bytes) * line_bytes + byte];
  const std::int64_t together = traffic.read_bytes / traffic.write_bytes;
  unsigned char value = 0;
  for (std::int64_t i = 0; i < together; ++i)
    value |= from[(out * together + i) * line_bytes + byte];
  return value;
}

TEST(CopyLines, CombinesWhatIsReadAndWritesNothingElse) {
  constexpr std::int64_t lines = 5003;
  for (const Traffic traffic : {Traffic{lines * line_bytes, lines * line_bytes},
                                {4 * lines * line_bytes, lines * line_bytes},
                                {lines * line_bytes, 4 * lines * line_bytes}})
    for (const Stores stores : {Stores::plain, Stores::streaming})
      for (const int threads : {1, 3}) {
        Context context({.device = "cpu", .threads = threads, .isa = {}});
        const core::AlignedBuffer from = filled(traffic.read_bytes),
                                  to = filled(traffic.write_bytes);
        const unsigned char* written = to.as<unsigned char>();
        const std::vector<unsigned char> guard(written + traffic.write_bytes,
                                               written + traffic.write_bytes + line_bytes);
        copy_lines(context, from.as<void>(), to.as<void>(), traffic, stores);
        for (std::int64_t i = 0; i < traffic.write_bytes; ++i)
          ASSERT_EQ(written[i], expected_byte(from.as<unsigned char>(), i, traffic)) << i;
        EXPECT_TRUE(std::equal(guard.begin(), guard.end(), written + traffic.write_bytes));
      }
}

TEST(CopyLines, GathersRows) {
  Context context({.device = "cpu", .threads = 2, .isa = {}});
  constexpr std::int64_t table_rows = 40, row_bytes = 6 * line_bytes, count = 3000;
  std::vector<std::int32_t> rows;
  for (std::int32_t r = 0; r < count; ++r)
    rows.push_back(r * 7 % table_rows);
  for (const Stores stores : {Stores::plain, Stores::streaming})
    for (const std::int64_t written : {row_bytes, row_bytes / 2}) {
      const core::AlignedBuffer from = filled(table_rows * row_bytes), to = filled(count * written);
      gather_lines(context, from.as<void>(), rows, to.as<void>(), {row_bytes, written}, stores);
      for (std::int64_t i = 0; i < count * written; ++i) {
        const unsigned char* const row =
            from.as<unsigned char>() + rows[static_cast<std::size_t>(i / written)] * row_bytes;
        ASSERT_EQ(to.as<unsigned char>()[i], expected_byte(row, i % written, {row_bytes, written}))
            << i << " " << written;
      }
    }
}

TEST(ReadLines, ReadsEveryWholeLineOnce) {
  Context context({.device = "cpu", .threads = 2, .isa = {}});
  core::AlignedBuffer from;
  constexpr std::int64_t most = 3 * (std::int64_t{128} << 10) + 5 * 64 + 63;
  from.reserve(most);
  auto* bytes = from.as<unsigned char>();
  for (const std::int64_t size : {std::int64_t{0}, std::int64_t{63}, std::int64_t{64}, most}) {
    const std::int64_t end = size / 64 * 64;
    std::fill_n(bytes, most, static_cast<unsigned char>(0));
    EXPECT_EQ(read_lines(context, bytes, size), 0u);
    for (std::int64_t at = 0; at < end; at += 64 * 97) {
      bytes[at + 5] = 0x40;
      EXPECT_EQ(read_lines(context, bytes, size), 0x40ull << 40) << at;
      bytes[at + 5] = 0;
    }
    if (end < most) bytes[end] = 0xFF;  // the byte after the last whole line, which is not read
    EXPECT_EQ(read_lines(context, bytes, size), 0u);
  }
}

TEST(CopyLines, TrafficInLines) {
  const auto same = [](Traffic a, Traffic b) {
    return a.read_bytes == b.read_bytes && a.write_bytes == b.write_bytes;
  };
  EXPECT_TRUE(same(in_lines({4096, 1024}), {4096, 1024}));
  EXPECT_TRUE(same(in_lines({4096 + 63, 1024 + 4}), {4096, 1024}));
  EXPECT_TRUE(same(in_lines({64, 300}), {64, 256}));
  EXPECT_TRUE(same(in_lines({1, 0}), {64, 64}));
}

TEST(Ceilings, EveryInstructionSetHasPositiveFiniteRates) {
  for (const ContextOptions& options : test::all_contexts()) {
    Context context(options);
    for (const RegisterLoop& loop :
         {int8_loop(context), f32_loop(context), integer_loop(context)}) {
      SCOPED_TRACE(test::describe(options) + " " + loop.instruction);
      EXPECT_GT(loop.operations_per_step, 0);
      EXPECT_DOUBLE_EQ(run_on_all_threads(context, loop, 80),
                       loop.operations_per_step * 80 * context.threads());
    }
  }
}

TEST(Ceilings, Measured) {
  Context context({.device = "cpu", .threads = 2, .isa = {}});
  const Ceilings c = measure_ceilings(context, 0.02);
  for (const double value : {c.copy_gb_s, c.s8_tops, c.f32_tflops}) {
    EXPECT_TRUE(std::isfinite(value));
    EXPECT_GT(value, 0);
  }
  EXPECT_GE(c.copy_l3_gb_s, 0);
  EXPECT_GE(c.core_to_core.least_ns, 0);
  EXPECT_GE(c.core_to_core.most_ns, c.core_to_core.least_ns);
  EXPECT_FALSE(c.s8_instruction.empty());
  EXPECT_FALSE(c.f32_instruction.empty());
}

// The measurement of the latency between cores does not wait forever for a thread that is not
// running: on many machines at most two of eight threads run at a time.
TEST(CoreLatency, IsThatOfTwoThreads) {
  Context one({.device = "cpu", .threads = 1, .isa = {}});
  EXPECT_EQ(measure_core_latency(one).most_ns, 0);
  EXPECT_TRUE(to_json(measure_core_latency(one)).is_null());
  for (const int threads : {2, 8}) {
    Context context({.device = "cpu", .threads = threads, .isa = {}});
    const CoreLatency latency = measure_core_latency(context);
    EXPECT_GE(latency.most_ns, latency.least_ns);
    if (latency.most_ns == 0) continue;  // the threads never ran at the same time
    EXPECT_GT(latency.least_ns, 0.1);    // a core cannot answer within 0.1 ns
    EXPECT_LT(latency.most_ns, 5e6);     // 5 ms is the time limit of each exchange
    EXPECT_EQ(to_json(latency), (nlohmann::ordered_json{latency.least_ns, latency.most_ns}));
  }
}

}  // namespace
}  // namespace switchback::bench
