// SPDX-License-Identifier: Apache-2.0
// Checks that the links in the project's documents point to files and headings that exist.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace switchback::test {
namespace {

namespace fs = std::filesystem;

struct Link {
  int line = 0;
  std::string target;
};

bool is_fence(std::string_view line) {
  return line.starts_with("```");
}

// The targets of links "[text](target)" in a Markdown text, except in fenced code and to the
// network.
std::vector<Link> links_of(const std::string& markdown) {
  static const std::regex link(R"(\]\(([^)]*)\))");
  std::vector<Link> links;
  std::istringstream stream(markdown);
  std::string line;
  bool code = false;
  for (int number = 1; std::getline(stream, line); ++number) {
    if (is_fence(line)) code = !code;
    if (code) continue;
    for (std::sregex_iterator at(line.begin(), line.end(), link), end; at != end; ++at)
      if (at->str(1).find("://") == std::string::npos) links.push_back({number, at->str(1)});
  }
  return links;
}

// The anchors of a document's headings, as Markdown makes them: lower case, dashes for spaces, no
// punctuation.
std::vector<std::string> anchors_of(const std::string& markdown) {
  std::vector<std::string> anchors;
  std::istringstream stream(markdown);
  std::string line;
  bool code = false;
  while (std::getline(stream, line)) {
    if (is_fence(line)) code = !code;
    if (code || !line.starts_with('#')) continue;
    std::string anchor;
    for (const char c : line.substr(std::min(line.find_first_not_of("# "), line.size()))) {
      const auto letter = static_cast<unsigned char>(c);
      if (std::isalnum(letter) != 0 || c == '-' || c == '_')
        anchor += static_cast<char>(std::tolower(letter));
      else if (c == ' ')
        anchor += '-';
    }
    anchors.push_back(anchor);
  }
  return anchors;
}

std::string text_of(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

// The error message for a link in `document`; empty if the link's target exists.
std::string broken(const fs::path& document, const std::string& target) {
  const std::size_t hash = std::min(target.find('#'), target.size());
  const std::string path = target.substr(0, hash);
  const fs::path file = path.empty() ? document : document.parent_path() / path;
  if (!fs::exists(file)) return "there is no " + path;
  if (hash == target.size()) return {};
  const std::vector<std::string> anchors = anchors_of(text_of(file));
  const std::string wanted = target.substr(hash + 1);
  const bool found = std::find(anchors.begin(), anchors.end(), wanted) != anchors.end();
  return found ? std::string() : "no heading '" + wanted + "' in " + file.filename().string();
}

TEST(Links, EveryLinkOfADocumentLeadsSomewhere) {
  const fs::path root = SWITCHBACK_SOURCE_DIR;
  std::vector<fs::path> documents = {root / "python" / "README.md"};
  for (const fs::path& folder : {root, root / "docs"})
    for (const auto& entry : fs::directory_iterator(folder))
      if (entry.path().extension() == ".md") documents.push_back(entry.path());
  for (const auto& entry : fs::recursive_directory_iterator(root / "data"))
    if (entry.path().extension() == ".md") documents.push_back(entry.path());
  int links = 0;
  for (const fs::path& document : documents)
    for (const Link& link : links_of(text_of(document))) {
      ++links;
      EXPECT_EQ(broken(document, link.target), "") << document << ":" << link.line;
    }
  EXPECT_GT(links, 30) << "the documents were not found below " << root;
}

}  // namespace
}  // namespace switchback::test
