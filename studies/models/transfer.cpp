// SPDX-License-Identifier: Apache-2.0
#include "studies/models/transfer.hpp"

#include <cstring>

namespace switchback::models {

void write(ContextState& state, const void* from, const Tensor& to) {
  const std::size_t bytes = to.size_bytes();
  if (bytes == 0) return;
  if (state.on_cpu())
    std::memcpy(to.any().data, from, bytes);
  else
    state.runtime->copy(to.any().data, bytes, from, bytes, bytes, 1);
}

void read(ContextState& state, const Tensor& from, void* to) {
  const std::size_t bytes = from.size_bytes();
  if (bytes == 0) return;
  if (state.on_cpu()) {
    std::memcpy(to, from.any().data, bytes);
    return;
  }
  state.runtime->copy(to, bytes, from.any().data, bytes, bytes, 1);
  state.runtime->synchronize();
}

std::vector<float> floats_of(ContextState& state, const Tensor& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.size()));
  read(state, tensor, values.data());
  return values;
}

Tokens on_device(ContextState& state, Memory& memory, Tokens tokens, Tensor& holder) {
  if (state.on_cpu()) return tokens;
  holder = memory.take(MemoryClass::saved, DType::s32, 1, static_cast<std::int64_t>(tokens.size()));
  write(state, tokens.data(), holder);
  return holder.values<std::int32_t>();
}

}  // namespace switchback::models
