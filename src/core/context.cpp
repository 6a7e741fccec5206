// SPDX-License-Identifier: Apache-2.0
#include "switchback/context.hpp"

#include <system_error>
#include <utility>

#include "core/check.hpp"
#include "core/config_source.hpp"
#include "core/context_state.hpp"
#include "core/cpu/resources.hpp"

namespace switchback {

namespace {
constexpr int max_threads = 4096;
}

bool ContextState::find_config(const ConfigQuery& query, ConfigChoice& choice) {
  if (config_source == nullptr) return false;
  bool found = false;
  if (stage == core::Stage::run && dry_run_lookups.next(query, found, choice)) return found;
  found = config_source->find(query, *this, choice);
  if (stage == core::Stage::dry_run) dry_run_lookups.add(query, found, choice);
  return found;
}

void ContextState::refuse_config(const ConfigQuery& query, const ConfigChoice& choice,
                                 std::string_view reason) noexcept {
  config_source->refused(query, choice, reason);
  if (stage == core::Stage::dry_run) dry_run_lookups.refuse();
}

Context::Context(const ContextOptions& options) {
  const Device device = parse_device(options.device);
  core::require(options.threads >= 0 && options.threads <= max_threads,
                "context: threads = {}; it must be 0 (all cores) to {}", options.threads,
                max_threads);
  const DeviceAllocator& allocator = options.allocator;
  if (device.kind == DeviceKind::cpu) {
    core::require(options.stream == nullptr,
                  "context: stream is not null; a cpu context has no stream");
    core::require(allocator.allocate == nullptr && allocator.release == nullptr,
                  "context: an allocator is given; a cpu context uses the host's allocator");
  }
  core::require((allocator.allocate == nullptr) == (allocator.release == nullptr),
                "context: the allocator has only one of allocate and release; it needs both");
  core::CpuFeatures features = core::cpu_features();
  if (!options.isa.empty()) features = features.capped(core::parse_isa(options.isa));
  int threads = options.threads > 0 ? options.threads : core::default_threads();
  std::shared_ptr<core::DeviceRuntime> runtime;
  if (device.kind != DeviceKind::cpu) {
    runtime = core::device_platforms().of(device.kind)->open(device.index, options);
    threads = 1;
  }
  try {
    state_ = std::make_shared<ContextState>(device, features, threads, std::move(runtime));
  } catch (const std::system_error& error) {
    core::fail(
        Status::out_of_memory,
        "context: threads = {}; {} more threads could not be created ({}): request fewer, or raise "
        "the limit on the user's processes (ulimit -u)",
        options.threads > 0 ? fmt::format("{}", threads) : fmt::format("0 (all {} cores)", threads),
        threads - 1, error.code().message());
  }
  state_->config_source = core::default_source();
}

Context::~Context() = default;
Context::Context(Context&& other) noexcept = default;
Context& Context::operator=(Context&& other) noexcept = default;

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

void* Context::stream() const noexcept {
  return state_->runtime == nullptr ? nullptr : state_->runtime->stream();
}
void Context::set_stream(void* stream) {
  core::require(state_->runtime != nullptr,
                "set_stream: the context's device is cpu; it has no stream");
  core::require(stream != nullptr,
                "set_stream: stream is a null pointer; the legacy default stream is (void*)1");
  core::check_process(*state_, "set_stream");
  state_->runtime->set_stream(stream);
}
void Context::synchronize() {
  if (state_->runtime == nullptr) return;
  core::check_process(*state_, "synchronize");
  state_->runtime->synchronize();
}

void Context::set_config_source(std::shared_ptr<const ConfigSource> source) noexcept {
  state_->config_source = std::move(source);
}

}  // namespace switchback
