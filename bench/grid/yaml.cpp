// SPDX-License-Identifier: Apache-2.0
#include "bench/grid/yaml.hpp"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <sstream>

#include "bench/cli/table.hpp"
#include "bench/grid/grid.hpp"

namespace switchback::bench::yaml {

namespace {

/// Builds the tree of a YAML text from the parser's events, and stops as soon as a limit is
/// exceeded. Aliases are never expanded, so the tree cannot be larger than the text.
class Builder : public YAML::EventHandler {
 public:
  explicit Builder(std::string_view file_name) : file_name_(file_name) {}

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (documents_++ > 0) fail(mark, "a second document; a grid file must have only one");
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    no_anchor(mark, anchor);
    add(mark, Kind::null);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    fail(mark, "an alias; a grid file must not have aliases");
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    no_anchor(mark, anchor);
    no_tag(mark, tag);
    if (expects_key()) {
      set_key(mark, value);
      return;
    }
    Node& node = add(mark, Kind::scalar);
    node.text = value;
    node.quoted = tag == "!";
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, Kind::list);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, Kind::map);
  }
  void OnMapEnd() override { close(); }

  Node take() {
    if (!have_root_) fail_at(file_name_, 1, 1, "the file is empty; it must be a map");
    return std::move(root_);
  }

 private:
  [[noreturn]] void fail(const YAML::Mark& mark, const std::string& message) const {
    fail_at(file_name_, mark.line + 1, mark.column + 1, message);
  }
  void no_anchor(const YAML::Mark& mark, YAML::anchor_t anchor) const {
    if (anchor != YAML::NullAnchor) fail(mark, "an anchor; a grid file must not have anchors");
  }
  void no_tag(const YAML::Mark& mark, const std::string& tag) const {
    if (!tag.empty() && tag != "?" && tag != "!")
      fail(mark, fmt::format("the tag '{}'; a grid file must not have tags", tag));
  }
  [[nodiscard]] bool expects_key() const {
    return !path_.empty() && path_.back()->kind == Kind::map &&
           path_.back()->keys.size() == path_.back()->items.size();
  }
  void set_key(const YAML::Mark& mark, const std::string& key) {
    Node& map = *path_.back();
    const auto same = std::find(map.keys.begin(), map.keys.end(), key);
    if (same != map.keys.end())
      fail(mark, fmt::format("'{}' occurs again (first in line {})", key,
                             map.key_lines[static_cast<std::size_t>(same - map.keys.begin())]));
    // The number of keys in a map is limited, because each new key is compared with all previous
    // ones. A map of a grid has only a few keys.
    if (map.keys.size() >= 64) fail(mark, "more than 64 keys in one map");
    map.keys.push_back(key);
    map.key_lines.push_back(mark.line + 1);
    map.key_columns.push_back(mark.column + 1);
  }
  Node& add(const YAML::Mark& mark, Kind kind) {
    if (expects_key()) fail(mark, "the key is not plain text");
    if (++nodes_ > grid_limits::nodes)
      fail(mark, fmt::format("more than {} values in one file", grid_limits::nodes));
    Node node;
    node.kind = kind;
    node.line = mark.line + 1;
    node.column = mark.column + 1;
    if (path_.empty()) {
      root_ = std::move(node);
      have_root_ = true;
      return root_;
    }
    // Pointers to nodes that are still being built stay valid: a parent's list grows only while
    // none of its items is being built.
    path_.back()->items.push_back(std::move(node));
    return path_.back()->items.back();
  }
  void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, Kind kind) {
    no_anchor(mark, anchor);
    no_tag(mark, tag);
    if (static_cast<int>(path_.size()) >= grid_limits::depth)
      fail(mark, fmt::format("nested deeper than {} levels", grid_limits::depth));
    path_.push_back(&add(mark, kind));
  }
  void close() {
    if (!path_.empty()) path_.pop_back();
  }

  std::string file_name_;
  Node root_;
  bool have_root_ = false;
  std::size_t nodes_ = 0;
  int documents_ = 0;
  std::vector<Node*> path_;
};

/// Refuses everything but UTF-8 text without control characters, so that the YAML library only ever
/// gets text.
void check_text(std::string_view text, std::string_view file_name) {
  if (text.size() > grid_limits::file_bytes)
    fail_at(file_name, 1, 1,
            fmt::format("{} bytes; a grid file must have at most {}", text.size(),
                        grid_limits::file_bytes));
  int line = 1;
  int column = 1;
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    std::size_t length = 1;
    if (byte >= 0xC2 && byte < 0xE0) length = 2;
    if (byte >= 0xE0 && byte < 0xF0) length = 3;
    if (byte >= 0xF0 && byte < 0xF5) length = 4;
    bool valid = byte < 0x80 ? byte >= 0x20 || byte == '\n' || byte == '\r' || byte == '\t'
                             : length > 1 && i + length <= text.size();
    if (byte == 0x7F) valid = false;
    for (std::size_t j = 1; valid && j < length; ++j)
      valid = (static_cast<unsigned char>(text[i + j]) & 0xC0) == 0x80;
    // The byte order mark is refused. It is the only multi-byte character with a special meaning.
    if (valid && length == 3 && text.substr(i, 3) == "\xEF\xBB\xBF") valid = false;
    if (!valid)
      fail_at(file_name, line, column,
              fmt::format("the byte 0x{:02X}; a grid file must be UTF-8 text without control "
                          "characters or byte order mark",
                          byte));
    if (byte == '\n') {
      ++line;
      column = 1;
    } else {
      ++column;
    }
    i += length;
  }
}

}  // namespace

void fail_at(std::string_view file_name, int line, int column, const std::string& message) {
  throw Error(Status::invalid_argument,
              printable(fmt::format("{}:{}:{}: {}", file_name, line, column, message)));
}

Node parse(std::string_view text, std::string_view file_name) {
  check_text(text, file_name);
  Builder builder(file_name);
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& error) {
    fail_at(file_name, std::max(error.mark.line, 0) + 1, std::max(error.mark.column, 0) + 1,
            "not YAML: " + error.msg);
  }
  return builder.take();
}

}  // namespace switchback::bench::yaml
