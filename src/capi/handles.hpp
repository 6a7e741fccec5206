// SPDX-License-Identifier: Apache-2.0
// C ABI: the types behind the opaque handles.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "capi/arguments.hpp"
#include "switchback/context.hpp"
#include "switchback/gemm.hpp"
#include "switchback/grouped_linear.hpp"
#include "switchback/linear.hpp"
#include "switchback/quant.hpp"
#include "switchback/switchback.h"
#include "switchback/tuner.hpp"

namespace switchback::capi {

/// The engines of one operation: the strings, and the C structs that point into them. Filled on
/// first use and then never changed, because callers keep the pointers.
struct EngineTable {
  bool made = false;
  std::vector<EngineInfo> infos;
  std::vector<switchback_engine_info> rows;
};

}  // namespace switchback::capi

struct switchback_context {
  explicit switchback_context(const switchback::ContextOptions& options)
      : context(std::make_shared<switchback::Context>(options)),
        device(context->device()),
        isa(context->isa()) {}

  std::shared_ptr<switchback::Context> context;  // shared with the layers, which need it to the end
  std::string device;
  std::string isa;
  std::array<switchback::capi::EngineTable, 3> engines;
  std::shared_ptr<switchback::Tuner> tuner;
  std::string warnings;  ///< the text that the caller was last given
};

struct switchback_packed_weight {
  switchback::PackedWeight packed;
};

struct switchback_linear {
  switchback_linear(std::shared_ptr<switchback::Context> owner,
                    const switchback::LinearOptions& options)
      : context(std::move(owner)), linear(*context, options) {}

  std::shared_ptr<switchback::Context> context;  // before `linear`: destroyed after it
  switchback::SwitchbackLinear linear;
};

struct switchback_grouped_linear {
  switchback_grouped_linear(std::shared_ptr<switchback::Context> owner,
                            const switchback::GroupedLinearOptions& options)
      : context(std::move(owner)), linear(*context, options) {}

  std::shared_ptr<switchback::Context> context;  // before `linear`: destroyed after it
  switchback::GroupedSwitchbackLinear linear;
};

namespace switchback::capi {

inline Context& read_context(std::string_view op, const switchback_context* context) {
  check_pointer(op, "context", context);
  return *context->context;
}

/// b as given, or the packed one in its place.
inline void read_b(std::string_view op, const switchback_matrix& b,
                   const switchback_packed_weight* packed_b, MatrixView<const std::int8_t>& view,
                   const PackedWeight*& packed) {
  if (packed_b == nullptr) {
    view = read_view<const std::int8_t>(op, "b", b);
    return;
  }
  core::require(b.data == nullptr, "{}: b and packed_b are both given; b's data must be null", op);
  packed = &packed_b->packed;
}

}  // namespace switchback::capi
