// SPDX-License-Identifier: Apache-2.0
#include "int8_file.hpp"

#include <algorithm>
#include <cctype>
#include <limits>
#include <optional>

#include "switchback/types.hpp"

namespace int8_file {

namespace {

using nlohmann::json;
using safetensors::File;
using safetensors::Tensor;
using switchback::Rotation;

using Shape = std::vector<std::uint64_t>;
constexpr const char* quantization_metadata = "_quantization_metadata";

bool ends_with_name(const std::string& key, const std::string& name) {
  return key == name || key.ends_with("." + name);
}

template <class T>
void append(std::vector<float>& to, const std::vector<T>& values) {
  for (const T value : values)
    to.push_back(static_cast<float>(value));
}

std::vector<float> floats(File& file, const std::string& key) {
  const std::string& dtype = file.find(key)->dtype;
  std::vector<float> values;
  if (dtype == "F32")
    append(values, file.read<float>(key));
  else if (dtype == "F64")
    append(values, file.read<double>(key));
  else if (dtype == "F16")
    append(values, file.read<switchback::half>(key));
  else if (dtype == "BF16")
    append(values, file.read<switchback::bfloat16>(key));
  else
    file.fail(key, "its type is " + dtype + "; it must be F64, F32, F16 or BF16");
  return values;
}

// Whether Python considers the value of this key true: present, and not null, false, 0 or empty.
bool is_set(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return false;
  if (found->is_boolean()) return found->get<bool>();
  if (found->is_number()) return found->get<double>() != 0;
  return found->is_string() ? !found->get_ref<const std::string&>().empty() : !found->empty();
}

json object(const json& value, const std::string& where) {
  if (value.is_string())
    return safetensors::parse_object(value.get_ref<const std::string&>(), where);
  if (!value.is_object()) throw safetensors::Error(where + " is not a JSON object");
  return value;
}

class Reader {
 public:
  Reader(const std::filesystem::path& path, const std::string& prefix, bool unrotated)
      : file_(path), prefix_(prefix), unrotated_(unrotated) {}

  std::vector<Weight> weights() {
    bool any = prefix_.empty();
    for (const auto& [key, tensor] : file_.tensors()) {
      if (!key.starts_with(prefix_)) continue;
      any = true;
      const std::string name = key.substr(prefix_.size());
      if (tensor.dtype != "I8") continue;
      for (const std::string own : {"W_int8", "weight"})
        if (ends_with_name(name, own)) begins_.push_back(name.substr(0, name.size() - own.size()));
    }
    if (!any)
      throw safetensors::Error(file_.name() + ": prefix = '" + prefix_ +
                               "'; no key begins with it");
    read_what_is_said();
    std::vector<Weight> all;
    for (const std::string& begin : begins_)
      all.push_back(weight(begin));
    return all;
  }

 private:
  // Finds a tensor of one layer: its key is the file's prefix, the layer's name `begin`, and
  // `name`.
  [[nodiscard]] const Tensor* find(const std::string& begin, const char* name) const {
    return file_.find(prefix_ + begin + name);
  }
  [[noreturn]] void fail(const std::string& begin, const char* name,
                         const std::string& rule) const {
    file_.fail(prefix_ + begin + name, rule);
  }

  // Collects how each layer was quantized: from its comfy_quant tensor, or from the file's header.
  void read_what_is_said() {
    for (const auto& [key, tensor] : file_.tensors()) {
      if (!key.starts_with(prefix_) || !ends_with_name(key, "comfy_quant")) continue;
      if (tensor.dtype != "U8") file_.fail(key, "its type is " + tensor.dtype + "; it must be U8");
      const std::vector<char> text = file_.read<char>(key);
      const std::string begin = key.substr(
          prefix_.size(), key.size() - prefix_.size() - std::string("comfy_quant").size());
      said_[begin] =
          safetensors::parse_object({text.data(), text.size()}, file_.name() + ": " + key);
    }
    const auto header = file_.metadata().find(quantization_metadata);
    if (header != file_.metadata().end()) read_header(header->second);
    for (const auto& [begin, about] : said_) {
      const auto format = about.find("format");
      const Tensor* codes = find(begin, "weight");
      if (codes == nullptr || codes->dtype != "I8" || format == about.end() ||
          *format != "int8_tensorwise")
        fail(begin, "comfy_quant",
             "it says " + about.dump() +
                 "; what is read are I8 tensors in the format int8_tensorwise");
      check_words(begin, about);
    }
    const bool is_of_comfy = !said_.empty() || header != file_.metadata().end();
    for (const std::string& begin : begins_)
      if (find(begin, "W_int8") == nullptr && !said_.contains(begin) &&
          (is_of_comfy || (!unrotated_ && find(begin, "SCB") == nullptr)))
        fail(begin, "weight",
             "nothing says what its codes are, neither a comfy_quant next to them "
             "nor the header's " +
                 std::string(quantization_metadata));
  }

  // Refuses a layer's JSON description if it has unknown members about rotations or groups. Other
  // unknown members are allowed.
  void check_words(const std::string& begin, const json& about) const {
    const auto params = about.find("params");
    for (const json* words : {&about, params != about.end() ? &*params : nullptr}) {
      if (words == nullptr || !words->is_object()) continue;
      for (const auto& [word, value] : words->items()) {
        if (word == "convrot") {
          if (!value.is_null() && !value.is_boolean() && value != 0 && value != 1)
            fail(begin, "comfy_quant", "convrot is " + value.dump() + "; it must be true or false");
          continue;
        }
        std::string small = word;
        std::transform(small.begin(), small.end(), small.begin(),
                       [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
        for (const char* part : {"rot", "hadamard", "group", "block"})
          if (word != "convrot_groupsize" && small.find(part) != std::string::npos)
            fail(
                begin, "comfy_quant",
                "it says " + word + "; what is read of rotations is convrot and convrot_groupsize");
      }
    }
  }

  void read_header(const std::string& text) {
    const std::string where = file_.name() + ": " + quantization_metadata;
    const json header = safetensors::parse_object(text, where);
    const auto layers = header.find("layers");
    if (layers == header.end() || !layers->is_object())
      throw safetensors::Error(where + " has no \"layers\"");
    for (const auto& [name, about] : layers->items()) {
      // The header names layers by their keys in the file, but some programs omit the prefix.
      const std::string whole = name + ".";
      const std::string cut = whole.starts_with(prefix_) ? whole.substr(prefix_.size()) : whole;
      for (const std::string& begin : {cut, whole})
        if (find(begin, "weight") != nullptr) {
          said_[begin] = object(about, where + " of '" + name + "'");
          break;
        }
    }
  }

  Weight weight(const std::string& begin) {
    const bool ours = find(begin, "W_int8") != nullptr;
    if (ours && find(begin, "weight") != nullptr && find(begin, "weight")->dtype == "I8")
      fail(begin, "weight", "there are codes in W_int8 too");
    const char* const codes = ours ? "W_int8" : "weight";
    const Shape shape = find(begin, codes)->shape;
    if (shape.size() != 2)
      fail(begin, codes, "its shape is " + safetensors::text_of(shape) + "; it must be [N,K]");
    Weight made;
    made.name = begin.empty() ? begin : begin.substr(0, begin.size() - 1);
    made.n = static_cast<std::int64_t>(shape[0]);
    made.k = static_cast<std::int64_t>(shape[1]);
    made.codes = file_.read<std::int8_t>(prefix_ + begin + codes);
    made.absmax =
        ours ? scales(begin, "state_W", shape[0], 1.0f) : scales_of_others(begin, shape[0]);
    const auto said = said_.find(begin);
    if (ours) {
      if (find(begin, "rotation_W") != nullptr) made.rotation = own_rotation(begin, shape[1]);
    } else if (said != said_.end()) {
      made.rotation = rotation_said(begin, said->second, shape[1]);
    } else {
      check_the_rest(begin);
    }
    if (const Tensor* bias = find(begin, "bias")) {
      if (bias->shape != Shape{shape[0]})
        fail(begin, "bias",
             "its shape is " + safetensors::text_of(bias->shape) + "; it must be [" +
                 std::to_string(shape[0]) + "]");
      made.bias = floats(file_, prefix_ + begin + "bias");
    }
    return made;
  }

  // Reads absmax from a tensor of scales: scales are absmax or absmax / 127, and `factor` is 1 or
  // 127.
  std::vector<float> scales(const std::string& begin, const char* name, std::uint64_t rows,
                            float factor) {
    const Tensor* tensor = find(begin, name);
    if (tensor == nullptr) fail(begin, name, "there is no such tensor, and there are codes");
    const bool may_be_one = std::string_view(name) != "SCB" || rows == 1;
    const Shape& shape = tensor->shape;
    const bool one = shape.empty() || shape == Shape{1} || shape == Shape{1, 1};
    if (!(one && may_be_one) && shape != Shape{rows} && shape != Shape{rows, 1})
      fail(begin, name,
           "its shape is " + safetensors::text_of(shape) + "; there must be a scale for each of " +
               std::to_string(rows) + " rows" + (may_be_one ? ", or one" : ""));
    std::vector<float> made = floats(file_, prefix_ + begin + name);
    for (float& value : made)
      value *= factor;
    return made;
  }

  std::vector<float> scales_of_others(const std::string& begin, std::uint64_t rows) {
    const bool bitsandbytes = find(begin, "SCB") != nullptr;
    if (bitsandbytes == (find(begin, "weight_scale") != nullptr))
      fail(begin, "weight", "there must be its scales, either SCB or weight_scale");
    return bitsandbytes ? scales(begin, "SCB", rows, 1.0f)
                        : scales(begin, "weight_scale", rows, 127.0f);
  }

  [[nodiscard]] Rotation rotation_of(const std::string& begin, const char* key, std::int64_t group,
                                     std::uint64_t columns) const {
    const auto rotation = static_cast<Rotation>(group);
    if (group <= 0 || group > std::numeric_limits<std::int32_t>::max() ||
        switchback::rotation_name(rotation) == "unknown")
      fail(begin, key, "groups of " + std::to_string(group) + " are no rotation of this library");
    if (columns % static_cast<std::uint64_t>(group) != 0)
      fail(begin, key,
           "groups of " + std::to_string(group) + ", and the codes have " +
               std::to_string(columns) + " columns; they must be a multiple of it");
    return rotation;
  }

  Rotation own_rotation(const std::string& begin, std::uint64_t columns) {
    const Tensor* tensor = find(begin, "rotation_W");
    if (tensor->dtype != "I32" || tensor->elements() != 1)
      fail(begin, "rotation_W", "it must be one number, I32");
    const std::int32_t group = file_.read<std::int32_t>(prefix_ + begin + "rotation_W")[0];
    return group == 0 ? Rotation::none : rotation_of(begin, "rotation_W", group, columns);
  }

  [[nodiscard]] Rotation rotation_said(const std::string& begin, const json& about,
                                       std::uint64_t columns) const {
    if (is_set(about, "full_precision_matrix_mult"))
      fail(begin, "weight",
           "full_precision_matrix_mult is set: its products are floating ones, not "
           "those of an int8 layer");
    const auto params = about.find("params");
    const json within = params != about.end() && params->is_object() ? *params : json::object();
    if (!is_set(about.contains("convrot") ? about : within, "convrot")) return Rotation::none;
    const json& given = about.contains("convrot_groupsize") ? about : within;
    std::int64_t group = 256;
    if (const auto found = given.find("convrot_groupsize"); found != given.end())
      group = whole_number(*found).value_or(-1);
    return rotation_of(begin, "comfy_quant", group, columns);
  }

  static std::optional<std::int64_t> whole_number(const json& value) {
    if (value.is_number_integer()) return value.get<std::int64_t>();
    if (value.is_number_float() && value.get<double>() >= 0 && value.get<double>() < 1e6)
      return static_cast<std::int64_t>(value.get<double>());
    if (!value.is_string()) return std::nullopt;
    const auto& text = value.get_ref<const std::string&>();
    if (text.empty() || text.size() > 6 ||
        text.find_first_not_of("0123456789") != std::string::npos)
      return std::nullopt;
    return std::stol(text);
  }

  // Refuses tensors that change the meaning of the codes: static input scales, group indices, and
  // zero points or weight formats that are not 0.
  void check_the_rest(const std::string& begin) {
    for (const char* name : {"input_scale", "input_zero_point", "weight_g_idx"})
      if (find(begin, name) != nullptr)
        fail(begin, name,
             "inputs are quantized with a scale for each row, and weights have no "
             "groups; it cannot be used");
    for (const char* name : {"weight_zero_point", "weight_format"})
      if (find(begin, name) != nullptr)
        for (const std::byte byte : file_.read(prefix_ + begin + name))
          if (byte != std::byte{0}) fail(begin, name, "it must be 0");
  }

  File file_;
  std::string prefix_;
  bool unrotated_;
  std::vector<std::string> begins_;   // names of int8 layers with their final dot: "mlp.up."
  std::map<std::string, json> said_;  // JSON description from ComfyUI of each of these layers
};

std::span<const std::byte> bytes_of(const auto& values) {
  return std::as_bytes(std::span(values));
}

}  // namespace

std::vector<Weight> read(const std::filesystem::path& path, const std::string& prefix,
                         bool unrotated) {
  return Reader(path, prefix, unrotated).weights();
}

void write(const std::filesystem::path& path, std::span<const Weight> weights,
           const std::string& prefix) {
  std::vector<std::vector<float>> scales;
  std::vector<std::string> texts;
  std::vector<safetensors::NewTensor> tensors;
  scales.reserve(weights.size());
  texts.reserve(weights.size());
  for (const Weight& w : weights) {
    const std::string begin = prefix + (w.name.empty() ? "" : w.name + ".");
    const auto n = static_cast<std::uint64_t>(w.n);
    std::vector<float>& scale = scales.emplace_back(w.absmax);
    for (float& value : scale)
      value /= 127.0f;
    json about = {{"format", "int8_tensorwise"}};
    const bool rotated = w.rotation != Rotation::none;
    if (rotated) {
      about["convrot"] = true;
      about["convrot_groupsize"] = static_cast<std::int32_t>(w.rotation);
      // For rotated codes, ComfyUI reads only a scale for each row, so a single scale is repeated.
      scale.resize(n, scale.front());
    }
    const bool one = scale.size() == 1 && !rotated;
    tensors.push_back(
        {begin + "weight", "I8", {n, static_cast<std::uint64_t>(w.k)}, bytes_of(w.codes)});
    tensors.push_back(
        {begin + "weight_scale", "F32", one ? Shape{} : Shape{n, 1}, bytes_of(scale)});
    const std::string& text = texts.emplace_back(about.dump());
    tensors.push_back({begin + "comfy_quant", "U8", {text.size()}, bytes_of(text)});
    if (!w.bias.empty()) tensors.push_back({begin + "bias", "F32", {n}, bytes_of(w.bias)});
  }
  safetensors::write(path, std::move(tensors));
}

}  // namespace int8_file
