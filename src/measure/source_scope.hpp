// SPDX-License-Identifier: Apache-2.0
// Measure: temporarily replaces a Context's source of configurations.
#pragma once

#include <memory>
#include <utility>

#include "core/context_state.hpp"
#include "switchback/context.hpp"

namespace switchback::measure {

/// While the object exists, the Context looks up configurations in `source`; afterwards in its
/// previous source.
class SourceScope {
 public:
  SourceScope(Context& context, std::shared_ptr<const ConfigSource> source)
      : context_(context), before_(context.state().config_source) {
    context_.set_config_source(std::move(source));
  }
  ~SourceScope() { context_.set_config_source(std::move(before_)); }
  SourceScope(const SourceScope&) = delete;
  SourceScope& operator=(const SourceScope&) = delete;

 private:
  Context& context_;
  std::shared_ptr<const ConfigSource> before_;
};

}  // namespace switchback::measure
