// SPDX-License-Identifier: Apache-2.0
#include "gemm/int8/packed_weight.hpp"

namespace switchback {

PackedWeight::PackedWeight() : state_(std::make_unique<PackedWeightState>()) {}
PackedWeight::~PackedWeight() = default;
PackedWeight::PackedWeight(PackedWeight&&) noexcept = default;
PackedWeight& PackedWeight::operator=(PackedWeight&&) noexcept = default;

bool PackedWeight::empty() const noexcept {
  return state_ == nullptr || state_->engine == nullptr;
}
std::int64_t PackedWeight::rows() const noexcept {
  return state_ == nullptr ? 0 : state_->rows;
}
std::int64_t PackedWeight::cols() const noexcept {
  return state_ == nullptr ? 0 : state_->cols;
}
std::int64_t PackedWeight::groups() const noexcept {
  return state_ == nullptr ? 1 : state_->groups;
}
std::size_t PackedWeight::bytes() const noexcept {
  return state_ == nullptr ? 0 : state_->buffer.capacity_bytes();
}
std::string_view PackedWeight::engine() const noexcept {
  return empty() ? std::string_view() : state_->engine->name;
}

}  // namespace switchback
