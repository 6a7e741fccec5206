// SPDX-License-Identifier: Apache-2.0
// Studies: the sizes of the decoder that the workload `transformer` measures, and their memory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bench/workload/workload.hpp"
#include "studies/models/decoder.hpp"

namespace switchback::bench::transformer {

/// What a measured step consists of: forward; forward and backward; or both and the optimizer
/// (step).
enum class Pass { forward, backward, step };
std::string_view pass_name(Pass pass);
/// The pass with this name. Throws Error(invalid_argument) for an unknown name.
Pass parse_pass(const std::string& name);

/// The dimensions of a decoder, under a name such as "small".
struct Size {
  std::string name;
  std::int64_t width = 0, hidden = 0, layers = 0, heads = 0;
  double published_params = 0;  ///< in millions; 0 for a size that the user chose
};
/// The published sizes (data/reference/transformer_sizes.csv): small, medium, large, xl, 2.7B.
const std::vector<Size>& sizes();
/// The published size with this name. Throws Error(invalid_argument), which lists the names.
const Size& size_named(const std::string& name);

/// Everything that defines a measurement of the decoder, except the modes of its layers.
struct Setting {
  Size size;
  std::int64_t vocabulary = 10000;
  std::int64_t batch = 4;
  std::int64_t context = 256;
  DType dtype = DType::f32;
  Pass pass = Pass::step;
  WeightGradient dw = WeightGradient::floating;  ///< how dW is computed; only int8 modes use it
  Rotation rotation = Rotation::none;            ///< only int8 modes rotate

  /// How the layers differ from the defaults of their mode: "", ", dw int8_block, rotation 64".
  [[nodiscard]] std::string variant() const;
  [[nodiscard]] models::DecoderOptions decoder(Mode mode) const;
  [[nodiscard]] std::int64_t rows() const { return batch * context; }
};

/// Bytes by memory class that models in these modes need if they share the parameters. It is an
/// upper bound, too large by at most a third.
models::MemoryUse bytes_wanted(const Setting& setting, const std::vector<Mode>& modes);

}  // namespace switchback::bench::transformer
