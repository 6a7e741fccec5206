// SPDX-License-Identifier: Apache-2.0
// Runs a fuzz target on files and on the files of directories, for compilers without libFuzzer. So
// the committed corpus is an ordinary test, and an input that fuzzing found can be debugged
// anywhere.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

int main(int argc, char** argv) {
  namespace fs = std::filesystem;
  std::vector<fs::path> files;
  for (int i = 1; i < argc; ++i) {
    if (fs::is_directory(argv[i])) {
      for (const auto& entry : fs::directory_iterator(argv[i]))
        if (entry.is_regular_file()) files.push_back(entry.path());
    } else {
      files.emplace_back(argv[i]);
    }
  }
  std::sort(files.begin(), files.end());
  for (const fs::path& file : files) {
    std::ifstream stream(file, std::ios::binary);
    const std::vector<char> text{std::istreambuf_iterator<char>(stream), {}};
    if (!stream.is_open()) {
      std::fprintf(stderr, "cannot read %s\n", file.c_str());
      return 1;
    }
    // A block of exactly the input's size, so that a sanitizer sees a read past its end.
    const auto bytes = std::make_unique<std::uint8_t[]>(text.size());
    std::copy(text.begin(), text.end(), bytes.get());
    LLVMFuzzerTestOneInput(bytes.get(), text.size());
  }
  std::printf("%zu inputs\n", files.size());
  if (files.empty()) std::fprintf(stderr, "no inputs: nothing was tested\n");
  return files.empty() ? 1 : 0;
}
