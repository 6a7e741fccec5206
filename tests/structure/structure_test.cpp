// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "structure/rules.hpp"

namespace switchback::test {
namespace {

namespace fs = std::filesystem;

// The root of the source tree; the build defines SWITCHBACK_SOURCE_DIR.
const fs::path root = SWITCHBACK_SOURCE_DIR;

TEST(Structure, TheTreeFollowsTheRules) {
  int files = 0;
  const auto look = [&](const fs::path& file) {
    std::ifstream stream(file, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(stream), {}};
    ASSERT_TRUE(stream.good() || stream.eof()) << file;
    ++files;
    for (const Violation& violation : check_file(fs::relative(file, root).generic_string(), text))
      ADD_FAILURE() << violation.path << ":" << violation.line << ": " << violation.what;
  };
  for (const char* directory : {"include", "src", "autotune", "bench", "studies", "examples",
                                "tests", "cmake", "tools", "data", "docs", ".ci"}) {
    const fs::path top = root / directory;
    if (!fs::exists(top)) continue;
    for (auto entry = fs::recursive_directory_iterator(top);
         entry != fs::recursive_directory_iterator(); ++entry) {
      // Folders named corpus hold inputs of the fuzz targets. These are bytes, not text, so they
      // are not checked.
      if (entry->is_directory() && entry->path().filename() == "corpus")
        entry.disable_recursion_pending();
      else if (entry->is_regular_file())
        look(entry->path());
    }
  }
  for (const auto& entry : fs::directory_iterator(root))
    if (entry.is_regular_file() && entry.path().filename() != ".git") look(entry.path());
  EXPECT_GT(files, 60) << "the tree was not found below " << root;
}

// Part of a planted violation. It is put together, so that this file does not itself contain the
// violation.
const std::string include_of = std::string("#include ");

std::vector<Violation> layers(const std::string& path, const std::string& included) {
  return check_layers(path, "// c\n" + include_of + "\"" + included + "\"\n");
}

TEST(Structure, AnIncludeThatPointsUpIsCaught) {
  const auto found = layers("src/core/x.cpp", "gemm/gemm.hpp");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].line, 2);
  EXPECT_EQ(found[0].what, "include \"gemm/gemm.hpp\" points up: core is below gemm");
  EXPECT_EQ(layers("src/quant/x.hpp", "linear/state.hpp").size(), 1u);
  EXPECT_EQ(layers("src/quant/cpu/x.hpp", "gemm/int8/engine.hpp").size(), 1u);
  EXPECT_EQ(layers("src/linear/x.cpp", "autotune/tuner.hpp").size(), 1u);
  EXPECT_EQ(layers("src/measure/x.cpp", "autotune/tuner.hpp").size(), 1u);
  EXPECT_EQ(layers("src/linear/x.cpp", "measure/data.hpp").size(), 1u);
  EXPECT_EQ(layers("studies/models/x.cpp", "autotune/tuner.hpp").size(), 1u);
  EXPECT_EQ(layers("studies/models/x.cpp", "bench/grid/grid.hpp").size(), 1u);
  EXPECT_EQ(layers("autotune/x.cpp", "bench/grid/grid.hpp").size(), 1u);
  EXPECT_EQ(layers("src/core/x.cpp", "switchback/linear.hpp").size(), 1u);
  EXPECT_EQ(layers("include/switchback/types.hpp", "switchback/quant.hpp").size(), 1u);
  EXPECT_EQ(layers("src/linear/x.cpp", "switchback/switchback.h").size(), 1u);
  EXPECT_EQ(layers("src/core/x.cpp", "../gemm/gemm.hpp").size(), 1u);
  EXPECT_EQ(layers("tests/core/x.cpp", "../support/matrix.hpp").size(), 1u);
}

TEST(Structure, SiblingsDoNotIncludeEachOther) {
  const auto found = layers("src/gemm/int8/x.cpp", "quant/problem.hpp");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].what, "include \"quant/problem.hpp\" of a sibling: gemm does not know quant");
  EXPECT_EQ(layers("src/quant/x.cpp", "switchback/gemm.hpp").size(), 1u);
  EXPECT_EQ(layers("include/switchback/gemm.hpp", "switchback/quant.hpp").size(), 1u);
  EXPECT_TRUE(layers("include/switchback/gemm.hpp", "switchback/engine_info.hpp").empty());
}

TEST(Structure, OnlyStudiesAndExamplesIncludeStudies) {
  for (const char* path : {"src/linear/x.cpp", "autotune/x.cpp", "bench/report/x.cpp"})
    for (const char* study : {"studies/models/layers.hpp", "studies/transformer/training.hpp"}) {
      const auto found = layers(path, study);
      ASSERT_FALSE(found.empty()) << path << " " << study;
      EXPECT_NE(found.back().what.find(" does not know the studies"), std::string::npos);
    }
  for (const char* path : {"studies/pipeline/x.cpp", "examples/gpt/x.cpp", "tests/studies/x.cpp"})
    EXPECT_TRUE(layers(path, "studies/models/layers.hpp").empty()) << path;
}

TEST(Structure, IncludesThatPointDownOrAcrossTheLayerPass) {
  EXPECT_TRUE(layers("src/gemm/x.cpp", "core/check.hpp").empty());
  EXPECT_TRUE(layers("src/gemm/cpu/x.cpp", "gemm/int8/engine.hpp").empty());
  EXPECT_TRUE(layers("src/linear/x.cpp", "quant/problem.hpp").empty());
  EXPECT_TRUE(layers("src/capi/x.cpp", "switchback/linear.hpp").empty());
  EXPECT_TRUE(layers("bench/x.cpp", "autotune/tuner.hpp").empty());
  EXPECT_TRUE(layers("studies/transformer/x.cpp", "bench/workload/workload.hpp").empty());
  EXPECT_TRUE(layers("studies/transformer/x.cpp", "studies/models/decoder.hpp").empty());
  EXPECT_TRUE(layers("studies/models/x.cpp", "switchback/linear.hpp").empty());
  EXPECT_TRUE(layers("autotune/x.cpp", "measure/data.hpp").empty());
  EXPECT_TRUE(layers("tests/core/x.cpp", "linear/state.hpp").empty());
  EXPECT_TRUE(check_layers("src/core/x.cpp", "// " + include_of + "\"gemm/gemm.hpp\"\n").empty());
  EXPECT_TRUE(
      check_layers("src/core/x.cpp", "/*\n" + include_of + "\"gemm/gemm.hpp\"\n*/").empty());
}

TEST(Structure, AForeignIncludeInAPublicHeaderIsCaught) {
  const std::string path = "include/switchback/gemm.hpp";
  const auto public_include = [&](const std::string& included) {
    return check_public_includes(path, include_of + included + "\n");
  };
  for (const char* foreign :
       {"<cuda_runtime.h>", "<oneapi/dnnl/dnnl.hpp>", "<nlohmann/json.hpp>", "<yaml-cpp/yaml.h>",
        "<fmt/format.h>", "<hwy/highway.h>", "\"core/check.hpp\"", "<omp.h>"})
    EXPECT_EQ(public_include(foreign).size(), 1u) << foreign;
  for (const char* fine : {"<cstdint>", "<string_view>", "<stdint.h>", "\"switchback/types.hpp\""})
    EXPECT_TRUE(public_include(fine).empty()) << fine;
  EXPECT_EQ(check_public_includes("include/switchback/unheard_of.hpp", "").size(), 1u);
}

TEST(Structure, OutputAndExitsInTheLibraryAreCaught) {
  const auto in_library = [](const std::string& line) {
    return check_no_output("src/quant/x.cpp", "\n" + line + "\n").size();
  };
  for (const char* bad : {"std::printf(\"x\");", "fprintf (f, \"x\");", "std::cout << 1;",
                          "std::cerr << 1;", "std::abort();", "if (x) exit(1);",
                          "std::terminate();", "fmt::print(\"x\");", "puts(s);", "f(stderr);"})
    EXPECT_EQ(in_library(bad), 1u) << bad;
  for (const char* fine : {"std::snprintf(b, 2, \"x\");", "// printf(\"x\")",
                           "/* exit(1) */ int x;", "fail(\"call exit(1)\");", "int exit = 1;",
                           "void exit_frame();", "fmt::format(\"{}\", 1);", "frame.exit();"})
    EXPECT_EQ(in_library(fine), 0u) << fine;
  EXPECT_TRUE(check_no_output("bench/main.cpp", "std::printf(\"x\");").empty());
  EXPECT_TRUE(check_no_output("src/core/assert.hpp", "std::abort();").empty());
  EXPECT_EQ(check_no_output("include/switchback/x.hpp", "\n\nstd::abort();")[0].line, 3);
}

TEST(Structure, PathsOutsideOfTheProjectAreCaught) {
  const std::string home = std::string("/ho") + "me/somebody/x";
  EXPECT_EQ(check_no_outside_paths("README.md", "see " + home).size(), 1u);
  EXPECT_EQ(check_no_outside_paths("tools/test", "cd " + std::string("/wo") + "rk/x").size(), 1u);
  const std::string quote = "\"";
  EXPECT_EQ(check_no_outside_paths("src/core/x.cpp", "open(" + quote + "/opt/x/y\")").size(), 1u);
  EXPECT_TRUE(
      check_no_outside_paths("src/core/x.cpp", "open(" + quote + "/proc/cpuinfo\")").empty());
  EXPECT_TRUE(check_no_outside_paths("src/core/x.cpp", "a + " + quote + "/cache/size\"").empty());
  EXPECT_TRUE(check_no_outside_paths("tools/x", "build/ho" + std::string("me/x")).empty());
}

TEST(Structure, CommentsAndStringsAreBlanked) {
  EXPECT_EQ(without_comments("a // b\nc", false), "a     \nc");
  EXPECT_EQ(without_comments("a /* b\n */c", false), "a     \n   c");
  EXPECT_EQ(without_comments("\"a // b\" c", false), "\"      \" c");
  EXPECT_EQ(without_comments("\"a // b\" c // d", true), "\"a // b\" c     ");
  EXPECT_EQ(without_comments("'\"' 1'000 \"\\\"x\" y", false), "' ' 1'000 \"   \" y");
}

}  // namespace
}  // namespace switchback::test
