// SPDX-License-Identifier: Apache-2.0
// Bench: copies and reads at the full speed of this machine: the bandwidth with which memory-bound
// operations are compared.
#pragma once

#include <cstdint>
#include <span>

#include "switchback/context.hpp"

namespace switchback::bench {

enum class Stores { plain, streaming };

/// Bytes read and written in lines of 64: one of the two is a multiple of the other (4 : 1 is what
/// quantizing f32 moves, 1 : 1 is a plain copy).
struct Traffic {
  std::int64_t read_bytes = 0;
  std::int64_t write_bytes = 0;
};

/// The traffic rounded for a copy: its bytes in whole lines, the larger side rounded to a multiple
/// of the smaller.
Traffic in_lines(Traffic wanted);

/// Reads every line of `from` and writes every line of `to`, both 64-byte aligned and of the sizes
/// of in_lines(traffic), on the Context's threads. Lines read together are combined into the lines
/// written, so no load can be dropped; a 1 : 1 copy is a copy. Streaming stores bypass the caches
/// (on CPUs that have none of them the stores are plain).
void copy_lines(Context& context, const void* from, void* to, Traffic traffic, Stores stores);

/// The same for rows of `from` that lie one after the other in `to`: of_row.read_bytes and
/// of_row.write_bytes of each, as in_lines(of_row) gives them.
void gather_lines(Context& context, const void* from, std::span<const std::int32_t> rows, void* to,
                  Traffic of_row, Stores stores);

/// Reads every whole line of 64 bytes of `from`, which is 64-byte aligned, once, on the Context's
/// threads. The result is all of them combined by or, 8 bytes wide.
std::uint64_t read_lines(Context& context, const void* from, std::int64_t bytes);

}  // namespace switchback::bench
