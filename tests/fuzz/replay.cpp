// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target on files and on the files of directories, for compilers without libFuzzer. So
// the committed corpus is an ordinary test, and an input that fuzzing found can be debugged
// anywhere. With --mutations N it also runs N inputs that differ from these files at random, always
// the same ones. If a mutation ends the program, it has been written to the file `mutation` in the
// working directory.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string_view>
#include <utility>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using Bytes = std::vector<char>;

void run(const Bytes& input) {
  // A block of exactly the input's size, so that a sanitizer sees a read past its end.
  const auto bytes = std::make_unique<std::uint8_t[]>(input.size());
  std::copy(input.begin(), input.end(), bytes.get());
  LLVMFuzzerTestOneInput(bytes.get(), input.size());
}

// Changes one to four places of an input: a bit, a byte, a range removed, or a range of another
// input inserted.
Bytes mutated(const std::vector<Bytes>& inputs, std::mt19937& random) {
  const auto below = [&](std::size_t n) { return n == 0 ? 0 : random() % n; };
  const auto range = [&](const Bytes& of) {
    const std::size_t begin = below(of.size() + 1);
    return std::pair(
        of.begin() + static_cast<std::ptrdiff_t>(begin),
        of.begin() + static_cast<std::ptrdiff_t>(
                         begin + below(std::min<std::size_t>(of.size() - begin, 16) + 1)));
  };
  Bytes input = inputs[below(inputs.size())];
  for (std::size_t changes = 1 + below(4); changes > 0; --changes) {
    const std::size_t at = below(input.size());
    const std::size_t kind = below(4);
    if (kind == 0 && !input.empty()) {
      input[at] = static_cast<char>(input[at] ^ (1 << below(8)));
    } else if (kind == 1 && !input.empty()) {
      constexpr unsigned char edges[] = {0, 1, 0x7f, 0x80, 0xff, ' ', '0', '9'};
      input[at] = static_cast<char>(edges[below(std::size(edges))]);
    } else if (kind == 2) {
      const auto [first, last] = range(input);
      input.erase(first, last);
    } else {
      const auto [first, last] = range(inputs[below(inputs.size())]);
      input.insert(input.begin() + static_cast<std::ptrdiff_t>(at), first, last);
    }
  }
  return input;
}

}  // namespace

int main(int argc, char** argv) {
  namespace fs = std::filesystem;
  std::vector<fs::path> files;
  int mutations = 0;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--mutations" && i + 1 < argc) {
      mutations = std::atoi(argv[++i]);
    } else if (fs::is_directory(argv[i])) {
      for (const auto& entry : fs::directory_iterator(argv[i]))
        if (entry.is_regular_file()) files.push_back(entry.path());
    } else {
      files.emplace_back(argv[i]);
    }
  }
  std::sort(files.begin(), files.end());
  std::vector<Bytes> inputs;
  for (const fs::path& file : files) {
    std::ifstream stream(file, std::ios::binary);
    inputs.push_back(Bytes{std::istreambuf_iterator<char>(stream), {}});
    if (!stream.is_open()) {
      std::fprintf(stderr, "cannot read %s\n", file.c_str());
      return 1;
    }
    run(inputs.back());
  }
  if (files.empty()) {
    std::fprintf(stderr, "no inputs: nothing was tested\n");
    return 1;
  }
  std::mt19937 random(1);
  for (int i = 0; i < mutations; ++i) {
    const Bytes input = mutated(inputs, random);
    std::ofstream("mutation", std::ios::binary).write(input.data(), std::ssize(input));
    run(input);
  }
  std::printf("%zu inputs, %d mutations\n", files.size(), mutations);
  return 0;
}
