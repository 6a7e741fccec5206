// SPDX-License-Identifier: Apache-2.0
// Models: the parameters of a model by name, with their gradients; saves them to and loads them
// from a file.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>

#include "core/context_state.hpp"
#include "studies/models/kernels.hpp"
#include "studies/models/memory.hpp"

namespace switchback::models {

struct Parameter {
  std::string name;
  Tensor value;         ///< f32
  Tensor gradient;      ///< f32
  Tensor copy;          ///< bf16 copy of a linear layer's weight in a bf16 model; else empty
  bool decays = false;  ///< whether weight decay applies

  /// The matrix that products read: the bf16 copy if there is one, else the value.
  [[nodiscard]] AnyMatrix read() const { return copy.empty() ? value.any() : copy.any(); }
  [[nodiscard]] MatrixView<float> value_view() const {
    return {value.floats().data(), value.rows(), value.cols()};
  }
  [[nodiscard]] MatrixView<float> gradient_view() const {
    return {gradient.floats().data(), gradient.rows(), gradient.cols()};
  }
};

/// Name, shape and initial values of a parameter that is created if it does not exist.
struct NewParameter {
  std::string name;
  std::int64_t rows = 0, cols = 0;
  /// Initial values uniform with mean 0 and this standard deviation; 0: constant.
  float deviation = 0;
  float constant = 0;
  bool decays = false;
  DType read_as = DType::f32;  ///< type that products read; bf16 keeps a copy
};

/// The parameters of one or more models, by name; their addresses never change. Models with the
/// same Parameters share parameters of the same name: a model in another mode trains the same
/// weights.
class Parameters {
 public:
  /// The initial values of a parameter depend only on `seed` and its name, not on other parameters.
  Parameters(ContextState& state, Memory& memory, std::uint64_t seed)
      : state_(state), memory_(memory), seed_(seed) {}

  /// Returns the parameter with this name; creates it if it does not exist. Throws
  /// Error(invalid_argument) if it exists with another shape.
  Parameter& get(const NewParameter& wanted);
  [[nodiscard]] std::deque<Parameter>& all() noexcept { return all_; }
  [[nodiscard]] const std::deque<Parameter>& all() const noexcept { return all_; }
  /// The state of the Context in whose memory the parameters are.
  [[nodiscard]] ContextState& state() const noexcept { return state_; }
  /// The total number of elements of all parameters.
  [[nodiscard]] std::int64_t count() const noexcept;

  /// Writes names, shapes and values of all parameters to a file. Throws Error(io_error).
  void save(const std::string& file) const;
  /// Reads the values of the existing parameters from a file. If the file has other parameters,
  /// throws Error and changes nothing.
  void load(const std::string& file);

 private:
  void refresh_copy(Parameter& p);
  ContextState& state_;
  Memory& memory_;
  std::uint64_t seed_;
  std::deque<Parameter> all_;
  std::map<std::string, Parameter*, std::less<>> by_name_;
};

}  // namespace switchback::models
