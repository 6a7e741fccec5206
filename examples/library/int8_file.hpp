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

/// A weight, w = absmax * code / 127, or its rotation.
struct Weight {
  std::string name = {};  ///< what its keys begin with, without the dot after it
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::vector<std::int8_t> codes = {};  ///< [N,K]
  std::vector<float> absmax = {};       ///< [N], or [1]
  switchback::Rotation rotation = switchback::Rotation::none;
  std::vector<float> bias = {};  ///< [N], or none

  /// The options of a layer for it.
  [[nodiscard]] switchback::LinearOptions options() const {
    return {
        .in_features = k,
        .out_features = n,
        .mode = absmax.size() == 1 && n != 1 ? switchback::Mode::global : switchback::Mode::rowwise,
        .rotation = rotation};
  }
  /// Gives it to a layer, which copies everything.
  void set(switchback::SwitchbackLinear& layer) const {
    const switchback::MatrixView<const float> b(bias.data(), 1, n);
    layer.set_quantized_weight(
        {codes.data(), n, k}, absmax,
        bias.empty() ? switchback::ConstAnyMatrix() : switchback::ConstAnyMatrix(b));
  }
};

/// The int8 weights of a file whose keys begin with `prefix`, which is taken off; in the order of
/// their names as texts ("10" comes before "2"). Throws safetensors::Error that names file, key and
/// rule where a weight cannot be read right: zero points, scales of groups, other formats, static
/// scales of inputs unless ComfyUI wrote them, which reads none. Codes with a weight_scale of which
/// nothing says whether they are rotated (LLM Compressor's, or those of a file for ComfyUI that
/// lost what said it) are refused unless `unrotated` says that they are not.
std::vector<Weight> read(const std::filesystem::path& path, const std::string& prefix = {},
                         bool unrotated = false);

/// Writes weights as ComfyUI loads them ("int8_tensorwise", rotated ones as "convrot").
void write(const std::filesystem::path& path, std::span<const Weight> weights,
           const std::string& prefix = {});

}  // namespace int8_file
