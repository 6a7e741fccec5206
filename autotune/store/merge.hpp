// SPDX-License-Identifier: Apache-2.0
// Tuner: several caches made one, whatever their order.
#pragma once

#include <span>
#include <vector>

#include "autotune/store/record.hpp"

namespace switchback::autotune {

/// A conflict between caches: two winners of a key with other candidates.
struct Conflict {
  Record kept;
  Record dropped;
};

/// The records of several caches as one, in an order that does not depend on that of the arguments:
/// by key, then by time. Of every key and hard environment (same_hard()) the winner of most effort,
/// then with the latest time, then with the smaller text; samples and fails without repeats. Each
/// cache is given in the order of its file. Of a key that was forgotten, the latest tombstone is
/// kept and what follows that one in its cache: a cache that does not know of it has nothing to say
/// of the key. Fails do not decide which winner is kept. Each of these is so that it makes no
/// difference which caches are merged first. Conflicts between winners that their own caches would
/// have chosen are added to `conflicts`.
std::vector<Record> merge(std::span<const std::vector<Record>> caches,
                          std::vector<Conflict>& conflicts);

}  // namespace switchback::autotune
