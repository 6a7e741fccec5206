// SPDX-License-Identifier: Apache-2.0
// Tuner: merges several caches into one, with a result that does not depend on their order.
#pragma once

#include <span>
#include <vector>

#include "autotune/store/record.hpp"

namespace switchback::autotune {

/// A conflict between caches: two winners of a key with other candidates, neither in doubt.
struct Conflict {
  Record kept;
  Record dropped;
};

/// The records of several caches as one, sorted by key, then by time. Each cache is given in the
/// order of its file. For every key and hard environment (same_hard()) the best winner by
/// better_winner() is kept; samples and fails are kept without repeats. If a key was forgotten, its
/// latest tombstone is kept with the records that follow it in its own cache; a cache without that
/// tombstone contributes nothing to the key. Fails do not decide which winner is kept. With these
/// rules the order in which caches are merged makes no difference. Conflicts between winners that
/// their own caches would have chosen are added to `conflicts`.
std::vector<Record> merge(std::span<const std::vector<Record>> caches,
                          std::vector<Conflict>& conflicts);

}  // namespace switchback::autotune
