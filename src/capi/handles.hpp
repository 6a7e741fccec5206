// SPDX-License-Identifier: Apache-2.0
// C ABI: the types that the opaque handles point to.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "capi/arguments.hpp"
#include "switchback/context.hpp"
#include "switchback/fragmented_linear.hpp"
#include "switchback/gemm.hpp"
#include "switchback/linear.hpp"
#include "switchback/quant.hpp"
#include "switchback/switchback.h"
#include "switchback/tuner.hpp"

namespace switchback::capi {

/// The engines of one operation, as C callers see them: the strings, and the C structs that point
/// to them. Filled on first use and never changed afterwards, because callers keep the pointers.
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

  // The Context is shared with the layers, which need it as long as they live.
  std::shared_ptr<switchback::Context> context;
  std::string device;
  std::string isa;
  std::array<switchback::capi::EngineTable, 4> engines;
  std::shared_ptr<switchback::Tuner> tuner;
  std::string warnings;  ///< text of the warnings that the caller got last
};

struct switchback_packed_weight {
  switchback::PackedWeight packed;
};

struct switchback_linear {
  switchback_linear(std::shared_ptr<switchback::Context> owner,
                    const switchback::LinearOptions& options)
      : context(std::move(owner)), linear(*context, options) {}
  switchback_linear(std::shared_ptr<switchback::Context> owner, const switchback_linear& shares)
      : context(std::move(owner)), linear(shares.linear.share(*context)) {}

  // Declared before `linear`, and so destroyed after it.
  std::shared_ptr<switchback::Context> context;
  switchback::SwitchbackLinear linear;
};

struct switchback_fragmented_linear {
  switchback_fragmented_linear(std::shared_ptr<switchback::Context> owner,
                               const switchback::FragmentedLinearOptions& options)
      : context(std::move(owner)), linear(*context, options) {}

  // Declared before `linear`, and so destroyed after it.
  std::shared_ptr<switchback::Context> context;
  switchback::FragmentedLinear linear;
};

namespace switchback::capi {

inline Context& read_context(std::string_view op, const switchback_context* context) {
  check_pointer(op, "context", context);
  return *context->context;
}

/// The layer that a handle points to. There is a type of handle for each kind of layer.
template <class Handle>
auto& read_layer(std::string_view op, Handle* linear) {
  check_pointer(op, "linear", linear);
  return linear->linear;
}

/// Writes how many bytes of memory a layer of any kind holds.
template <class Handle>
void get_info(Handle* linear, switchback_layer_info* out) {
  constexpr std::string_view op = "get_info";
  const auto& layer = read_layer(op, linear);
  auto info = read_struct(op, "out", out);
  info.saved_for_backward_bytes = layer.saved_for_backward_bytes();
  info.cached_weight_bytes = layer.cached_weight_bytes();
  write_struct(info, out);
}

}  // namespace switchback::capi
