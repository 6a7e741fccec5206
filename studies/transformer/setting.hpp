// SPDX-License-Identifier: Apache-2.0
// Studies: the sizes of the decoder, and their memory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bench/workload/workload.hpp"
#include "studies/models/decoder.hpp"

namespace switchback::bench::transformer {

/// The pass that a step runs. Each pass includes the ones before it.
enum class Pass { forward, backward, step };
std::string_view pass_name(Pass pass);
/// Throws Error(invalid_argument).
Pass parse_pass(const std::string& name);

/// A decoder by name.
struct Size {
  std::string name;
  std::int64_t width = 0, hidden = 0, layers = 0, heads = 0;
  double published_params = 0;  ///< millions; 0: a size of the user's own
};
/// The published ones (data/reference/transformer_sizes.csv): small, medium, large, xl, 2.7B.
const std::vector<Size>& sizes();
/// Throws Error(invalid_argument) that lists the names.
const Size& size_named(const std::string& name);

/// All settings of a case except its modes.
struct Setting {
  Size size;
  std::int64_t vocabulary = 10000;
  std::int64_t batch = 4;
  std::int64_t context = 256;
  DType dtype = DType::f32;
  Pass pass = Pass::step;
  WeightGradient dw = WeightGradient::floating;  ///< of the int8 modes that have another
  Rotation rotation = Rotation::none;            ///< of the int8 modes that rotate

  /// How its layers differ from those of the mode: "", ", dw int8_block, rotation 64".
  [[nodiscard]] std::string variant() const;
  [[nodiscard]] models::DecoderOptions decoder(Mode mode) const;
  [[nodiscard]] std::int64_t rows() const { return batch * context; }
};

/// Bytes by class that a model in these modes needs if all modes share the parameters. It is an
/// upper bound, too large by at most a third.
models::MemoryUse bytes_wanted(const Setting& setting, const std::vector<Mode>& modes);

}  // namespace switchback::bench::transformer
