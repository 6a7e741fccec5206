// SPDX-License-Identifier: Apache-2.0
// Bench: messages for wrong command lines: what was typed, where, and what is expected there.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace switchback::bench {

/// The message for an error of parsing: the unknown word with the nearest known one or all of them,
/// the option without its value, the value an option does not take.
std::string parse_error_text(const CLI::App& app, const CLI::ParseError& error);

/// The known word that `word` is most likely meant to be; empty if none is similar.
std::string nearest(std::string_view word, const std::vector<std::string>& known);

}  // namespace switchback::bench
