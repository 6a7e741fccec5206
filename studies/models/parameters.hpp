// SPDX-License-Identifier: Apache-2.0
// Models: the parameters of a model by name, their gradients, and their file.
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
  Tensor copy;          ///< bf16, of a linear's weight in a bf16 model; else empty
  bool decays = false;  ///< weight decay applies: it is a matrix

  /// The matrix that products read.
  [[nodiscard]] AnyMatrix read() const { return copy.empty() ? value.any() : copy.any(); }
  [[nodiscard]] MatrixView<float> value_view() const {
    return {value.floats().data(), value.rows(), value.cols()};
  }
  [[nodiscard]] MatrixView<float> gradient_view() const {
    return {gradient.floats().data(), gradient.rows(), gradient.cols()};
  }
};

/// How a parameter is created.
struct NewParameter {
  std::string name;
  std::int64_t rows = 0, cols = 0;
  float deviation = 0;  ///< uniform with mean 0 and this standard deviation; 0: constant
  float constant = 0;
  bool decays = false;
  DType read_as = DType::f32;  ///< f32, or bf16: keeps a copy
};

/// Addresses of parameters never change. Models with the same Parameters share the parameters of
/// the same name: a model in another mode trains the same weights.
class Parameters {
 public:
  /// `seed` determines the initial values: each parameter's by its name, whatever other parameters
  /// exist.
  Parameters(ContextState& state, Memory& memory, std::uint64_t seed)
      : state_(state), memory_(memory), seed_(seed) {}

  /// The parameter with this name; it is created if it does not exist. Throws
  /// Error(invalid_argument) if it exists with another shape.
  Parameter& get(const NewParameter& wanted);
  [[nodiscard]] std::deque<Parameter>& all() noexcept { return all_; }
  [[nodiscard]] const std::deque<Parameter>& all() const noexcept { return all_; }
  /// The Context in whose memory the parameters are.
  [[nodiscard]] ContextState& state() const noexcept { return state_; }
  /// The number of elements of all values.
  [[nodiscard]] std::int64_t count() const noexcept;

  /// Writes names, shapes and values. Throws Error(io).
  void save(const std::string& file) const;
  /// Reads values of existing parameters. Throws Error, and changes nothing, if the file does not
  /// have these parameters.
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
