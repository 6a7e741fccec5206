// SPDX-License-Identifier: Apache-2.0
#include "studies/models/memory.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/check.hpp"

namespace switchback::models {

std::string_view memory_class_name(MemoryClass c) noexcept {
  constexpr std::array<std::string_view, memory_classes> names = {
      "param", "grad", "optimizer", "int8_weights", "saved", "workspace"};
  return names[static_cast<std::size_t>(c)];
}

std::size_t MemoryUse::total() const noexcept {
  std::size_t sum = 0;
  for (const std::size_t b : bytes)
    sum += b;
  return sum;
}

namespace {

MemoryUse sum_of(const MemoryUse& a, const MemoryUse& b) noexcept {
  MemoryUse sum = a;
  for (std::size_t i = 0; i < memory_classes; ++i)
    sum.bytes[i] += b.bytes[i];
  return sum;
}

}  // namespace

void Memory::count(MemoryClass c, std::size_t more, std::size_t less) {
  std::size_t& bytes = tensors_.bytes[static_cast<std::size_t>(c)];
  bytes += more;
  bytes -= less;
  if (const MemoryUse use = sum_of(tensors_, elsewhere_); use.total() > peak_.total()) peak_ = use;
}

Tensor Memory::take(MemoryClass c, DType dtype, std::int64_t rows, std::int64_t cols) {
  core::require(rows >= 0 && cols >= 0, "models: a tensor of {}x{}; sizes must not be negative",
                rows, cols);
  const auto bytes =
      static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols) * dtype_size_bytes(dtype);
  Tensor tensor;
  const std::lock_guard lock(mutex_);
  // Takes the smallest free block that fits and is at most a quarter and a page too large. For
  // large blocks this is a huge page, because they consist of whole huge pages.
  constexpr std::size_t huge_page = std::size_t{2} << 20;
  const std::size_t slack = bytes / 4 + (bytes >= huge_page / 2 ? huge_page : 4096);
  auto best = free_.end();
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    const std::size_t capacity = it->capacity_bytes();
    if (capacity < bytes || capacity > bytes + slack) continue;
    if (best == free_.end() || capacity < best->capacity_bytes()) best = it;
  }
  if (best != free_.end()) {
    std::swap(*best, free_.back());
    tensor.buffer_ = std::move(free_.back());
    free_.pop_back();
  } else {
    tensor.buffer_ = core::AlignedBuffer(source_);
    try {
      tensor.buffer_.reserve(bytes);
    } catch (const Error&) {
      free_.clear();  // the free blocks may have other sizes than the needed one
      tensor.buffer_.reserve(bytes);
    }
    taken_from_system_ += bytes;
  }
  tensor.memory_ = this;
  tensor.class_ = c;
  tensor.dtype_ = dtype;
  tensor.rows_ = rows;
  tensor.cols_ = cols;
  tensor.bytes_ = bytes;
  count(c, bytes, 0);
  return tensor;
}

void Memory::set_held_elsewhere(MemoryClass c, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  elsewhere_.bytes[static_cast<std::size_t>(c)] = bytes;
  count(c, 0, 0);
}

void Memory::give_back(MemoryClass c, core::AlignedBuffer buffer, std::size_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  count(c, 0, bytes);
  try {
    free_.push_back(std::move(buffer));
  } catch (const std::bad_alloc&) {  // then free it now
  }
}

MemoryUse Memory::now() const {
  const std::lock_guard lock(mutex_);
  return sum_of(tensors_, elsewhere_);
}

MemoryUse Memory::peak() const {
  const std::lock_guard lock(mutex_);
  return peak_;
}

void Memory::reset_peak() {
  const std::lock_guard lock(mutex_);
  peak_ = sum_of(tensors_, elsewhere_);
}

std::size_t Memory::taken_from_system() const {
  const std::lock_guard lock(mutex_);
  return taken_from_system_;
}

Tensor& Tensor::operator=(Tensor&& other) noexcept {
  if (this == &other) return *this;
  reset();
  memory_ = std::exchange(other.memory_, nullptr);
  class_ = other.class_;
  buffer_ = std::move(other.buffer_);
  dtype_ = other.dtype_;
  rows_ = std::exchange(other.rows_, 0);
  cols_ = std::exchange(other.cols_, 0);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

void Tensor::set_class(MemoryClass c) {
  if (memory_ == nullptr || c == class_) return;
  const std::lock_guard lock(memory_->mutex_);
  memory_->count(class_, 0, bytes_);
  memory_->count(c, bytes_, 0);
  class_ = c;
}

void Tensor::reset() noexcept {
  if (memory_ == nullptr) return;
  memory_->give_back(class_, std::move(buffer_), bytes_);
  memory_ = nullptr;
  rows_ = cols_ = 0;
  bytes_ = 0;
}

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
