// SPDX-License-Identifier: Apache-2.0
#include "core/workspace.hpp"

#include <algorithm>
#include <limits>

#include "core/check.hpp"
#include "switchback/error.hpp"

namespace switchback::core {

namespace {
constexpr std::size_t smallest_block_bytes = std::size_t{1} << 16;
}

Workspace::Frame::Frame(Workspace& workspace) noexcept
    : workspace_(workspace), block_(workspace.block_), offset_(workspace.offset_) {
  ++workspace_.depth_;
}

Workspace::Frame::~Frame() {
  --workspace_.depth_;
  if (workspace_.holds_ > 0) return;
  workspace_.block_ = block_;
  workspace_.offset_ = offset_;
  if (workspace_.depth_ > 0 || workspace_.blocks_.size() < 2 || workspace_.pinned_) return;
  const std::size_t total = workspace_.capacity_bytes();
  workspace_.blocks_.clear();
  workspace_.block_ = 0;
  workspace_.offset_ = 0;
  try {
    AlignedBuffer whole(workspace_.source_);
    whole.reserve(total);
    workspace_.blocks_.push_back(std::move(whole));
  } catch (...) {
    // The next operation tries to allocate again, and reports a failure.
    workspace_.blocks_.clear();
  }
}

void* Workspace::take_bytes(std::int64_t count, std::size_t element_bytes) {
  constexpr std::size_t align = alignment_bytes;
  require(count >= 0 && static_cast<std::uint64_t>(count) <=
                            (std::numeric_limits<std::size_t>::max() / 2) / element_bytes,
          "workspace: {} elements of {} bytes is not a valid size", count, element_bytes);
  const std::size_t bytes =
      (static_cast<std::size_t>(count) * element_bytes + align - 1) / align * align;
  if (source_ != nullptr && source_->pins()) pinned_ = true;
  // Unused blocks that are too small are freed before more memory is allocated.
  const bool unused = depth_ <= 1 && holds_ == 0 && !pinned_ && block_ == 0 && offset_ == 0;
  if (unused && !blocks_.empty() && blocks_.front().capacity_bytes() < bytes) blocks_.clear();
  while (block_ < blocks_.size() && blocks_[block_].capacity_bytes() - offset_ < bytes) {
    ++block_;
    offset_ = 0;
  }
  if (block_ == blocks_.size()) {
    AlignedBuffer block(source_);
    block.reserve(std::max({bytes, smallest_block_bytes, capacity_bytes()}));
    blocks_.push_back(std::move(block));
  }
  void* piece = blocks_[block_].as<std::byte>() + offset_;
  offset_ += bytes;
  return piece;
}

std::size_t Workspace::capacity_bytes() const noexcept {
  std::size_t total = 0;
  for (const auto& block : blocks_)
    total += block.capacity_bytes();
  return total;
}

}  // namespace switchback::core
