// SPDX-License-Identifier: Apache-2.0
// Example: reads and writes files in the safetensors format: eight bytes with the length of a JSON
// header, then the header, then the data. This one header can be copied into another program; it
// needs nlohmann-json.
//
// A file is not trusted: if it breaks a rule of the format, an Error names the file, the tensor and
// the rule. Numbers are read and written in the byte order of the machine, which must be
// little-endian like the file.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace safetensors {

static_assert(std::endian::native == std::endian::little);

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline constexpr std::uint64_t largest_header = 100'000'000;

struct Tensor {
  std::string dtype;  ///< element type as the file names it: "I8", "F32", ...
  std::vector<std::uint64_t> shape;
  std::uint64_t begin = 0;  ///< first byte of the tensor, from the start of the file's data
  std::uint64_t end = 0;

  [[nodiscard]] std::uint64_t elements() const {
    std::uint64_t count = 1;
    for (const std::uint64_t extent : shape)
      count *= extent;
    return count;
  }
};

/// Bits per element of a type such as "F32"; 0 for a type that the format does not have.
inline unsigned element_bits(std::string_view dtype) {
  struct Type {
    std::string_view name;
    unsigned bits;
  };
  static constexpr std::array types = {
      Type{"F4", 4},      Type{"F6_E2M3", 6},     Type{"F6_E3M2", 6},     Type{"BOOL", 8},
      Type{"U8", 8},      Type{"I8", 8},          Type{"F8_E5M2", 8},     Type{"F8_E4M3", 8},
      Type{"F8_E8M0", 8}, Type{"F8_E4M3FNUZ", 8}, Type{"F8_E5M2FNUZ", 8}, Type{"I16", 16},
      Type{"U16", 16},    Type{"F16", 16},        Type{"BF16", 16},       Type{"I32", 32},
      Type{"U32", 32},    Type{"F32", 32},        Type{"C64", 64},        Type{"F64", 64},
      Type{"I64", 64},    Type{"U64", 64}};
  for (const Type& type : types)
    if (type.name == dtype) return type.bits;
  return 0;
}

/// "[3, 4]"
inline std::string text_of(const std::vector<std::uint64_t>& shape) {
  std::string text = "[";
  for (const std::uint64_t extent : shape)
    text += (text.size() > 1 ? ", " : "") + std::to_string(extent);
  return text + "]";
}

/// Parses a JSON object and refuses repeated names. Error messages begin with `where`.
inline nlohmann::json parse_object(std::string_view text, const std::string& where) {
  using nlohmann::json;
  std::vector<std::set<std::string>> names;
  const auto note = [&](int, json::parse_event_t event, json& value) {
    if (event == json::parse_event_t::object_start) names.emplace_back();
    if (event == json::parse_event_t::object_end) names.pop_back();
    if (event == json::parse_event_t::key && !names.back().insert(value.get<std::string>()).second)
      throw Error(where + ": '" + value.get<std::string>() + "' is there twice; names are unique");
    return true;
  };
  json value;
  try {
    value = json::parse(text, note);
  } catch (const json::exception& error) {
    throw Error(where + " is not JSON: " + error.what());
  }
  if (!value.is_object()) throw Error(where + " is not a JSON object");
  return value;
}

/// A safetensors file that is open for reading. The constructor reads and checks the header; the
/// data of a tensor is read on request.
class File {
 public:
  explicit File(const std::filesystem::path& path)
      : name_(path.string()), file_(path, std::ios::binary) {
    std::error_code error;
    const std::uint64_t bytes = std::filesystem::file_size(path, error);
    if (error || !file_) throw Error(name_ + ": cannot be opened");
    std::uint64_t count = 0;
    if (bytes >= 8) file_.read(reinterpret_cast<char*>(&count), 8);
    if (!file_ || bytes < 8 || count < 2 || count > largest_header || count > bytes - 8)
      throw Error(name_ + " is not a safetensors file: it has " + std::to_string(bytes) +
                  " bytes, and its header would have " + std::to_string(count) +
                  "; it must fit, and have 2 to " + std::to_string(largest_header));
    std::string header(count, ' ');
    file_.read(header.data(), static_cast<std::streamsize>(count));
    if (!file_) throw Error(name_ + ": cannot be read");
    data_begin_ = 8 + count;
    read_header(parse_object(header, name_ + ": the header"), bytes - data_begin_);
  }

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const std::map<std::string, Tensor>& tensors() const { return tensors_; }
  /// The names and texts in "__metadata__" of the file's header.
  [[nodiscard]] const std::map<std::string, std::string>& metadata() const { return metadata_; }
  /// The header's entry for a tensor; null if the file has no tensor of this name.
  [[nodiscard]] const Tensor* find(const std::string& name) const {
    const auto found = tensors_.find(name);
    return found == tensors_.end() ? nullptr : &found->second;
  }
  [[noreturn]] void fail(const std::string& tensor, const std::string& rule) const {
    throw Error(name_ + ": " + tensor + ": " + rule);
  }

  /// Reads the data of a tensor as elements of type T. Throws Error if there is no such tensor.
  template <class T = std::byte>
  std::vector<T> read(const std::string& name) {
    const Tensor* tensor = find(name);
    if (tensor == nullptr) fail(name, "there is no such tensor");
    const std::uint64_t bytes = tensor->end - tensor->begin;
    if (bytes % sizeof(T) != 0)
      fail(name, "its data are no whole elements of " + std::to_string(sizeof(T)) + " bytes");
    std::vector<T> data(bytes / sizeof(T));
    file_.clear();
    file_.seekg(static_cast<std::streamoff>(data_begin_ + tensor->begin));
    file_.read(reinterpret_cast<char*>(data.data()), static_cast<std::streamsize>(bytes));
    if (!file_) fail(name, "its data cannot be read");
    return data;
  }

 private:
  void read_header(const nlohmann::json& header, std::uint64_t data_bytes) {
    for (const auto& [key, about] : header.items()) {
      if (key == "__metadata__")
        read_metadata(about);
      else
        tensors_[key] = tensor(key, about, data_bytes);
    }
    check_places(data_bytes);
  }

  void read_metadata(const nlohmann::json& about) {
    if (about.is_null()) return;
    if (!about.is_object()) fail("__metadata__", "it must be an object of texts");
    for (const auto& [key, text] : about.items()) {
      if (!text.is_string()) fail("__metadata__", "'" + key + "' must be a text");
      metadata_[key] = text.get<std::string>();
    }
  }

  [[nodiscard]] std::vector<std::uint64_t> numbers(const std::string& name,
                                                   const nlohmann::json& about,
                                                   const char* key) const {
    const auto list = about.is_object() ? about.find(key) : about.end();
    const auto is_number = [](const nlohmann::json& value) { return value.is_number_unsigned(); };
    if (!about.is_object() || list == about.end() || !list->is_array() ||
        !std::all_of(list->begin(), list->end(), is_number))
      fail(name, "the header must have '" + std::string(key) + "', a list of whole numbers");
    return list->get<std::vector<std::uint64_t>>();
  }

  [[nodiscard]] Tensor tensor(const std::string& name, const nlohmann::json& about,
                              std::uint64_t data_bytes) const {
    Tensor made;
    made.shape = numbers(name, about, "shape");
    const std::vector<std::uint64_t> offsets = numbers(name, about, "data_offsets");
    const auto dtype = about.find("dtype");
    if (dtype == about.end() || !dtype->is_string()) fail(name, "the header must have 'dtype'");
    made.dtype = dtype->get<std::string>();
    const unsigned bits = element_bits(made.dtype);
    if (bits == 0) fail(name, "its type '" + made.dtype + "' is not known");
    if (offsets.size() != 2) fail(name, "data_offsets must be two numbers");
    made.begin = offsets[0];
    made.end = offsets[1];
    if (made.begin > made.end || made.end > data_bytes)
      fail(name, "data_offsets are " + text_of(offsets) +
                     "; they must not fall, nor exceed the file's " + std::to_string(data_bytes) +
                     " bytes of data");
    if (!holds(made, bits))
      fail(name, "data_offsets are " + text_of(offsets) + "; shape " + text_of(made.shape) +
                     " of " + made.dtype + " takes another number of bytes");
    return made;
  }

  // Whether the tensor's size in bytes matches its shape. The number of elements may exceed 64
  // bits.
  static bool holds(const Tensor& tensor, unsigned bits) {
    constexpr std::uint64_t most = ~std::uint64_t{0};
    const bool empty =
        std::find(tensor.shape.begin(), tensor.shape.end(), 0u) != tensor.shape.end();
    std::uint64_t all_bits = empty ? 0 : bits;
    for (const std::uint64_t extent : tensor.shape) {
      if (empty) break;
      if (extent > most / all_bits) return false;
      all_bits *= extent;
    }
    return all_bits % 8 == 0 && tensor.end - tensor.begin == all_bits / 8;
  }

  // Checks that every byte of the file's data belongs to exactly one tensor.
  void check_places(std::uint64_t data_bytes) const {
    std::vector<const std::pair<const std::string, Tensor>*> order;
    for (const auto& named : tensors_)
      order.push_back(&named);
    std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
      return std::pair(a->second.begin, a->second.end) < std::pair(b->second.begin, b->second.end);
    });
    std::uint64_t at = 0;
    const std::string* before = nullptr;
    for (const auto* named : order) {
      const auto& [name, tensor] = *named;
      if (tensor.begin < at) fail(name, "its data overlap those of " + *before);
      if (tensor.begin > at)
        fail(name, "its data begin at byte " + std::to_string(tensor.begin) + "; the bytes from " +
                       std::to_string(at) + " on belong to no tensor");
      at = tensor.end;
      before = &name;
    }
    if (at != data_bytes)
      throw Error(name_ + ": it has " + std::to_string(data_bytes) +
                  " bytes of data, and its tensors " + std::to_string(at));
  }

  std::string name_;
  std::ifstream file_;
  std::uint64_t data_begin_ = 0;
  std::map<std::string, Tensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

/// A tensor to write to a file. The data is borrowed.
struct NewTensor {
  std::string name;
  std::string dtype;
  std::vector<std::uint64_t> shape;
  std::span<const std::byte> data;
};

/// Writes a safetensors file. It appears, or replaces an old file, only when it is complete.
inline void write(const std::filesystem::path& path, std::vector<NewTensor> tensors,
                  const std::map<std::string, std::string>& metadata = {{"format", "pt"}}) {
  // Tensors with larger elements come first, so that the data of every tensor is aligned.
  std::stable_sort(tensors.begin(), tensors.end(), [](const NewTensor& a, const NewTensor& b) {
    return element_bits(a.dtype) > element_bits(b.dtype);
  });
  nlohmann::ordered_json header;
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::uint64_t at = 0;
  for (const NewTensor& tensor : tensors) {
    if (header.contains(tensor.name))
      throw Error(path.string() + ": " + tensor.name + ": names are unique");
    header[tensor.name] = {{"dtype", tensor.dtype},
                           {"shape", tensor.shape},
                           {"data_offsets", {at, at + tensor.data.size()}}};
    at += tensor.data.size();
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::exception& error) {
    throw Error(path.string() + ": a name is not UTF-8: " + error.what());
  }
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::filesystem::path unfinished = path.string() + ".unfinished";
  std::ofstream out(unfinished, std::ios::binary);
  const std::uint64_t count = text.size();
  out.write(reinterpret_cast<const char*>(&count), 8);
  out.write(text.data(), static_cast<std::streamsize>(count));
  for (const NewTensor& tensor : tensors)
    out.write(reinterpret_cast<const char*>(tensor.data.data()),
              static_cast<std::streamsize>(tensor.data.size()));
  out.close();
  std::error_code error;
  if (out) std::filesystem::rename(unfinished, path, error);
  if (!out || error) {
    std::error_code ignored;
    std::filesystem::remove(unfinished, ignored);
    throw Error(path.string() + ": cannot be written");
  }
}

}  // namespace safetensors
