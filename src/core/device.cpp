// SPDX-License-Identifier: Apache-2.0
#include "core/device.hpp"

#include <array>
#include <charconv>
#include <system_error>

#include "core/context_state.hpp"
#include "core/cuda/platform.hpp"

namespace switchback {

namespace core {

namespace {

struct NamedKind {
  std::string_view name;
  DeviceKind kind;
};
constexpr std::array<NamedKind, 2> named_kinds = {
    {{"cuda", DeviceKind::cuda}, {"emulated", DeviceKind::emulated}}};

// The device index in a name that is KIND (index 0) or KIND:N; -1 if the name is neither.
int index_of(std::string_view name, std::string_view kind) {
  if (name == kind) return 0;
  if (!name.starts_with(kind) || name.size() < kind.size() + 2 || name[kind.size()] != ':')
    return -1;
  int index = 0;
  const char* end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + kind.size() + 1, end, index);
  return error == std::errc() && rest == end ? index : -1;
}

}  // namespace

DeviceTable<const DevicePlatform*>& device_platforms() noexcept {
  static auto table = cuda::table_of<DeviceTable<const DevicePlatform*>>(nullptr, cuda::platform());
  return table;
}

std::string_view device_kind_name(DeviceKind kind) noexcept {
  for (const auto& named : named_kinds)
    if (named.kind == kind) return named.name;
  return "cpu";
}

std::int64_t alignment_class(const ContextState& state,
                             std::initializer_list<const void*> addresses,
                             std::initializer_list<std::int64_t> strides_bytes) noexcept {
  constexpr std::int64_t by_default = 16;
  if (state.runtime == nullptr) return 0;
  for (const void* address : addresses)
    if (reinterpret_cast<std::uintptr_t>(address) % by_default != 0) return 1;
  for (const std::int64_t stride : strides_bytes)
    if (stride % by_default != 0) return 1;
  return by_default;
}

void check_process(const ContextState& state, std::string_view op) {
  if (state.runtime != nullptr && state.threads.inherited())
    fail(Status::invalid_state,
         "{}: the Context was made before fork(), on {}; a device's Context cannot be used after "
         "fork(): create one in the child, and do not use the device before fork()",
         op, state.device);
}

std::string_view why_no_int8(const ContextState& state) noexcept {
  return state.on_cpu() ? std::string_view() : state.runtime->info().why_no_int8();
}

DeviceScope::DeviceScope(const ContextState& state, std::string_view op)
    : runtime_(state.runtime.get()) {
  if (runtime_ == nullptr) return;
  check_process(state, op);
  runtime_->enter();
}

void check_operands(const ContextState& state, std::string_view op,
                    std::initializer_list<Operand> outputs, std::initializer_list<Operand> inputs) {
  if (state.stage == Stage::dry_run) return;  // the second run of a sequence checks the operands
  check_disjoint(op, outputs, inputs);
  if (state.runtime == nullptr) return;
  check_process(state, op);
  for (const auto& list : {outputs, inputs})
    for (const Operand& operand : list) {
      const ConstAnyMatrix& m = operand.matrix;
      if (m.data == nullptr || m.rows == 0 || m.cols == 0) continue;
      const std::string reason = state.runtime->wrong_memory(m.data);
      require(reason.empty(), "{}: {} at {} {}; it must be memory of {}", op, operand.name, m.data,
              reason, state.device);
    }
}

}  // namespace core

Device parse_device(const std::string& name) {
  if (name == "cpu") return {DeviceKind::cpu, 0};
  std::string why_none;
  if (name.empty()) {
    const core::DevicePlatform* cuda = core::device_platforms().of(DeviceKind::cuda);
    const bool any = cuda != nullptr && cuda->count(why_none) > 0;
    return {any ? DeviceKind::cuda : DeviceKind::cpu, 0};
  }
  for (const auto& [kind_name, kind] : core::named_kinds) {
    const int index = core::index_of(name, kind_name);
    const core::DevicePlatform* platform = core::device_platforms().of(kind);
    if (index < 0 || (platform == nullptr && kind != DeviceKind::cuda)) continue;
    if (platform == nullptr)
      core::fail(Status::device_error, "device '{}': this build has no CUDA backend; use cpu",
                 name);
    const int count = platform->count(why_none);
    if (count == 0) core::fail(Status::device_error, "device '{}': {}; use cpu", name, why_none);
    if (index >= count)
      core::fail(Status::device_error, "device '{}': this machine has {} such device{}, {}:0{}",
                 name, count, count == 1 ? "" : "s", kind_name,
                 count == 1 ? "" : fmt::format(" to {}:{}", kind_name, count - 1));
    return {kind, index};
  }
  core::fail(Status::invalid_argument, "device '{}' is not one of cpu, cuda, cuda:N", name);
}

std::string device_name(Device device) {
  return fmt::format("{}", device);
}

}  // namespace switchback
