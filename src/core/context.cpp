// SPDX-License-Identifier: Apache-2.0
#include "switchback/context.hpp"

#include <charconv>
#include <system_error>
#include <utility>

#include "core/check.hpp"
#include "core/context_state.hpp"

namespace switchback {

namespace {
constexpr int max_threads = 4096;
}

Device parse_device(const std::string& name) {
  if (name.empty() || name == "cpu") return {DeviceKind::cpu, 0};
  int index = 0;
  bool cuda = name == "cuda";
  if (name.starts_with("cuda:")) {
    const char* end = name.data() + name.size();
    const auto [rest, error] = std::from_chars(name.data() + 5, end, index);
    cuda = error == std::errc() && rest == end && index >= 0 && name.size() > 5;
  }
  core::require(cuda, "device '{}' is not one of cpu, cuda, cuda:N", name);
  core::fail(Status::device_error, "device '{}': this build has no CUDA backend; use cpu", name);
}

std::string device_name(Device device) {
  switch (device.kind) {
    case DeviceKind::cpu:
      return "cpu";
  }
  return "unknown";
}

Context::Context(const ContextOptions& options) {
  const Device device = parse_device(options.device);
  core::require(options.threads >= 0 && options.threads <= max_threads,
                "context: threads = {}; it must be 0 (all cores) to {}", options.threads,
                max_threads);
  core::CpuFeatures features = core::cpu_features();
  if (!options.isa.empty()) features = features.capped(core::parse_isa(options.isa));
  const int threads = options.threads > 0 ? options.threads : core::available_cores();
  try {
    state_ = std::make_unique<ContextState>(device, features, threads);
  } catch (const std::system_error& error) {
    core::fail(Status::out_of_memory, "context: could not start {} threads: {}", threads,
               error.what());
  }
  state_->owner = this;
}

Context::~Context() = default;
Context::Context(Context&& other) noexcept : state_(std::move(other.state_)) {
  if (state_ != nullptr) state_->owner = this;
}
Context& Context::operator=(Context&& other) noexcept {
  state_ = std::move(other.state_);
  if (state_ != nullptr) state_->owner = this;
  return *this;
}

std::string Context::device() const {
  return device_name(state_->device);
}
int Context::threads() const noexcept {
  return state_->threads.count();
}
std::string_view Context::isa() const noexcept {
  return core::isa_name(state_->features.level());
}
std::size_t Context::workspace_bytes() const noexcept {
  return state_->workspace.capacity_bytes();
}

void Context::set_config_source(std::shared_ptr<const ConfigSource> source) noexcept {
  state_->config_source = std::move(source);
}

}  // namespace switchback
