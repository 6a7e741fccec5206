// SPDX-License-Identifier: Apache-2.0
#include "quant/fingerprint.hpp"

#include <exception>
#include <limits>
#include <random>

#include "core/check.hpp"
#include "core/context_state.hpp"
#include "core/unaligned.hpp"
#include "quant/cpu/engine.hpp"
#include "quant/device_engine.hpp"

namespace switchback {

namespace quant::hash {

namespace {

Key draw() {
  std::random_device source;
  static_assert(std::random_device::min() == 0 &&
                std::random_device::max() == std::numeric_limits<std::uint32_t>::max());
  Key k = {};
  for (std::uint32_t& word : k.words)
    word = source();
  for (int i = 0; i < 4; ++i)
    k.point = k.point << 32 | source();
  k.point = reduced(k.point & prime);
  k.point_of_task = power(k.point, 2 * task_blocks);
  return k;
}

}  // namespace

const Key& key() {
  try {
    static const Key drawn = draw();
    return drawn;
  } catch (const std::exception& error) {
    core::fail(Status::io_error, "fingerprint: this system gives no random numbers: {}",
               error.what());
  }
}

void block_sums(const unsigned char* data, std::int64_t chunks, const std::uint32_t* words,
                std::uint64_t (&sum)[sums]) noexcept {
  const auto* const m = reinterpret_cast<const std::uint32_t*>(data);
  for (std::uint64_t& total : sum) {
    total = 0;
    for (std::int64_t i = 0; i < chunks * chunk_bytes / 4; i += 2) {
      const std::uint32_t first = core::load(m, i) + words[i];
      const std::uint32_t second = core::load(m, i + 1) + words[i + 1];
      total += std::uint64_t{first} * second;
    }
    words += chunk_bytes / 4;
  }
}

Field reference(const Key& k, ConstAnyMatrix x) noexcept {
  Field value = of_shape(k, x);
  if (x.rows == 0 || x.cols == 0) return value;
  const Bytes bytes(x);
  for (std::int64_t b = 0; b < bytes.blocks(); ++b) {
    unsigned char buffer[block_bytes];
    const unsigned char* data = bytes.block(b, buffer);
    std::uint64_t sum[sums];
    block_sums(data, bytes.chunks_of_block(b), k.words, sum);
    value = with_block(k, value, sum);
  }
  return value;
}

}  // namespace quant::hash

void quant::ask_whether_changed(ContextState& state, ConstAnyMatrix w, WeightProof* proof,
                                unsigned codes) {
  const hash::Key& key = hash::key();
  const auto word = [&key](int i) { return std::uint64_t{key.words[i]}; };
  const std::uint64_t seed[2] = {word(1) << 32 | word(0), word(3) << 32 | word(2)};
  device_engines().of(state.device.kind)->ask_whether_changed(state, w, seed, proof, codes);
}

Fingerprint fingerprint(Context& context, ConstAnyMatrix x) {
  constexpr std::string_view op = "fingerprint";
  core::check_matrix(op, "x", x);
  ContextState& state = context.state();
  if (!state.on_cpu())
    core::fail(Status::unsupported,
               "{}: the context is on {}; it must be on the cpu: a device's memory cannot be read "
               "without waiting for its stream",
               op, device_name(state.device));
  const quant::hash::Key& key = quant::hash::key();
  const bool vectors = quant::cpu::refusal(state.features).empty();
  const quant::hash::Field value =
      vectors ? quant::cpu::fingerprint(state, key, x) : quant::hash::reference(key, x);
  return {static_cast<std::uint64_t>(value), static_cast<std::uint64_t>(value >> 64)};
}

}  // namespace switchback
