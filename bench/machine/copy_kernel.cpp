// SPDX-License-Identifier: Apache-2.0
#include "bench/machine/copy_kernel.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "core/context_state.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace switchback::bench {

namespace {

constexpr std::int64_t line_bytes = 64;

// A group of 64-byte cache lines: the kernel reads `reads` lines, combines them, and writes
// `writes` lines.
struct Group {
  std::int64_t reads;
  std::int64_t writes;
};
using Kernel = void (*)(const char* from, char* to, Group group, std::int64_t groups);

#if defined(__x86_64__)

template <bool streaming>
__attribute__((target("avx512f"))) void copy_avx512(const char* from, char* to, Group group,
                                                    std::int64_t groups) {
  for (std::int64_t g = 0; g < groups; ++g) {
    __m512i line = _mm512_load_si512(from);
    for (std::int64_t i = 1; i < group.reads; ++i)
      line = _mm512_or_si512(line, _mm512_load_si512(from + i * line_bytes));
    for (std::int64_t i = 0; i < group.writes; ++i) {
      if constexpr (streaming)
        _mm512_stream_si512(reinterpret_cast<__m512i*>(to + i * line_bytes), line);
      else
        _mm512_store_si512(to + i * line_bytes, line);
    }
    from += group.reads * line_bytes;
    to += group.writes * line_bytes;
  }
}

template <bool streaming>
__attribute__((target("avx2"))) void copy_avx2(const char* from, char* to, Group group,
                                               std::int64_t groups) {
  for (std::int64_t g = 0; g < groups; ++g) {
    const auto* in = reinterpret_cast<const __m256i*>(from);
    __m256i low = _mm256_load_si256(in);
    __m256i high = _mm256_load_si256(in + 1);
    for (std::int64_t i = 1; i < group.reads; ++i) {
      low = _mm256_or_si256(low, _mm256_load_si256(in + 2 * i));
      high = _mm256_or_si256(high, _mm256_load_si256(in + 2 * i + 1));
    }
    for (std::int64_t i = 0; i < group.writes; ++i) {
      auto* out = reinterpret_cast<__m256i*>(to + i * line_bytes);
      if constexpr (streaming) {
        _mm256_stream_si256(out, low);
        _mm256_stream_si256(out + 1, high);
      } else {
        _mm256_store_si256(out, low);
        _mm256_store_si256(out + 1, high);
      }
    }
    from += group.reads * line_bytes;
    to += group.writes * line_bytes;
  }
}

#endif

using ReadKernel = std::uint64_t (*)(const char* from, std::int64_t lines);

#if defined(__x86_64__)

__attribute__((target("avx512f"))) std::uint64_t read_avx512(const char* from, std::int64_t lines) {
  __m512i all[4] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(),
                    _mm512_setzero_si512()};
  std::int64_t line = 0;
  for (; line + 4 <= lines; line += 4)
    for (int i = 0; i < 4; ++i)
      all[i] = _mm512_or_si512(all[i], _mm512_load_si512(from + (line + i) * line_bytes));
  for (; line < lines; ++line)
    all[0] = _mm512_or_si512(all[0], _mm512_load_si512(from + line * line_bytes));
  alignas(64) std::uint64_t words[8];
  _mm512_store_si512(
      words, _mm512_or_si512(_mm512_or_si512(all[0], all[1]), _mm512_or_si512(all[2], all[3])));
  std::uint64_t result = 0;
  for (const std::uint64_t word : words)
    result |= word;
  return result;
}

#endif

std::uint64_t read_portable(const char* from, std::int64_t lines) {
  std::uint64_t words[line_bytes / 8] = {};
  for (std::int64_t line = 0; line < lines; ++line) {
    std::uint64_t next[line_bytes / 8];
    std::memcpy(next, from + line * line_bytes, line_bytes);
    for (std::size_t w = 0; w < line_bytes / 8; ++w)
      words[w] |= next[w];
  }
  std::uint64_t all = 0;
  for (const std::uint64_t word : words)
    all |= word;
  return all;
}

ReadKernel pick_read() {
#if defined(__x86_64__)
  if (core::cpu_features().avx512) return read_avx512;
#endif
  return read_portable;
}

void copy_portable(const char* from, char* to, Group group, std::int64_t groups) {
  using Line = std::uint64_t[line_bytes / 8];
  for (std::int64_t g = 0; g < groups; ++g) {
    Line line;
    std::memcpy(line, from, line_bytes);
    for (std::int64_t i = 1; i < group.reads; ++i) {
      Line next;
      std::memcpy(next, from + i * line_bytes, line_bytes);
      for (std::size_t w = 0; w < line_bytes / 8; ++w)
        line[w] |= next[w];
    }
    for (std::int64_t i = 0; i < group.writes; ++i)
      std::memcpy(to + i * line_bytes, line, line_bytes);
    from += group.reads * line_bytes;
    to += group.writes * line_bytes;
  }
}

// Ends a part of a copy. Streaming stores need a fence, so that they complete before what follows.
void end_of(Stores stores) {
#if defined(__x86_64__)
  if (stores == Stores::streaming) _mm_sfence();
#else
  static_cast<void>(stores);
#endif
}

// Picks the copy kernel with the machine's widest vectors, even if the Context is capped at another
// instruction set. The copy measures the upper limit of the memory, not of the instruction set.
Kernel pick(Stores stores) {
#if defined(__x86_64__)
  const core::CpuFeatures& features = core::cpu_features();
  const bool streaming = stores == Stores::streaming;
  if (features.avx512) return streaming ? copy_avx512<true> : copy_avx512<false>;
  if (features.avx2) return streaming ? copy_avx2<true> : copy_avx2<false>;
#else
  static_cast<void>(stores);
#endif
  return copy_portable;
}

}  // namespace

Traffic in_lines(Traffic wanted) {
  const auto lines = [](std::int64_t bytes) { return std::max<std::int64_t>(bytes / 64, 1); };
  std::int64_t reads = lines(wanted.read_bytes);
  std::int64_t writes = lines(wanted.write_bytes);
  if (reads >= writes)
    reads = std::max<std::int64_t>(1, (reads + writes / 2) / writes) * writes;
  else
    writes = std::max<std::int64_t>(1, (writes + reads / 2) / reads) * reads;
  return {reads * line_bytes, writes * line_bytes};
}

void copy_lines(Context& context, const void* from, void* to, Traffic traffic, Stores stores) {
  const Traffic t = in_lines(traffic);
  const Kernel kernel = pick(stores);
  const std::int64_t smaller = std::min(t.read_bytes, t.write_bytes);
  const Group group{t.read_bytes / smaller, t.write_bytes / smaller};
  const std::int64_t groups = smaller / line_bytes;
  // Each task of the copy covers 128 KiB: there are enough tasks for load balance, and each takes
  // long enough that its scheduling costs nothing.
  const std::int64_t grain = std::max<std::int64_t>(
      1, (std::int64_t{128} << 10) / (line_bytes * (group.reads + group.writes)));
  context.state().threads.for_ranges(
      groups, grain, [&](std::int64_t begin, std::int64_t end, int /*worker*/) {
        kernel(static_cast<const char*>(from) + begin * group.reads * line_bytes,
               static_cast<char*>(to) + begin * group.writes * line_bytes, group, end - begin);
        end_of(stores);
      });
}

void gather_lines(Context& context, const void* from, std::span<const std::int32_t> rows, void* to,
                  Traffic of_row, Stores stores) {
  const Traffic t = in_lines(of_row);
  const Kernel kernel = pick(stores);
  const std::int64_t smaller = std::min(t.read_bytes, t.write_bytes);
  const Group group{t.read_bytes / smaller, t.write_bytes / smaller};
  const std::int64_t grain =
      std::max<std::int64_t>(1, (std::int64_t{128} << 10) / (t.read_bytes + t.write_bytes));
  context.state().threads.for_ranges(
      static_cast<std::int64_t>(rows.size()), grain,
      [&](std::int64_t begin, std::int64_t end, int /*worker*/) {
        for (std::int64_t r = begin; r < end; ++r)
          kernel(static_cast<const char*>(from) + rows[static_cast<std::size_t>(r)] * t.read_bytes,
                 static_cast<char*>(to) + r * t.write_bytes, group, smaller / line_bytes);
        end_of(stores);
      });
}

std::uint64_t read_lines(Context& context, const void* from, std::int64_t bytes) {
  const ReadKernel kernel = pick_read();
  std::atomic<std::uint64_t> all{0};
  context.state().threads.for_ranges(
      bytes / line_bytes, (std::int64_t{128} << 10) / line_bytes,
      [&](std::int64_t begin, std::int64_t end, int /*worker*/) {
        all.fetch_or(kernel(static_cast<const char*>(from) + begin * line_bytes, end - begin),
                     std::memory_order_relaxed);
      });
  return all;
}

}  // namespace switchback::bench
