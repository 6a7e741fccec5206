// SPDX-License-Identifier: Apache-2.0
// Bench: messages for wrong command lines. They say what the user typed, where, and what is
// expected there.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace switchback::bench {

/// The message for a command line that CLI11 cannot parse. It names the unknown word with the
/// nearest known one (or with all of them), the option that lacks a value, or the value that an
/// option refuses.
std::string parse_error_text(const CLI::App& app, const CLI::ParseError& error);

/// The known word that `word` is most likely meant to be; empty if no word is similar.
std::string nearest(std::string_view word, const std::vector<std::string>& known);

}  // namespace switchback::bench
