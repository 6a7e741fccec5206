// SPDX-License-Identifier: Apache-2.0
// Core: element access that is defined for any address. Pointers from callers may not even be
// aligned to the element size.
#pragma once

#include <cstdint>
#include <cstring>

#include "switchback/types.hpp"

namespace switchback::core {

template <class T>
inline T load(const T* base, std::int64_t index) noexcept {
  T value;
  std::memcpy(&value,
              reinterpret_cast<const char*>(base) + index * static_cast<std::int64_t>(sizeof(T)),
              sizeof(T));
  return value;
}

template <class T>
inline void store(T* base, std::int64_t index, T value) noexcept {
  std::memcpy(reinterpret_cast<char*>(base) + index * static_cast<std::int64_t>(sizeof(T)), &value,
              sizeof(T));
}

/// Element `index` of a float array of the given type, widened to f32.
inline float load_float(const void* base, DType dtype, std::int64_t index) noexcept {
  switch (dtype) {
    case DType::f16:
      return static_cast<float>(load(static_cast<const half*>(base), index));
    case DType::bf16:
      return static_cast<float>(load(static_cast<const bfloat16*>(base), index));
    default:
      return load(static_cast<const float*>(base), index);
  }
}

/// Rounds value once to the given type and stores it.
inline void store_float(void* base, DType dtype, std::int64_t index, float value) noexcept {
  switch (dtype) {
    case DType::f16:
      return store(static_cast<half*>(base), index, half(value));
    case DType::bf16:
      return store(static_cast<bfloat16*>(base), index, bfloat16(value));
    default:
      return store(static_cast<float*>(base), index, value);
  }
}

}  // namespace switchback::core
