// SPDX-License-Identifier: Apache-2.0
// Bench: copies and reads memory at the full speed of this machine. Memory-bound operations are
// compared with this bandwidth.
#pragma once

#include <cstdint>
#include <span>

#include "switchback/context.hpp"

namespace switchback::bench {

enum class Stores { plain, streaming };

/// The bytes that a copy reads and writes, in lines of 64 bytes. One number is a multiple of the
/// other: 4 : 1 is the traffic of quantizing f32, 1 : 1 is a plain copy.
struct Traffic {
  std::int64_t read_bytes = 0;
  std::int64_t write_bytes = 0;
};

/// Rounds the bytes read and written so that a copy can have this traffic: whole lines of 64 bytes,
/// with the larger number rounded to a multiple of the smaller one.
Traffic in_lines(Traffic wanted);

/// Reads every line of `from` and writes every line of `to`, on the Context's threads. Both are
/// 64-byte aligned and have the sizes of in_lines(traffic). Lines that are read together are
/// combined into the written lines, so no load can be dropped; a 1 : 1 copy is a copy. Streaming
/// stores bypass the caches (CPUs without them use plain stores).
void copy_lines(Context& context, const void* from, void* to, Traffic traffic, Stores stores);

/// Like copy_lines(), but reads the given rows of `from` and writes them to `to` one after the
/// other. Each row has of_row.read_bytes and of_row.write_bytes, as in_lines(of_row) returns them.
void gather_lines(Context& context, const void* from, std::span<const std::int32_t> rows, void* to,
                  Traffic of_row, Stores stores);

/// Reads every whole line of 64 bytes of `from`, which is 64-byte aligned, once, on the Context's
/// threads. The result is the bitwise OR of all lines, 8 bytes wide.
std::uint64_t read_lines(Context& context, const void* from, std::int64_t bytes);

}  // namespace switchback::bench
