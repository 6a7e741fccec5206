// SPDX-License-Identifier: Apache-2.0
#include "bench/workload/product.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <utility>

#include "bench/workload/command.hpp"
#include "bench/workload/output.hpp"
#include "bench/workload/session.hpp"
#include "core/check.hpp"

namespace switchback::bench {

namespace {

// "d-model" is the column "d_model".
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

// "16" is the number 16, "small" a word.
Json value_of(const std::string& text) {
  const Json number = Json::parse(text, nullptr, false);
  return number.is_number() ? number : Json(text);
}

// What the command was given, but for the options that the combination is of.
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
  // Options that are no columns yet become some, and all of them are shown.
  [[nodiscard]] std::vector<Column> columns() const override {
    std::vector<Column> base = first().columns(), all;
    for (const auto& [option, value] : parts_.front().values) {
      const std::string column = column_name(option);
      const auto known =
          std::find_if(base.begin(), base.end(), [&](const Column& c) { return c.name == column; });
      if (known != base.end())
        known->in_table = true;
      else
        all.push_back(
            {.name = column, .meaning = "of --axis", .is_text = !value_of(value).is_number()});
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
  // What the parts differ in is given with all its values.
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

  // The rows of a part as those of the whole.
  [[nodiscard]] Sink renamed(std::size_t p, const Sink& sink) {
    return [this, p, &sink, all = columns()](Row row) {
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
  std::vector<std::pair<std::size_t, std::size_t>> places_;  ///< of cases: part, and its case
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
