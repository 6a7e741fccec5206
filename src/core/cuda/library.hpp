// SPDX-License-Identifier: Apache-2.0
// CUDA core: functions of libraries that are loaded at run time, so that one build runs with and
// without these libraries.
#pragma once

#include <string>

#include "core/cuda/api.hpp"

namespace switchback::core::cuda {

/// A shared library that is loaded at run time and stays loaded until the process ends.
class Library {
 public:
  /// Loads the first of the given names that can be loaded.
  explicit Library(std::initializer_list<const char*> names);
  [[nodiscard]] bool loaded() const noexcept { return handle_ != nullptr; }
  /// The dynamic loader's message for the first name; empty if a library was loaded.
  [[nodiscard]] const std::string& error() const noexcept { return error_; }
  [[nodiscard]] void* symbol(const char* name) const noexcept;

 private:
  void* handle_ = nullptr;
  std::string error_;
};

}  // namespace switchback::core::cuda
