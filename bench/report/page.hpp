// SPDX-License-Identifier: Apache-2.0
// Bench: the parts of an HTML page, and the text of tables for other programs. All text is escaped.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace switchback::bench {

/// A page without scripts, which loads nothing from elsewhere. It can be printed.
std::string html_page(const std::string& title, const std::string& body);
/// Empty for an empty text. `of_class`: the attribute, such as " class=\"doubt\"".
std::string html_paragraph(const std::string& text, const char* of_class = "");
/// Empty without a picture.
std::string html_figure(const std::string& svg, const std::string& caption);
std::string html_table(const std::vector<std::string>& header,
                       const std::vector<std::vector<std::string>>& rows,
                       const char* of_class = "");
/// The members of a run file's first line about machine and program. Empty if it has none. `dtype`
/// may be empty.
std::string html_machine_table(const nlohmann::ordered_json& start, const std::string& dtype);

/// A Markdown table as on GitHub.
std::string pipe_table(const std::vector<std::string>& header,
                       const std::vector<std::vector<std::string>>& rows);
/// A value as a field of RFC 4180; empty for null.
std::string csv_field(const nlohmann::ordered_json& value);

}  // namespace switchback::bench
