// SPDX-License-Identifier: Apache-2.0
// Models: tensors, their allocator, and copies between tensors and the host. The allocator counts
// bytes by class and remembers the peak. It keeps freed memory for the next tensor of about the
// same size, so that a repeated step allocates none.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "core/aligned_buffer.hpp"
#include "core/context_state.hpp"
#include "studies/models/kernels.hpp"
#include "switchback/matrix.hpp"

namespace switchback::models {

/// What memory is used for, to count bytes by purpose.
enum class MemoryClass : std::size_t {
  param,
  grad,
  optimizer,
  int8_weights,  ///< packed int8 codes of weights, which linear layers hold
  saved,         ///< activations and other data that forwards keep for their backwards
  workspace,     ///< scratch memory, gradients of activations
};
inline constexpr std::size_t memory_classes = 6;
/// Returns "param", "grad", "optimizer", "int8_weights", "saved" or "workspace".
std::string_view memory_class_name(MemoryClass c) noexcept;

/// The number of bytes in use at one moment, by class.
struct MemoryUse {
  std::array<std::size_t, memory_classes> bytes = {};
  [[nodiscard]] std::size_t operator[](MemoryClass c) const noexcept {
    return bytes[static_cast<std::size_t>(c)];
  }
  [[nodiscard]] std::size_t total() const noexcept;
};

class Tensor;

/// The allocator of tensors. Several threads may use it. It must outlive its tensors.
class Memory {
 public:
  /// Allocates memory from `source`, such as a Context's runtime; null: from the host.
  explicit Memory(std::shared_ptr<core::MemorySource> source = nullptr) noexcept
      : source_(std::move(source)) {}
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  /// Returns a contiguous matrix with uninitialised elements. Throws Error(out_of_memory).
  [[nodiscard]] Tensor take(MemoryClass c, DType dtype, std::int64_t rows, std::int64_t cols);
  /// Sets how many bytes of this class other objects hold, such as a Context (workspace) or linear
  /// layers (codes of weights). It replaces the earlier value.
  void set_held_elsewhere(MemoryClass c, std::size_t bytes);

  [[nodiscard]] MemoryUse now() const;
  /// The bytes by class at the moment when their total was largest.
  [[nodiscard]] MemoryUse peak() const;
  /// Starts a new peak with the bytes that are in use now.
  void reset_peak();
  /// Bytes that have been allocated from the system or device so far, for new blocks.
  [[nodiscard]] std::size_t taken_from_system() const;

 private:
  friend class Tensor;
  void count(MemoryClass c, std::size_t more, std::size_t less);
  void give_back(MemoryClass c, core::AlignedBuffer buffer, std::size_t bytes) noexcept;

  std::shared_ptr<core::MemorySource> source_;
  mutable std::mutex mutex_;
  std::vector<core::AlignedBuffer> free_;
  MemoryUse tensors_, elsewhere_, peak_;
  std::size_t taken_from_system_ = 0;
};

/// A contiguous matrix that owns its memory and returns it to its Memory on destruction.
class Tensor {
 public:
  Tensor() = default;
  ~Tensor() { reset(); }
  Tensor(Tensor&& other) noexcept { *this = std::move(other); }
  Tensor& operator=(Tensor&& other) noexcept;
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;

  /// Counts the tensor's bytes under another class from now on.
  void set_class(MemoryClass c);
  /// Returns the memory to the allocator; the tensor is empty afterwards.
  void reset() noexcept;
  [[nodiscard]] bool empty() const noexcept { return memory_ == nullptr; }
  [[nodiscard]] DType dtype() const noexcept { return dtype_; }
  [[nodiscard]] std::int64_t rows() const noexcept { return rows_; }
  [[nodiscard]] std::int64_t cols() const noexcept { return cols_; }
  [[nodiscard]] std::int64_t size() const noexcept { return rows_ * cols_; }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return bytes_; }

  [[nodiscard]] AnyMatrix any() const noexcept {
    return {buffer_.as<void>(), dtype_, rows_, cols_, cols_};
  }
  /// The tensor's elements as T, which must be its element type.
  template <class T>
  [[nodiscard]] std::span<T> values() const noexcept {
    return {buffer_.as<T>(), static_cast<std::size_t>(size())};
  }
  [[nodiscard]] std::span<float> floats() const noexcept { return values<float>(); }

 private:
  friend class Memory;
  Memory* memory_ = nullptr;
  MemoryClass class_ = MemoryClass::saved;
  core::AlignedBuffer buffer_;
  DType dtype_ = DType::f32;
  std::int64_t rows_ = 0;
  std::int64_t cols_ = 0;
  std::size_t bytes_ = 0;
};

/// Copies host memory to the tensor, whose size determines the number of bytes. The host memory may
/// change after this returns. On a device the copy is queued, and `from` may also be device memory.
void write(ContextState& state, const void* from, const Tensor& to);
/// Copies the tensor's bytes to host memory. Waits for work that was queued before.
void read(ContextState& state, const Tensor& from, void* to);
/// Copies the values of an f32 tensor to the host.
std::vector<float> floats_of(ContextState& state, const Tensor& tensor);

/// Makes tokens in host memory available to operations: returns the tokens themselves on a CPU,
/// else a copy in device memory that `holder` owns.
Tokens on_device(ContextState& state, Memory& memory, Tokens tokens, Tensor& holder);

}  // namespace switchback::models
