// SPDX-License-Identifier: Apache-2.0
#include "gemm/int8/trial_groups.hpp"

namespace switchback::gemm_int8 {

namespace {

// The sum of the first groups' shares of all rows. The shares are 3 and 1 alternately.
double shares(std::int64_t groups) {
  return static_cast<double>(groups / 2) * 4 + static_cast<double>(groups % 2) * 3;
}

}  // namespace

TrialGroups::TrialGroups(Context& context, std::int64_t count, std::int64_t slots, bool strided)
    : slots_(strided ? slots / count * count : slots), strided_(strided) {
  rows_.resize(static_cast<std::size_t>(count));
  measure::Matrix ends(DType::s32, 1, count);
  std::int64_t begin = 0;
  for (std::int64_t g = 0; g < count; ++g) {
    const std::int64_t end = strided ? begin + slots_ / count
                                     : static_cast<std::int64_t>(static_cast<double>(slots_) *
                                                                 shares(g + 1) / shares(count));
    rows_[static_cast<std::size_t>(g)] = {begin, end - begin};
    ends.values<std::int32_t>()[static_cast<std::size_t>(g)] = static_cast<std::int32_t>(end);
    begin = end;
  }
  if (strided) return;
  ends_ = measure::Matrix(context, DType::s32, 1, count);
  measure::copy(context, ends.any(), ends_.any());
}

Groups TrialGroups::view() const noexcept {
  const auto count = static_cast<std::int64_t>(rows_.size());
  if (strided_) return Groups::strided(count, count == 0 ? 0 : slots_ / count);
  return Groups::packed(ends_.values<const std::int32_t>());
}

}  // namespace switchback::gemm_int8
