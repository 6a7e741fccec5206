// SPDX-License-Identifier: Apache-2.0
// For the comparison with Python's reader: reads int8 weights as the examples do, and writes them
// in another form.
//
//   safetensors_copy own|comfy FROM TO [PREFIX]
//
// own: the weights as read, under the keys of switchback's Python package; comfy: as
// int8_file::write writes them.
#include <cstdio>
#include <deque>
#include <exception>
#include <string>

#include "int8_file.hpp"

namespace {

void write_own(const std::string& path, const std::vector<int8_file::Weight>& weights) {
  std::vector<safetensors::NewTensor> tensors;
  std::deque<std::int32_t> rotations;
  const auto add = [&](std::string name, std::string dtype, std::vector<std::uint64_t> shape,
                       std::span<const std::byte> data) {
    tensors.push_back({std::move(name), std::move(dtype), std::move(shape), data});
  };
  for (const int8_file::Weight& w : weights) {
    const std::string begin = w.name.empty() ? "" : w.name + ".";
    const auto n = static_cast<std::uint64_t>(w.n);
    add(begin + "W_int8", "I8", {n, static_cast<std::uint64_t>(w.k)},
        std::as_bytes(std::span(w.codes)));
    add(begin + "state_W", "F32", {w.absmax.size()}, std::as_bytes(std::span(w.absmax)));
    const std::int32_t& rotation = rotations.emplace_back(static_cast<std::int32_t>(w.rotation));
    add(begin + "rotation_W", "I32", {1}, std::as_bytes(std::span(&rotation, 1)));
    if (!w.bias.empty()) add(begin + "bias", "F32", {n}, std::as_bytes(std::span(w.bias)));
  }
  safetensors::write(path, std::move(tensors));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  try {
    const auto weights = int8_file::read(argv[2], argc > 4 ? argv[4] : "");
    if (std::string(argv[1]) == "own")
      write_own(argv[3], weights);
    else
      int8_file::write(argv[3], weights);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
