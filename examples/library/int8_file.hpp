// SPDX-License-Identifier: Apache-2.0
// Example: int8 weights in safetensors files, as ComfyUI, bitsandbytes and switchback's Python
// package write them, and as ComfyUI reads them. The rules are those of
// switchback.interop.checkpoints.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "safetensors.hpp"
#include "switchback/linear.hpp"

namespace int8_file {

/// A quantized weight: w = absmax * code / 127, or w after a rotation if `rotation` is set.
struct Weight {
  /// The layer's name: its keys in the file without the last part, "mlp.up" for "mlp.up.weight".
  std::string name = {};
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::vector<std::int8_t> codes = {};  ///< [N,K]
  std::vector<float> absmax = {};       ///< [N], or [1]
  switchback::Rotation rotation = switchback::Rotation::none;
  std::vector<float> bias = {};  ///< [N], or empty for a layer without bias

  /// The options to create a layer that has this weight.
  [[nodiscard]] switchback::LinearOptions options() const {
    return {
        .in_features = k,
        .out_features = n,
        .mode = absmax.size() == 1 && n != 1 ? switchback::Mode::global : switchback::Mode::rowwise,
        .rotation = rotation};
  }
  /// Sets this weight as the weight of a layer. The layer copies codes, absmax and bias.
  void set(switchback::SwitchbackLinear& layer) const {
    const switchback::MatrixView<const float> b(bias.data(), 1, n);
    layer.set_quantized_weight(
        {codes.data(), n, k}, absmax,
        bias.empty() ? switchback::ConstAnyMatrix() : switchback::ConstAnyMatrix(b));
  }
};

/// Reads the int8 weights of a file whose keys begin with `prefix`, and removes the prefix from
/// their names. The weights are sorted by name as text ("10" comes before "2"). Throws
/// safetensors::Error, which names file, key and rule, if a weight cannot be read correctly: zero
/// points, scales of groups, other formats, or static scales of inputs (except those written by
/// ComfyUI, which does not read them). Codes with a weight_scale may be rotated or not. If the file
/// does not say which (LLM Compressor's files, or files for ComfyUI that lost this information),
/// the codes are refused unless `unrotated` says that they are not rotated.
std::vector<Weight> read(const std::filesystem::path& path, const std::string& prefix = {},
                         bool unrotated = false);

/// Writes weights in the form that ComfyUI loads ("int8_tensorwise", rotated ones as "convrot").
void write(const std::filesystem::path& path, std::span<const Weight> weights,
           const std::string& prefix = {});

}  // namespace int8_file
