// SPDX-License-Identifier: Apache-2.0
#include "bench/workload/axis.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <utility>

#include "bench/cli/cli.hpp"
#include "bench/grid/grid.hpp"
#include "bench/workload/command.hpp"
#include "bench/workload/output.hpp"
#include "bench/workload/session.hpp"
#include "core/check.hpp"

namespace switchback::bench {

namespace {

constexpr std::int64_t most = std::int64_t{1} << 40;

std::int64_t parse_value(std::string_view option, std::string_view text) {
  return static_cast<std::int64_t>(parse_integer(option, text, 1, most));
}

void add_range(std::vector<std::int64_t>& values, std::string_view option,
               const std::string& part) {
  const std::vector<std::string> ends = split_list(part, ':');
  if (ends.size() == 1 && part.find(':') == std::string::npos) {
    values.push_back(parse_value(option, ends[0]));
    return;
  }
  core::require(ends.size() == 3 && ends[2].size() >= 2 && (ends[2][0] == '*' || ends[2][0] == '+'),
                "{}: '{}' is neither a number nor a range FROM:TO:*FACTOR or FROM:TO:+STEP", option,
                part);
  const std::int64_t from = parse_value(option, ends[0]), to = parse_value(option, ends[1]),
                     step = parse_value(option, std::string_view(ends[2]).substr(1));
  const bool factor = ends[2][0] == '*';
  core::require(from <= to, "{}: the range {} is empty", option, part);
  core::require(!factor || step >= 2, "{}: '{}': a factor must be at least 2", option, part);
  for (std::int64_t v = from; v <= to; v = factor ? v * step : v + step) {
    values.push_back(v);
    core::require(values.size() <= grid_limits::cases, "{}: more than {} values", option,
                  grid_limits::cases);
  }
}

bool takes_many(const CLI::Option& option) {
  return option.get_items_expected_max() > 1;
}

std::string names_of_axes(const CLI::App& command, const std::vector<std::string>& single) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options())
    if (takes_many(*option) && option->get_name() != "--axis" && option->get_name() != "--shape")
      names.push_back(option->get_name().substr(2));
  names.insert(names.end(), single.begin(), single.end());
  return fmt::format("{}", fmt::join(names, ", "));
}

// The values of an axis "NAME=V,V,…", with ranges expanded into their numbers. All other values are
// passed on as they are, and the option itself accepts or refuses them.
std::vector<std::string> option_values(std::string_view text, const std::string& name) {
  const std::string option = fmt::format("--axis {}", name);
  std::vector<std::string> values;
  for (const std::string& part : split_list(text.substr(text.find('=') + 1))) {
    if (part.find(':') == std::string::npos) {
      values.push_back(part);
      continue;
    }
    std::vector<std::int64_t> range;
    add_range(range, option, part);
    for (const std::int64_t v : range)
      values.push_back(std::to_string(v));
  }
  core::require(!values.empty(), "--axis '{}': it has no value", text);
  return values;
}

std::string axis_name(std::string_view text) {
  const std::size_t equals = text.find('=');
  core::require(equals != std::string_view::npos && equals > 0,
                "--axis '{}': it must be NAME=VALUES, such as m=16:4096:*2", text);
  return std::string(text.substr(0, equals));
}

void give(CLI::Option& option, const std::vector<std::string>& values) {
  for (const std::string& value : values)
    option.add_result(value);
  option.run_callback();
}

}  // namespace

ValueAxis parse_axis(std::string_view text) {
  ValueAxis axis;
  axis.name = axis_name(text);
  const std::string option = fmt::format("--axis {}", axis.name);
  for (const std::string& part : split_list(text.substr(axis.name.size() + 1)))
    add_range(axis.values, option, part);
  core::require(!axis.values.empty(), "--axis '{}': it has no value", text);
  return axis;
}

void add_axis_option(CLI::App& command, std::vector<std::string>& axes,
                     const std::vector<std::string>& single) {
  const bool shapes = command.get_option_no_throw("--shape") != nullptr;
  const std::string names = names_of_axes(command, single);
  if (!shapes && names.empty()) return;
  command
      .add_option("--axis", axes,
                  fmt::format("NAME=V,V,… with numbers and ranges FROM:TO:*FACTOR or "
                              "FROM:TO:+STEP. NAME is {}. If repeated: every combination",
                              shapes ? "m, k or n of the shapes (batch, dim_in, dim_out)"
                                     : "the name of an option: " + names))
      ->type_name("NAME=LIST")
      ->allow_extra_args(false);
}

std::vector<Combination> apply_axes(CLI::App& command, const std::vector<std::string>& axes,
                                    const std::vector<std::string>& single) {
  CLI::Option* const shape = command.get_option_no_throw("--shape");
  std::array<std::vector<std::int64_t>, 3> sides;
  constexpr std::string_view side_names = "mkn";
  bool any_side = false;
  std::vector<std::pair<std::string, std::vector<std::string>>> products;
  for (const std::string& text : axes) {
    const std::string name = axis_name(text);
    const std::size_t side = name.size() == 1 ? side_names.find(name) : std::string_view::npos;
    if (shape != nullptr && side != std::string_view::npos) {
      const ValueAxis axis = parse_axis(text);
      sides[side].insert(sides[side].end(), axis.values.begin(), axis.values.end());
      any_side = true;
      continue;
    }
    CLI::Option* const option = command.get_option_no_throw("--" + name);
    const bool one = std::find(single.begin(), single.end(), name) != single.end();
    if (option == nullptr || (!one && !takes_many(*option)) || option == shape || name == "axis")
      core::fail(Status::invalid_argument, "--axis {}: it is not one of {}{}", name,
                 shape != nullptr ? "m, k, n" : "",
                 shape != nullptr ? "" : names_of_axes(command, single));
    const std::vector<std::string> values = option_values(text, name);
    if (!one) {
      give(*option, values);
      continue;
    }
    core::require(option->count() == 0, "--axis {}: --{} is given too; leave out one of them", name,
                  name);
    const auto known = std::find_if(products.begin(), products.end(),
                                    [&](const auto& p) { return p.first == name; });
    auto& all = known != products.end()
                    ? known->second
                    : products.emplace_back(name, std::vector<std::string>()).second;
    for (const std::string& value : values)
      if (std::find(all.begin(), all.end(), value) == all.end()) all.push_back(value);
  }
  std::vector<Combination> combinations;
  if (!products.empty()) combinations.emplace_back();
  for (const auto& [name, values] : products) {
    core::require(combinations.size() * values.size() <= grid_limits::cases,
                  "--axis: more than {} combinations", grid_limits::cases);
    std::vector<Combination> longer;
    for (const Combination& start : combinations)
      for (const std::string& value : values) {
        longer.push_back(start);
        longer.back().emplace_back(name, value);
      }
    combinations = std::move(longer);
  }
  if (!any_side) return combinations;
  for (std::size_t i = 0; i < sides.size(); ++i)
    core::require(!sides[i].empty(), "--axis: a shape needs m, k and n; {} is missing",
                  side_names.substr(i, 1));
  core::require(sides[0].size() * sides[1].size() * sides[2].size() <= grid_limits::cases,
                "--axis: m, k and n make {} shapes; at most {} are allowed",
                sides[0].size() * sides[1].size() * sides[2].size(), grid_limits::cases);
  std::vector<std::string> shapes;
  for (const std::int64_t m : sides[0])
    for (const std::int64_t k : sides[1])
      for (const std::int64_t n : sides[2])
        shapes.push_back(fmt::format("{},{},{}", m, k, n));
  give(*shape, shapes);
  return combinations;
}

namespace {

// The column for an option: "d_model" for the option "d-model".
std::string column_name(std::string option) {
  std::replace(option.begin(), option.end(), '-', '_');
  return option;
}

std::string suffix_of(const Combination& values) {
  std::string text;
  for (const auto& [name, value] : values)
    text += fmt::format(", {}={}", name, value);
  return text;
}

// An option's value as JSON: "16" is the number 16, and "small" is a text.
Json value_of(const std::string& text) {
  const Json number = Json::parse(text, nullptr, false);
  return number.is_number() ? number : Json(text);
}

// The command's arguments, with the combination's values for the options that it has.
std::vector<std::string> words_of(const CLI::App& command, const Combination& values) {
  std::vector<std::string> words;
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = option->get_name();
    const bool chosen = std::any_of(values.begin(), values.end(),
                                    [&](const auto& v) { return "--" + v.first == name; });
    if (chosen || name == "--axis") continue;
    for (const std::string& result : option->results())
      words.push_back(option->get_items_expected_max() == 0 ? name : name + "=" + result);
  }
  for (const auto& [name, value] : values)
    words.push_back(fmt::format("--{}={}", name, value));
  return words;
}

std::shared_ptr<Workload> with_options(const Workload& like, const CLI::App& command,
                                       const Combination& values) {
  std::shared_ptr<Workload> workload = like.another();
  CLI::App app;
  SessionOptions ignored;
  workload->add_options(app, ignored);
  std::vector<std::string> words = words_of(command, values);
  std::reverse(words.begin(), words.end());
  try {
    app.parse(std::move(words));
  } catch (const CLI::ParseError& error) {
    core::fail(Status::invalid_argument, "--axis{}: {}", suffix_of(values).substr(1), error.what());
  }
  return workload;
}

class Product : public Workload {
 public:
  void add(Combination values, std::shared_ptr<Workload> workload) {
    parts_.push_back({std::move(values), std::move(workload)});
  }

  [[nodiscard]] std::string_view name() const override { return first().name(); }
  [[nodiscard]] std::string_view about() const override { return first().about(); }
  [[nodiscard]] std::string_view cases_noun() const override { return first().cases_noun(); }
  void check_options() override {
    for (const Part& part : parts_)
      part.workload->check_options();
  }
  // The columns of the records. An option of --axis that is not a column yet becomes one, and all
  // of these columns are shown.
  [[nodiscard]] std::vector<Column> columns() const override {
    std::vector<Column> base = first().columns(), all;
    for (const auto& [option, value] : parts_.front().values) {
      const std::string column = column_name(option);
      const auto known =
          std::find_if(base.begin(), base.end(), [&](const Column& c) { return c.name == column; });
      if (known != base.end())
        known->in_table = true;
      else
        all.push_back({.name = column,
                       .meaning = "value of --axis",
                       .is_text = !value_of(value).is_number()});
    }
    all.insert(all.end(), base.begin(), base.end());
    return all;
  }
  [[nodiscard]] RecordFormat format() const override {
    RecordFormat format = Workload::format();
    format.most_bytes = first().format().most_bytes;
    return format;
  }
  void open(Session& session) override {
    for (const Part& part : parts_)
      part.workload->open(session);
  }
  std::vector<CasePlan> plan(Session& session) override {
    places_.clear();
    std::vector<CasePlan> all;
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      std::vector<CasePlan> plans = parts_[p].workload->plan(session);
      for (std::size_t i = 0; i < plans.size(); ++i) {
        plans[i].id += suffix_of(parts_[p].values);
        places_.emplace_back(p, i);
        all.push_back(std::move(plans[i]));
      }
    }
    return all;
  }
  // The settings of the run. A setting that --axis varies is given as the list of all its values.
  [[nodiscard]] Json setting() const override {
    Json all = first().setting();
    for (auto& [key, value] : all.items())
      for (const auto& [option, first_value] : parts_.front().values)
        if (column_name(option) == key) value = values_of(option);
    return all;
  }
  void describe_run(Session& session, Json& line) const override {
    first().describe_run(session, line);
    for (const auto& [option, value] : parts_.front().values)
      line["axes"][option] = values_of(option);
  }
  void take_existing(const std::vector<std::string>& records,
                     const std::vector<std::string>& run_lines, const Sink& show) override {
    const std::vector<Column> all = columns();
    for (const std::string& line : records)
      show({line, cells_of(all, Json::parse(line)), {}});
    for (const Part& part : parts_) {
      std::vector<std::string> own;
      for (const std::string& line : records)
        if (text_at(Json::parse(line), "case").ends_with(suffix_of(part.values)))
          own.push_back(line);
      part.workload->take_existing(own, run_lines, [](Row) {});
    }
  }
  CaseOutcome measure(Session& session, std::size_t i, const Sink& sink) override {
    const auto& [p, own] = places_[i];
    return parts_[p].workload->measure(session, own, renamed(p, sink));
  }
  void skip(std::size_t i, double available_bytes, const Sink& sink) override {
    const auto& [p, own] = places_[i];
    parts_[p].workload->skip(own, available_bytes, renamed(p, sink));
  }
  void describe_case(std::size_t i, bool measured, Json& line) const override {
    const auto& [p, own] = places_[i];
    parts_[p].workload->describe_case(own, measured, line);
  }
  void print_more(Session& session, std::FILE* to) const override {
    for (const Part& part : parts_)
      part.workload->print_more(session, to);
  }

 private:
  struct Part {
    Combination values;
    std::shared_ptr<Workload> workload;
  };

  [[nodiscard]] const Workload& first() const { return *parts_.front().workload; }

  [[nodiscard]] Json values_of(const std::string& option) const {
    Json all = Json::array();
    for (const Part& part : parts_)
      for (const auto& [name, text] : part.values)
        if (const Json value = value_of(text);
            name == option && std::find(all.begin(), all.end(), value) == all.end())
          all.push_back(value);
    return all;
  }

  // Makes a sink for the workload of one combination of axis values. It adds the values to each row
  // and passes the row on.
  [[nodiscard]] Sink renamed(std::size_t p, const Sink& sink) {
    return [this, p, &sink](Row row) {
      Json values = Json::parse(row.line);
      const std::string id = text_at(values, "case") + suffix_of(parts_[p].values);
      values.erase("workload");
      values.erase("case");
      for (const auto& [option, value] : parts_[p].values)
        if (!values.contains(column_name(option))) values[column_name(option)] = value_of(value);
      Row whole = this->row(id, values);
      whole.summary = std::move(row.summary);
      whole.samples = std::move(row.samples);
      sink(std::move(whole));
    };
  }

  std::vector<Part> parts_;
  /// For each case: the index of its combination's workload, and the case's index there.
  std::vector<std::pair<std::size_t, std::size_t>> places_;
};

}  // namespace

std::vector<std::string> single_options(const CLI::App& command) {
  CLI::App shared;
  SessionOptions ignored;
  add_session_options(shared, ignored);
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = option->get_name();
    if (option->get_items_expected_max() == 1 && shared.get_option_no_throw(name) == nullptr)
      names.push_back(name.substr(2));
  }
  return names;
}

std::shared_ptr<Workload> make_product(const Workload& like, const CLI::App& command,
                                       const std::vector<Combination>& combinations) {
  const auto product = std::make_shared<Product>();
  for (const Combination& values : combinations)
    product->add(values, with_options(like, command, values));
  return product;
}

}  // namespace switchback::bench
