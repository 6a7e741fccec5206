// SPDX-License-Identifier: Apache-2.0
// The examples' reader of safetensors files: it reads everything that the format allows, and its
// errors name what the format does not allow.
#include "safetensors.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <fstream>
#include <functional>
#include <limits>

#include "int8_file.hpp"
#include "support/temporary_directory.hpp"

namespace switchback::test {
namespace {

using int8_file::Weight;
using safetensors::File;

class Safetensors : public ::testing::Test {
 protected:
  // Writes a file with this header and `data_bytes` bytes of data (0, 1, 2, ...), and returns its
  // path.
  std::string file(const std::string& header, std::size_t data_bytes) {
    const std::uint64_t count = header.size();
    std::string text(reinterpret_cast<const char*>(&count), 8);
    text += header;
    for (std::size_t i = 0; i < data_bytes; ++i)
      text += static_cast<char>(i);
    return file_of(text);
  }
  std::string file_of(const std::string& bytes) {
    const std::string path = path_of("file.safetensors");
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  [[nodiscard]] std::string path_of(const std::string& name) const {
    return (folder_.path() / name).string();
  }
  static std::string failure(const std::function<void()>& call) {
    try {
      call();
    } catch (const safetensors::Error& error) {
      return error.what();
    }
    return "did not fail";
  }
  // The error for a file with this header, without the path with which it must begin.
  std::string refusal(const std::string& header, std::size_t data_bytes) {
    const std::string path = file(header, data_bytes);
    const std::string text = failure([&] { const File opened(path); });
    EXPECT_TRUE(text.starts_with(path + ": ")) << text;
    return text.substr(std::min(text.size(), path.size() + 2));
  }

 private:
  TemporaryDirectory folder_;
};

TEST_F(Safetensors, TensorsInAnyOrderEmptyOnesAndScalarsAreRead) {
  const std::string path = file(
      R"({"__metadata__":{"format":"pt","a":"b"},"b":{"dtype":"I8","shape":[2,3],"data_offsets":[4,10]},)"
      R"("a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"none":{"dtype":"F16","shape":[0,18446744073709551615],)"
      R"("data_offsets":[4,4]}}   )",
      10);
  File opened(path);
  EXPECT_EQ(opened.metadata().at("a"), "b");
  ASSERT_EQ(opened.tensors().size(), 3u);
  EXPECT_EQ(opened.read<std::int8_t>("b"), (std::vector<std::int8_t>{4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(opened.read<std::uint32_t>("a"), std::vector<std::uint32_t>{0x03020100});
  EXPECT_TRUE(opened.read("none").empty());
  EXPECT_EQ(opened.read<std::int8_t>("b").size(), 6u) << "again, in any order";
  EXPECT_EQ(failure([&] { opened.read("c"); }), path + ": c: there is no such tensor");
  EXPECT_EQ(File(file("{}", 0)).tensors().size(), 0u);
}

TEST_F(Safetensors, WhatBreaksARuleIsNamed) {
  struct Row {
    std::string header;
    std::size_t bytes;
    std::string message;
  };
  const auto one = [](const std::string& about) { return R"({"a":)" + about + "}"; };
  const std::string b = R"("b":{"dtype":"I8","shape":[4],"data_offsets":)";
  const std::string a = R"({"a":{"dtype":"I8","shape":[4],"data_offsets":[0,4]},)";
  const Row rows[] = {
      {one(R"({"dtype":"I8","shape":[4],"data_offsets":[0,4]})"), 3,
       "a: data_offsets are [0, 4]; they must not fall, nor exceed the file's 3 bytes of data"},
      {one(R"({"dtype":"I8","shape":[4],"data_offsets":[4,0]})"), 4,
       "a: data_offsets are [4, 0]; they must not fall, nor exceed the file's 4 bytes of data"},
      {one(R"({"dtype":"I8","shape":[5],"data_offsets":[0,4]})"), 4,
       "a: data_offsets are [0, 4]; shape [5] of I8 takes another number of bytes"},
      // 2^32 · 2^32 elements overflow to 0 in 64 bits.
      {one(R"({"dtype":"I8","shape":[4294967296,4294967296],"data_offsets":[0,0]})"), 0,
       "a: data_offsets are [0, 0]; shape [4294967296, 4294967296] of I8 takes another number of "
       "bytes"},
      {one(R"({"dtype":"I9","shape":[4],"data_offsets":[0,4]})"), 4,
       "a: its type 'I9' is not known"},
      {one(R"({"dtype":8,"shape":[4],"data_offsets":[0,4]})"), 4,
       "a: the header must have 'dtype'"},
      {one(R"({"dtype":"I8","shape":[-4],"data_offsets":[0,4]})"), 4,
       "a: the header must have 'shape', a list of whole numbers"},
      {one(R"({"dtype":"I8","shape":[4],"data_offsets":[0,1e30]})"), 4,
       "a: the header must have 'data_offsets', a list of whole numbers"},
      {one(R"({"dtype":"I8","shape":[4],"data_offsets":[0]})"), 4,
       "a: data_offsets must be two numbers"},
      {a + b + "[3,7]}}", 7, "b: its data overlap those of a"},
      {a + b + "[5,9]}}", 9,
       "b: its data begin at byte 5; the bytes from 4 on belong to no tensor"},
      {a + b + "[4,8]}}", 9, "it has 9 bytes of data, and its tensors 8"},
      {a + R"("a":{"dtype":"I8","shape":[4],"data_offsets":[4,8]}})", 8,
       "the header: 'a' is there twice; names are unique"},
      {R"({"__metadata__":{"a":1}})", 0, "__metadata__: 'a' must be a text"},
      {"[1]", 0, "the header is not a JSON object"},
  };
  for (const Row& row : rows)
    EXPECT_EQ(refusal(row.header, row.bytes), row.message);
  EXPECT_TRUE(refusal("{\"a\"", 0).starts_with("the header is not JSON: "));
  EXPECT_TRUE(refusal("{\"\xff\":1}", 0).starts_with("the header is not JSON: "));
  const std::string deep = R"({"a":)" + std::string(200'000, '[');
  EXPECT_TRUE(refusal(deep, 0).starts_with("the header is not JSON: "));
  EXPECT_EQ(refusal(deep + std::string(200'000, ']') + "}", 0),
            "a: the header must have 'shape', a list of whole numbers");
}

TEST_F(Safetensors, FilesThatAreCutOrNoneAreNamed) {
  const auto opened = [](const std::string& path) {
    return failure([&] { const File file(path); });
  };
  const std::string none = path_of("none");
  EXPECT_EQ(opened(none), none + ": cannot be opened");
  const std::string folder = path_of("");
  EXPECT_EQ(opened(folder), folder + ": cannot be opened");
  const std::string whole(R"({"a":{"dtype":"I8","shape":[4],"data_offsets":[0,4]}})");
  const std::uint64_t count = whole.size();
  const std::string bytes = std::string(reinterpret_cast<const char*>(&count), 8) + whole + "0123";
  EXPECT_EQ(opened(file_of(bytes)), "did not fail");
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_NE(opened(file_of(bytes.substr(0, size))), "did not fail") << size;
  for (const std::uint64_t length :
       {std::uint64_t{0}, std::uint64_t{1}, count + 5, std::numeric_limits<std::uint64_t>::max()}) {
    std::string other = bytes;
    std::memcpy(other.data(), &length, 8);
    const std::string path = file_of(other);
    EXPECT_EQ(opened(path), path + " is not a safetensors file: it has " +
                                std::to_string(bytes.size()) +
                                " bytes, and its header would have " + std::to_string(length) +
                                "; it must fit, and have 2 to 100000000");
  }
}

TEST_F(Safetensors, WhatIsWrittenIsRead) {
  const std::vector<std::int8_t> codes = {-128, 127, 0};
  const std::vector<double> wide = {1e300, -0.0};
  const std::string path = path_of("written");
  const std::map<std::string, std::string> metadata = {{"key \"quoted\"", "text\nof two lines"}};
  safetensors::write(path,
                     {{"codes", "I8", {3, 1}, std::as_bytes(std::span(codes))},
                      {"none", "F32", {0}, {}},
                      {"wide", "F64", {2}, std::as_bytes(std::span(wide))}},
                     metadata);
  File file(path);
  EXPECT_EQ(file.metadata(), metadata);
  EXPECT_EQ(file.read<std::int8_t>("codes"), codes);
  EXPECT_EQ(file.read<std::uint64_t>("wide")[1], std::uint64_t{1} << 63);
  EXPECT_EQ(file.find("wide")->begin, 0u) << "larger elements first";
  EXPECT_EQ(failure([&] {
              safetensors::write(path, {{"a", "I8", {0}, {}}, {"a", "I8", {0}, {}}});
            }),
            path + ": a: names are unique");
  const std::string nowhere = path_of("no/folder");
  EXPECT_EQ(failure([&] { safetensors::write(nowhere, {}); }), nowhere + ": cannot be written");
}

// Weights with one scale for each row and with one scale for the matrix.
std::vector<Weight> some_weights() {
  std::vector<Weight> weights = {
      {.name = "a.rows", .n = 3, .k = 64, .rotation = Rotation::hadamard_64},
      {.name = "a.whole", .n = 2, .k = 3, .bias = {1.5f, -2.0f}},
      {.name = "", .n = 1, .k = 1}};
  for (Weight& w : weights) {
    w.codes.assign(static_cast<std::size_t>(w.n * w.k), std::int8_t{-128});
    w.absmax.assign(w.name == "a.rows" ? 3 : 1, 127 * 0.25f);
  }
  weights[0].absmax[1] = 127 * 2.0f;
  return weights;
}

TEST_F(Safetensors, Int8WeightsThereAndBack) {
  const std::string path = path_of("int8");
  for (const std::string prefix : {"", "model.diffusion_model."}) {
    std::vector<Weight> weights = some_weights();
    int8_file::write(path, weights, prefix);
    const std::vector<Weight> read = int8_file::read(path, prefix);
    ASSERT_EQ(read.size(), weights.size());
    for (const Weight& want : weights) {
      const auto got = std::find_if(read.begin(), read.end(),
                                    [&](const Weight& w) { return w.name == want.name; });
      ASSERT_NE(got, read.end()) << want.name;
      EXPECT_EQ(got->codes, want.codes);
      EXPECT_EQ(got->absmax, want.absmax);
      EXPECT_EQ(got->rotation, want.rotation);
      EXPECT_EQ(got->bias, want.bias);
      Context context({.device = "cpu", .threads = 1});
      SwitchbackLinear layer(context, got->options());
      got->set(layer);
      EXPECT_EQ(layer.options().mode, want.name == "a.whole" ? Mode::global : Mode::rowwise);
    }
  }
  EXPECT_EQ(failure([&] { int8_file::read(path, "model.x."); }),
            path + ": prefix = 'model.x.'; no key begins with it");
}

// Test fixture: writes a file with one weight [2,16] whose codes are all 1, and the given scales
// and metadata.
class Int8Files : public Safetensors {
 protected:
  struct Part {
    std::string name, dtype;
    std::vector<std::uint64_t> shape;
    std::string bytes;
  };
  static std::string floats(std::vector<float> values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
  }
  static Part comfy(const std::string& text) {
    return {"l.comfy_quant", "U8", {text.size()}, text};
  }
  static Part scale() { return {"l.weight_scale", "F32", {2, 1}, floats({1, 2})}; }
  std::vector<Weight> read(const std::vector<Part>& parts,
                           const std::map<std::string, std::string>& metadata = {},
                           bool unrotated = true) {
    const std::string codes(32, '\1');
    std::vector<safetensors::NewTensor> tensors = {
        {"l.weight", "I8", {2, 16}, std::as_bytes(std::span(codes))}};
    for (const Part& part : parts)
      tensors.push_back({part.name, part.dtype, part.shape, std::as_bytes(std::span(part.bytes))});
    path = path_of("int8");
    safetensors::write(path, tensors, metadata);
    return int8_file::read(path, "", unrotated);
  }
  std::string refusal(const std::vector<Part>& parts,
                      const std::map<std::string, std::string>& metadata = {}) {
    const std::string text = failure([&] { read(parts, metadata); });
    EXPECT_TRUE(text.starts_with(path + ": ")) << text;
    return text.substr(std::min(text.size(), path.size() + 2));
  }
  std::string path;
};

TEST_F(Int8Files, RotationIsReadWhereComfyUiReadsIt) {
  const std::string format = R"({"format":"int8_tensorwise")";
  const auto rotation = [&](const std::string& rest) {
    return read({scale(), comfy(format + rest + "}")}).at(0).rotation;
  };
  EXPECT_EQ(rotation(""), Rotation::none);
  EXPECT_EQ(rotation(R"(,"convrot":true,"convrot_groupsize":16)"), Rotation::hadamard_16);
  EXPECT_EQ(rotation(R"(,"convrot":1,"convrot_groupsize":"16")"), Rotation::hadamard_16);
  EXPECT_EQ(rotation(R"(,"convrot":false,"convrot_groupsize":16)"), Rotation::none);
  EXPECT_EQ(rotation(R"(,"params":{"convrot":true,"convrot_groupsize":16})"),
            Rotation::hadamard_16);
  EXPECT_EQ(rotation(R"(,"convrot":null,"params":{"convrot":true})"), Rotation::none);
  EXPECT_EQ(refusal({scale(), comfy(format + R"(,"convrot":true})")}),
            "l.comfy_quant: groups of 256, and the codes have 16 columns; they must be a multiple "
            "of it");
  for (const std::string group : {"32", "0", "-16", "\"x\"", "[]", "4294967312"})
    EXPECT_TRUE(
        refusal({scale(), comfy(format + R"(,"convrot":true,"convrot_groupsize":)" + group + "}")})
            .ends_with("are no rotation of this library"))
        << group;
  const std::string header =
      R"({"layers":{"l":{"format":"int8_tensorwise","convrot":true,"convrot_groupsize":16}}})";
  EXPECT_EQ(read({scale()}, {{"_quantization_metadata", header}}).at(0).rotation,
            Rotation::hadamard_16);
}

TEST_F(Int8Files, ScalesOfEveryForm) {
  const auto absmax = [&](const Part& part) { return read({part}).at(0).absmax; };
  EXPECT_EQ(absmax(scale()), (std::vector<float>{127, 254}));
  EXPECT_EQ(absmax({"l.weight_scale", "F32", {2}, floats({1, 2})}), (std::vector<float>{127, 254}));
  EXPECT_EQ(absmax({"l.weight_scale", "F32", {}, floats({1})}), (std::vector<float>{127}));
  EXPECT_EQ(absmax({"l.weight_scale", "BF16", {2}, std::string("\x80\x3f\x00\x40", 4)}),
            (std::vector<float>{127, 254}));
  EXPECT_EQ(absmax({"l.weight_scale", "F16", {2}, std::string("\x00\x3c\x00\x40", 4)}),
            (std::vector<float>{127, 254}));
  EXPECT_EQ(absmax({"l.SCB", "F32", {2}, floats({1, 2})}), (std::vector<float>{1, 2}));
}

TEST_F(Int8Files, WhatCannotBeReadRightIsRefusedByName) {
  struct Row {
    std::vector<Part> parts;
    std::string message;
  };
  const Row rows[] = {
      {{}, "l.weight: there must be its scales, either SCB or weight_scale"},
      {{scale(), {"l.SCB", "F32", {2}, floats({1, 2})}},
       "l.weight: there must be its scales, either SCB or weight_scale"},
      {{{"l.weight_scale", "F32", {3}, floats({1, 2, 3})}},
       "l.weight_scale: its shape is [3]; there must be a scale for each of 2 rows, or one"},
      {{{"l.SCB", "F32", {1}, floats({1})}},
       "l.SCB: its shape is [1]; there must be a scale for each of 2 rows"},
      {{{"l.weight_scale", "I32", {2}, floats({1, 2})}},
       "l.weight_scale: its type is I32; it must be F64, F32, F16 or BF16"},
      {{scale(), {"l.input_scale", "F32", {}, floats({1})}},
       "l.input_scale: inputs are quantized with a scale for each row, and weights have no groups; "
       "it cannot be used"},
      {{scale(), {"l.weight_zero_point", "I8", {2}, std::string("\0\1", 2)}},
       "l.weight_zero_point: it must be 0"},
      {{scale(), {"l.bias", "F32", {3}, floats({1, 2, 3})}},
       "l.bias: its shape is [3]; it must be [2]"},
      {{scale(), comfy(R"({"format":"float8"})")},
       R"(l.comfy_quant: it says {"format":"float8"}; what is read are I8 tensors in the format int8_tensorwise)"},
      {{scale(), comfy(R"({"format":"int8_tensorwise","full_precision_matrix_mult":true})")},
       "l.weight: full_precision_matrix_mult is set: its products are floating ones, not those of "
       "an int8 layer"},
      {{scale(), {"m.weight", "I8", {1, 1}, "1"}, comfy(R"({"format":"int8_tensorwise"})")},
       "m.weight: nothing says what its codes are, neither a comfy_quant next to them nor the "
       "header's _quantization_metadata"},
      {{scale(), {"l.W_int8", "I8", {1, 1}, "1"}}, "l.weight: there are codes in W_int8 too"},
      {{{"l.weight_scale", "F32", {2}, floats({1, 2})}, {"m.W_int8", "I8", {1, 1}, "1"}},
       "m.state_W: there is no such tensor, and there are codes"},
  };
  for (const Row& row : rows)
    EXPECT_EQ(refusal(row.parts), row.message);
  const std::string format = R"({"format":"int8_tensorwise")";
  for (const std::string words :
       {R"("convrot":64)", R"("convrot":"yes")", R"("convrot":true,"group_size":16)",
        R"("params":{"convrot_group_size":16})", R"("ConvRot":true)"})
    EXPECT_TRUE(
        refusal({scale(), comfy(format + "," + words + "}")}).starts_with("l.comfy_quant: "))
        << words;
  EXPECT_EQ(read({scale(), comfy(format + R"(,"per_row":true,"orig_shape":[2,16]})")}).size(), 1u);
  EXPECT_TRUE(failure([&] { read({scale()}, {}, false); }).ends_with("_quantization_metadata"));
  EXPECT_EQ(read({{"l.SCB", "F32", {2}, floats({1, 2})}}, {}, false).size(), 1u);
  EXPECT_TRUE(refusal({scale(), comfy("{")}).starts_with("l.comfy_quant is not JSON: "));
  EXPECT_EQ(refusal({scale()}, {{"_quantization_metadata", "{}"}}),
            "_quantization_metadata has no \"layers\"");
}

}  // namespace
}  // namespace switchback::test
