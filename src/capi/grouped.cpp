// SPDX-License-Identifier: Apache-2.0
// C ABI: quantizes rows of groups, and combines rows of a grouped result.
#include "switchback/grouped.hpp"

#include "capi/groups.hpp"
#include "capi/guard.hpp"
#include "capi/handles.hpp"

using namespace switchback;
using namespace switchback::capi;

switchback_status switchback_grouped_quantize_rowwise(switchback_context* context,
                                                      const switchback_matrix* x,
                                                      const switchback_groups* groups,
                                                      const switchback_matrix* q, float* absmax) {
  return guard([&] {
    constexpr std::string_view op = "grouped_quantize_rowwise";
    Context& ctx = read_context(op, context);
    const AnyMatrix in = read_matrix(op, "x", x);
    const auto codes = read_view<std::int8_t>(op, "q", q);
    Grouping grouping = read_groups(op, ctx, groups, codes.rows);
    grouping.rows.data = in;
    grouped_quantize_rowwise(ctx, grouping.groups, grouping.rows, codes,
                             read_span(absmax, codes.rows));
  });
}

switchback_status switchback_combine(switchback_context* context, const switchback_matrix* y,
                                     const switchback_matrix* slots,
                                     const switchback_matrix* weights_or_null,
                                     const switchback_matrix* out) {
  return guard([&] {
    constexpr std::string_view op = "combine";
    Context& ctx = read_context(op, context);
    CombineArgs args;
    args.y = read_matrix(op, "y", y);
    args.slots = read_view<const std::int32_t>(op, "slots", slots);
    if (weights_or_null != nullptr)
      args.weights = read_view<const float>(op, "weights", weights_or_null);
    args.out = read_matrix(op, "out", out);
    combine(ctx, args);
  });
}
