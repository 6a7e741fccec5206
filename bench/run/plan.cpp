// SPDX-License-Identifier: Apache-2.0
#include "bench/run/plan.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <set>
#include <variant>

#include "bench/cli/cli.hpp"
#include "bench/grid/filter.hpp"
#include "bench/run/operands.hpp"
#include "core/check.hpp"

namespace switchback::bench {

Rates rates_from(const Ceilings& ceilings) noexcept {
  Rates rates;
  // The factors are the shares of the limits that large products and quantize passes reach. Small
  // ones reach less; call_s, the fixed cost of a call, accounts for that.
  if (ceilings.f32_tflops > 0) rates.standard_ops_s = 0.75 * ceilings.f32_tflops * 1e12;
  if (ceilings.s8_tops > 0) rates.int8_ops_s = 0.6 * ceilings.s8_tops * 1e12;
  if (ceilings.copy_gb_s > 0) rates.bytes_s = 0.5 * ceilings.copy_gb_s * 1e9;
  return rates;
}

namespace {

constexpr double call_s = 5e-6;

/// Estimates the seconds of one call of a field from the kind of its work.
struct CallSeconds {
  const Case& c;
  const Rates& rates;
  double element_bytes;

  double m = static_cast<double>(c.batch_size);
  double n = static_cast<double>(c.dim_out);
  double k = static_cast<double>(c.dim_in);
  double ops = 2 * c.macs();
  double operands = m * k + n * k + m * n;

  double operator()(const FloatingProduct&) const noexcept {
    return call_s + std::max(ops / rates.standard_ops_s, operands * element_bytes / rates.bytes_s);
  }
  double operator()(const EvalForward& f) const noexcept { return (*this)(f.product); }
  double operator()(const Int8Product& p) const noexcept {
    if (p.packed != nullptr)
      return call_s + std::max(ops / rates.int8_ops_s, operands / rates.bytes_s);
    return call_s + ops / rates.int8_ops_s + 2 * n * k / rates.bytes_s + operands / rates.bytes_s;
  }
  double operator()(const Quantize& q) const noexcept {
    return (q.transposed ? 2 : 1) * pass(elements_of(q.x, c));
  }
  double operator()(const Cast& cast) const noexcept { return pass(elements_of(cast.x, c)); }

  [[nodiscard]] double pass(double elements) const noexcept {
    return call_s + elements * (element_bytes + 1) / rates.bytes_s;
  }
};

}  // namespace

double estimate_field_s(Field field, const Case& c, DType dtype, const Rates& rates) noexcept {
  return std::visit(CallSeconds{c, rates, static_cast<double>(dtype_size_bytes(dtype))},
                    spec_of(field).work);
}

double estimate_round_s(const Case& c, DType dtype, const FieldSet& fields,
                        const Rates& rates) noexcept {
  double seconds = 0;
  for (std::size_t i = 0; i < all_fields; ++i)
    if (fields[i]) seconds += estimate_field_s(static_cast<Field>(i), c, dtype, rates);
  return seconds;
}

double estimate_setup_s(const Case& c, DType dtype, const FieldSet& fields,
                        const Rates& rates) noexcept {
  double seconds = 0.002;
  for (std::size_t i = 0; i < all_fields; ++i) {
    if (!fields[i]) continue;
    const bool standard = std::holds_alternative<FloatingProduct>(field_table()[i].work);
    // Each field is called once for its check. A floating point pass also has a few calls of other
    // engines.
    seconds += (standard ? 6 : 1) * estimate_field_s(static_cast<Field>(i), c, dtype, rates);
  }
  // The last term is the time to make random data, poison the outputs and recompute rows and
  // columns.
  const auto m = static_cast<double>(c.batch_size);
  const auto n = static_cast<double>(c.dim_out);
  const auto k = static_cast<double>(c.dim_in);
  return seconds + (m * k + n * k + m * n) * 12e-9;
}

double PlannedCase::total_s(double min_time_s) const noexcept {
  const double timed = std::max(static_cast<double>(repeat) * round_s, min_time_s);
  return setup_s + static_cast<double>(repeat / 2) * round_s + timed;
}

double PlannedCase::shortest_s() const noexcept {
  return setup_s + std::min(repeat, fewest_rounds) * round_s;
}

PlannedCase plan_case(const Case& c, int repeat, DType dtype, const FieldSet& fields,
                      const Rates& rates) {
  PlannedCase planned;
  planned.shape = c;
  planned.repeat = repeat;
  planned.bytes = operand_bytes(c, dtype, fields);
  planned.setup_s = estimate_setup_s(c, dtype, fields, rates);
  planned.round_s = estimate_round_s(c, dtype, fields, rates);
  return planned;
}

void add_selection_options(CLI::App& command, CaseSelection& selection) {
  command
      .add_option("--grid", selection.grids,
                  "a YAML file of shapes, or a built-in grid (quick, vit, llm, reference); may be "
                  "repeated. Default without --shape: quick")
      ->type_name("FILE")
      ->allow_extra_args(false);
  command.add_option("--shape", selection.shapes, std::string(shape_help) + "; may be repeated")
      ->type_name("M,K,N")
      ->allow_extra_args(false);
  command.add_option("--filter", selection.filters, filter_help)
      ->type_name("EXPR")
      ->allow_extra_args(false);
}

std::vector<SelectedCase> select_cases(const CaseSelection& selection) {
  std::vector<std::string> grids = selection.grids;
  if (grids.empty() && selection.shapes.empty()) grids.emplace_back("quick");
  std::set<std::string> seen;
  std::vector<SelectedCase> selected;
  std::size_t known = 0;
  const auto add = [&](const std::vector<Case>& cases, int repeat) {
    known += cases.size();
    for (const Case& c : filter_cases(cases, selection.filters))
      if (seen.insert(case_id(c)).second)
        selected.push_back({c, selection.repeat.value_or(repeat)});
  };
  for (const std::string& name : grids) {
    const Grid grid = load_grid(name);
    add(grid.cases, grid.repeat);
  }
  for (const std::string& shape : selection.shapes)
    add({parse_shape(shape)}, Grid().repeat);
  core::require(!selected.empty(), "--filter: none of the {} cases matches", known);
  std::stable_sort(
      selected.begin(), selected.end(),
      [](const SelectedCase& a, const SelectedCase& b) { return case_less(a.shape, b.shape); });
  return selected;
}

}  // namespace switchback::bench
