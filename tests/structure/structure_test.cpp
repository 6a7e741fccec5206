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

// Planted violations are put together from pieces, so that this file does not have them itself.
std::string include_of(const std::string& name) {
  return std::string("#include ") + name + "\n";
}
const std::string quote = "\"";

TEST(Structure, ForbiddenIncludesAreCaught) {
  struct Case {
    const char* path;
    const char* included;
    const char* what;  // part of the complaint
  };
  for (const auto& [path, included, what] :
       {Case{"src/core/x.cpp", "gemm/gemm.hpp", "points up: core is below gemm"},
        {"src/linear/x.cpp", "measure/data.hpp", "points up: linear is below measure"},
        {"src/linear/x.cpp", "quant/trial.hpp", "points up: linear is below autotune"},
        {"src/linear/x.cpp", "switchback/switchback.h", "points up: linear is below capi"},
        {"studies/models/x.cpp", "bench/grid/grid.hpp", "points up: models is below bench"},
        {"include/switchback/types.hpp", "switchback/quant.hpp", "points up: core is below quant"},
        {"src/core/x.cpp", "../gemm/gemm.hpp", "climbs with .."},
        {"src/gemm/int8/x.cpp", "quant/problem.hpp", "of a sibling: gemm does not know quant"},
        {"src/quant/x.cpp", "switchback/gemm.hpp", "of a sibling: quant does not know gemm"},
        {"src/core/x.cpp", "tests/support/matrix.hpp", "is of the tests"},
        {"bench/x.cpp", "studies/models/layers.hpp", "does not know the studies"},
        {"include/switchback/gemm.hpp", "core/check.hpp",
         "a public header includes switchback/"}}) {
    const auto found = check_file(path, "// c\n" + include_of(quote + included + quote));
    ASSERT_FALSE(found.empty()) << path << " " << included;
    EXPECT_EQ(found.back().line, 2);
    EXPECT_NE(found.back().what.find(what), std::string::npos) << found.back().what;
  }
  for (const char* foreign : {"<cuda_runtime.h>", "<fmt/format.h>", "<omp.h>"})
    EXPECT_EQ(check_file("include/switchback/gemm.hpp", include_of(foreign)).size(), 1u) << foreign;
  EXPECT_EQ(check_file("include/switchback/unheard_of.hpp", "").size(), 1u);
}

TEST(Structure, OtherIncludesPass) {
  const std::pair<const char*, const char*> includes[] = {
      {"src/gemm/cpu/x.cpp", "gemm/int8/engine.hpp"},
      {"src/linear/x.cpp", "quant/problem.hpp"},
      {"src/capi/x.cpp", "switchback/linear.hpp"},
      {"include/switchback/gemm.hpp", "switchback/engine_info.hpp"},
      {"studies/transformer/x.cpp", "bench/workload/workload.hpp"},
      {"studies/models/x.cpp", "switchback/linear.hpp"},
      {"examples/gpt/x.cpp", "studies/models/layers.hpp"},
      {"tests/core/x.cpp", "linear/state.hpp"}};
  for (const auto& [path, included] : includes)
    EXPECT_TRUE(check_file(path, include_of(quote + included + quote)).empty())
        << path << " " << included;
  for (const char* standard : {"<cstdint>", "<string_view>", "<stdint.h>"})
    EXPECT_TRUE(check_file("include/switchback/gemm.hpp", include_of(standard)).empty());
  for (const char* open : {"// ", "/*\n"})
    EXPECT_TRUE(check_file("src/core/x.cpp", open + include_of("\"gemm/x.hpp\"") + "*/").empty());
}

TEST(Structure, OutputAndExitsInTheLibraryAreCaught) {
  for (const char* bad :
       {"std::printf(\"x\");", "fprintf (f, \"x\");", "std::cout << 1;", "std::abort();",
        "if (x) exit(1);", "std::terminate();", "fmt::print(\"x\");", "puts(s);", "f(stderr);"})
    EXPECT_EQ(check_file("src/quant/x.cpp", bad).size(), 1u) << bad;
  for (const char* fine :
       {"std::snprintf(b, 2, \"x\");", "// printf(\"x\")", "fail(\"call exit(1)\");",
        "int exit = 1;", "void exit_frame();", "fmt::format(\"{}\", 1);", "frame.exit();"})
    EXPECT_TRUE(check_file("src/quant/x.cpp", fine).empty()) << fine;
  EXPECT_TRUE(check_file("bench/main.cpp", "std::printf(\"x\");").empty());
  EXPECT_TRUE(check_file("src/core/assert.hpp", "std::abort();").empty());
}

TEST(Structure, PathsOutsideOfTheProjectAreCaught) {
  const std::string home = std::string("/ho") + "me/somebody/x";
  for (const auto& [path, bad] : {std::pair("README.md", "see " + home),
                                  {"tools/test", "cd " + std::string("/wo") + "rk/x"},
                                  {"src/core/x.cpp", "open(" + quote + "/opt/x/y\")"}})
    EXPECT_EQ(check_file(path, bad).size(), 1u) << bad;
  for (const auto& [path, fine] : {std::pair("tools/x", "build/ho" + std::string("me/x")),
                                   {"src/core/x.cpp", "open(" + quote + "/proc/cpuinfo\")"},
                                   {"src/core/x.cpp", "a + " + quote + "/cache/size\""}})
    EXPECT_TRUE(check_file(path, fine).empty()) << fine;
}

TEST(Structure, CommentsAndStringsAreBlanked) {
  EXPECT_EQ(without_comments("a // b\nc", false), "a     \nc");
  EXPECT_EQ(without_comments("a /* b\n */c", false), "a     \n   c");
  EXPECT_EQ(without_comments("\"a // b\" c // d", false), "\"      \" c     ");
  EXPECT_EQ(without_comments("\"a // b\" c // d", true), "\"a // b\" c     ");
  EXPECT_EQ(without_comments("'\"' 1'000 \"\\\"x\" y", false), "' ' 1'000 \"   \" y");
}

}  // namespace
}  // namespace switchback::test
