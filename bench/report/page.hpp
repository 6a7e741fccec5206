// SPDX-License-Identifier: Apache-2.0
// Bench: the parts of an HTML page, and tables as Markdown and CSV. All text is escaped.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace switchback::bench {

/// An HTML page without scripts, which loads nothing from elsewhere. It can be printed.
std::string html_page(const std::string& title, const std::string& body);
/// An HTML paragraph; empty for an empty text. `of_class`: the class attribute, such as "
/// class=\"doubt\"".
std::string html_paragraph(const std::string& text, const char* of_class = "");
/// An HTML figure with a caption; empty without a picture.
std::string html_figure(const std::string& svg, const std::string& caption);
std::string html_table(const std::vector<std::string>& header,
                       const std::vector<std::vector<std::string>>& rows,
                       const char* of_class = "");
/// An HTML table of the machine and the program, from the first line of a run in a run file. Empty
/// if the line has no such members. `dtype` may be empty.
std::string html_machine_table(const nlohmann::ordered_json& start, const std::string& dtype);

/// A table in Markdown, as GitHub displays it.
std::string pipe_table(const std::vector<std::string>& header,
                       const std::vector<std::vector<std::string>>& rows);
/// A value as a CSV field (RFC 4180); empty for null.
std::string csv_field(const nlohmann::ordered_json& value);

}  // namespace switchback::bench
