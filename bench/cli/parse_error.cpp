// SPDX-License-Identifier: Apache-2.0
#include "bench/cli/cli.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <numeric>

namespace switchback::bench {

namespace {

// The edit distance of two words: how many letters to insert, delete or replace.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t changed = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({row[j] + 1, row[j + 1] + 1, changed});
    }
  }
  return row.back();
}

std::string joined(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, ", "));
}

// The innermost subcommand that was being parsed when the error occurred.
const CLI::App& innermost(const CLI::App& app) {
  const std::vector<CLI::App*> parsed = app.get_subcommands();
  return parsed.empty() ? app : innermost(*parsed.front());
}

// The full name of a subcommand: "run", "cache list"; empty for the program itself.
std::string name_of(const CLI::App& app) {
  const CLI::App* parent = app.get_parent();
  if (parent == nullptr) return {};
  const std::string above = name_of(*parent);
  return above.empty() ? app.get_name() : above + " " + app.get_name();
}

std::vector<std::string> commands_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App* sub) {
         return !sub->get_group().empty();  // hidden subcommands have no group
       }))
    names.push_back(command->get_name());
  return names;
}

std::vector<std::string> options_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    if (option->nonpositional() && !option->get_group().empty())
      names.push_back(option->get_name());
  return names;
}

std::string see_help(const CLI::App& app) {
  const std::string name = name_of(app);
  return fmt::format("see 'switchback-bench {}{}--help'", name, name.empty() ? "" : " ");
}

std::string unknown_word(const CLI::App& app, const std::string& typed) {
  const bool is_option = typed.size() > 1 && typed.front() == '-';
  const std::string word = is_option ? typed.substr(0, typed.find('=')) : typed;
  const std::vector<std::string> commands = commands_of(app);
  const std::string name = name_of(app);
  const std::string where = name.empty() ? "" : " of '" + name + "'";
  if (!is_option && commands.empty())
    return fmt::format("unexpected argument '{}' of '{}'; {}", word, name, see_help(app));
  const std::vector<std::string> known = is_option ? options_of(app) : commands;
  const std::string_view kind = is_option ? "option" : "subcommand";
  const std::string meant = nearest(word, known);
  return fmt::format(
      "unknown {} '{}'{}; {}{}", kind, word, where,
      meant.empty() ? "" : "did you mean '" + meant + "'? ",
      meant.empty() ? fmt::format("the {}s are {}", kind, joined(known)) : see_help(app));
}

// Finds the option whose name begins a CLI11 error message; null if there is none.
const CLI::Option* option_named(const CLI::App& app, const std::string& name) {
  for (const CLI::Option* option : app.get_options())
    if (option->check_name(name)) return option;
  return nullptr;
}

}  // namespace

std::string nearest(std::string_view word, const std::vector<std::string>& known) {
  // A known word is similar if at most a third of the letters must change.
  const std::size_t allowed = std::max<std::size_t>(word.size() / 3, 1);
  const std::string* best = nullptr;
  std::size_t least = allowed + 1;
  for (const std::string& candidate : known)
    if (const std::size_t d = distance(word, candidate); d < least) {
      least = d;
      best = &candidate;
    }
  return best == nullptr ? "" : *best;
}

std::string parse_error_text(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& command = innermost(app);
  const std::string what = error.what();
  if (const std::vector<std::string> rest = command.remaining(); !rest.empty())
    return unknown_word(command, rest.front());
  // CLI11 passes a word that a subcommand does not know up to the program.
  if (const std::vector<std::string> rest = app.remaining(true); !rest.empty())
    return unknown_word(command, rest.front());
  const std::string kind = error.get_name();
  if (kind == "RequiredError" && !commands_of(command).empty())
    return fmt::format("give a subcommand{}: {}",
                       name_of(command).empty() ? "" : " of '" + name_of(command) + "'",
                       joined(commands_of(command)));
  if (kind == "ArgumentMismatch") {
    const CLI::Option* option = option_named(command, what.substr(0, what.find(':')));
    if (option != nullptr)
      return option->get_type_size() == 0 || option->get_items_expected_max() == 0
                 ? fmt::format("{}: it takes no value", option->get_name())
                 : fmt::format("{}: it takes one value, {}, and may be given only once; {}",
                               option->get_name(), option->get_type_name(), see_help(command));
  }
  if (kind == "ConversionError") {
    // CLI11's message reads "Could not convert: NAME = VALUE", or "NAME = VALUE …".
    constexpr std::string_view start = "Could not convert: ";
    const std::string typed = what.starts_with(start) ? what.substr(start.size()) : what;
    const std::size_t equals = typed.find(" = ");
    const CLI::Option* option = option_named(command, typed.substr(0, equals));
    if (option != nullptr && equals != std::string::npos)
      return fmt::format("{} '{}': it must be a number ({}: {})", option->get_name(),
                         typed.substr(equals + 3), option->get_type_name(),
                         option->get_description());
  }
  return fmt::format("{}; {}", what, see_help(command));
}

}  // namespace switchback::bench
