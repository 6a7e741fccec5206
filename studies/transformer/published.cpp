// SPDX-License-Identifier: Apache-2.0
#include "studies/transformer/published.hpp"

#include <fmt/format.h>

#include "bench/cli/cli.hpp"
#include "bench/cli/table.hpp"
#include "studies/published/published.hpp"

namespace switchback::bench::transformer {

namespace {

double value_of(const PublishedTable& table, std::size_t row, std::string_view column) {
  return table.number(row, column).value();
}

// Our last record of this size in the published setting. With `warmup`, its times leave out the
// warm-up steps (phase timed); else they include them (phase all). Null if there is no such record.
const Json* record_of(std::span<const Json> records, std::string_view size, bool warmup) {
  const Json* found = nullptr;
  for (const Json& record : records)
    if (record["size"] == size && record["mode"] == mode_name(Mode::standard) &&
        record["phase"] == (warmup ? "timed" : "all") && !record["forward"].is_null() &&
        record["dtype"] == dtype_name(DType::f32) && record["batch"] == published_batch &&
        !record["checks"].is_null())
      found = &record;
  return found;
}

double mean_of(const Json& record, Pass pass) {
  const Json& times = record[std::string(pass_name(pass))];
  return times.is_null() ? 0.0 : times["mean"].get<double>();
}

std::string sizes_table(std::span<const Json> records, const Setting& like,
                        const std::vector<Mode>& modes) {
  Table table({"size", "d_model", "d_ff", "layers", "heads", "published parameters [M]", "ours [M]",
               "memory here", ""},
              {""});
  for (const Size& size : sizes()) {
    Setting s = like;
    s.size = size;
    const bool measured = record_of(records, size.name, true) != nullptr;
    table.add(
        {size.name, std::to_string(size.width), std::to_string(size.hidden),
         std::to_string(size.layers), std::to_string(size.heads),
         fmt::format("{}", size.published_params),
         fmt::format("{:.1f}", static_cast<double>(s.decoder(Mode::standard).parameters()) / 1e6),
         format_bytes(static_cast<double>(bytes_wanted(s, modes).total())),
         measured ? "timed" : "not timed"});
  }
  return table.text();
}

std::string times_table(std::span<const Json> records) {
  Table table({"size", "pass", "warm-up", "published min", "max", "mean", "std", "ours: min", "max",
               "mean", "std"},
              {"pass"});
  for (const Published& p : published_times()) {
    std::vector<std::string> cells = {std::string(p.size),  std::string(pass_name(p.pass)),
                                      p.warmup ? "1" : "0", number(p.min_ms),
                                      number(p.max_ms),     number(p.mean_ms),
                                      number(p.std_ms)};
    const Json* const record = record_of(records, p.size, p.warmup);
    const Json times = record == nullptr ? Json() : (*record)[std::string(pass_name(p.pass))];
    for (const char* key : {"min", "max", "mean", "std"})
      cells.push_back(times.is_null() ? "-" : number(times[key].get<double>()));
    table.add(std::move(cells));
  }
  return table.text();
}

std::string ratios_text(std::span<const Json> records) {
  std::string text = "backward / forward with warm-up:";
  for (const Size& size : sizes()) {
    const Published* const forward = published(size.name, Pass::forward, true);
    const Published* const backward = published(size.name, Pass::backward, true);
    if (forward == nullptr || backward == nullptr) continue;
    text += fmt::format(" {} published {:.2f}", size.name, backward->mean_ms / forward->mean_ms);
    const Json* const record = record_of(records, size.name, true);
    if (record != nullptr && mean_of(*record, Pass::backward) > 0)
      text += fmt::format(", ours {:.2f}",
                          mean_of(*record, Pass::backward) / mean_of(*record, Pass::forward));
    text += ";";
  }
  text.back() = '\n';
  return text;
}

std::string attention_text(std::span<const Json> records) {
  const PublishedTable table("transformer_attention");
  double softmax_us = 0, products_us = 0;
  for (std::size_t row = 0; row < table.rows(); ++row)
    (table.text(row, "part") == "softmax" ? softmax_us : products_us) =
        value_of(table, row, "time_us");
  std::string text = fmt::format(
      "attention, softmax / products of a forward: published {:.2f} ({} and {} us, size not "
      "stated)",
      softmax_us / products_us, softmax_us, products_us);
  for (const Size& size : sizes()) {
    const Json* const record = record_of(records, size.name, true);
    if (record == nullptr || (*record)["attention"].is_null()) continue;
    const Json& attention = (*record)["attention"];
    const double softmax = attention["softmax_ms"].get<double>();
    const double products = attention["products_ms"].get<double>();
    text += fmt::format("; {}, all layers: ours {:.2f} ({} and {} ms)", size.name,
                        softmax / products, number(softmax), number(products));
  }
  return text + "\n";
}

}  // namespace

const std::vector<Published>& published_times() {
  static const std::vector<Published> all = [] {
    const PublishedTable table("transformer_warmup");
    std::vector<Published> rows;
    for (std::size_t row = 0; row < table.rows(); ++row)
      rows.push_back({.size = table.text(row, "size"),
                      .pass = parse_pass(std::string(table.text(row, "pass"))),
                      .warmup = value_of(table, row, "warmup") > 0,
                      .min_ms = 1e3 * value_of(table, row, "min_s"),
                      .max_ms = 1e3 * value_of(table, row, "max_s"),
                      .mean_ms = 1e3 * value_of(table, row, "avg_s"),
                      .std_ms = 1e3 * value_of(table, row, "std_s")});
    return rows;
  }();
  return all;
}

const Published* published(std::string_view size, Pass pass, bool warmup) {
  for (const Published& p : published_times())
    if (p.size == size && p.pass == pass && p.warmup == warmup) return &p;
  return nullptr;
}

std::string tables_of_published(std::span<const Json> records, const Setting& like,
                                const std::vector<Mode>& modes) {
  return "Published sizes (data/reference/transformer_sizes.csv), and the memory that this pass "
         "needs in these modes:\n" +
         sizes_table(records, like, modes) +
         "\n"
         "Published times (data/reference/transformer_warmup.csv; a GPU) and ours in mode "
         "standard, in ms. Without\n"
         "warm-up, the first steps are included:\n" +
         times_table(records) + ratios_text(records) + attention_text(records);
}

}  // namespace switchback::bench::transformer
