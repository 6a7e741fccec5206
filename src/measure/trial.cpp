// SPDX-License-Identifier: Apache-2.0
#include "measure/trial.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/matrix_rows.hpp"
#include "measure/caches.hpp"

namespace switchback::measure {

std::string fault_of(const Findings& findings) {
  for (const Finding& finding : findings) {
    const Comparison& c = finding.comparison;
    if (c.pass()) continue;
    if (c.worst.row < 0) return fmt::format("{}: {}", finding.part, finding.rule);
    return fmt::format("{}: {} of {} are wrong; [{},{}] is {:.9g} where {:.9g} is right ({})",
                       finding.part, c.wrong, c.compared, c.worst.row, c.worst.col, c.worst.got,
                       c.worst.want, finding.rule);
  }
  return {};
}

std::int64_t rows_to_keep(DeviceKind device, std::int64_t rows, std::int64_t cols) noexcept {
  constexpr std::int64_t least = 64;
  const std::int64_t most_elements = std::int64_t{1} << (device == DeviceKind::cpu ? 24 : 22);
  return std::min(rows, std::max(least, most_elements / std::max<std::int64_t>(1, cols)));
}

AnyMatrix spread_rows(AnyMatrix m, std::int64_t most) noexcept {
  if (m.rows <= most || most < 1) return m;
  const std::int64_t step = (m.rows + most - 1) / most | 1;
  const std::int64_t first = (m.rows - 1) % step;
  const std::int64_t rows = (m.rows - 1) / step + 1;
  m = core::rows_of(m, first, rows);
  m.stride *= step;
  return m;
}

ProductCopies::ProductCopies(Context& context, const TrialOptions& options, const Matrix& a,
                             const Matrix& b, const Matrix& d) {
  if (!options.takes_turns) return;
  const auto bytes = static_cast<double>(a.size_bytes() + b.size_bytes() + d.size_bytes());
  sets_.resize(rotation(context, bytes) - 1);
  for (Set& set : sets_)
    set = {copy_of(context, a), copy_of(context, b), copy_of(context, d)};
}

const ProductCopies::Set* ProductCopies::next() noexcept {
  const std::size_t turn = next_++ % (sets_.size() + 1);
  return turn == 0 ? nullptr : &sets_[turn - 1];
}

void Checker::compare_sample(Finding finding, AnyMatrix written, const Sample& sample,
                             const std::function<Comparison(AnyMatrix)>& compare) {
  const Matrix some = gather(context_, written, sample);
  finding.output = written.dtype;
  if (options_.tamper) options_.tamper(finding, some.any());
  finding.comparison = compare(some.any());
  if (Worst& worst = finding.comparison.worst; worst.row >= 0) {
    worst.row = sample.rows[static_cast<std::size_t>(worst.row)];
    worst.col = sample.cols[static_cast<std::size_t>(worst.col)];
  }
  found_.push_back(std::move(finding));
}

void Checker::exact(std::string_view op, std::string part, AnyMatrix written, const Sample& sample,
                    ConstAnyMatrix want, std::string_view rule) {
  compare_sample({op, std::move(part), written.dtype, {}, std::string(rule)}, written, sample,
                 [&](AnyMatrix got) {
                   // If all bits are the same, elements need not be compared one by one.
                   if (difference(context_, got, want).empty()) {
                     Comparison same;
                     same.compared = got.rows * got.cols;
                     return same;
                   }
                   return compare_exact(got, all_rows(got.rows), want);
                 });
}

void Checker::exact(std::string_view op, std::string part, AnyMatrix written, ConstAnyMatrix want,
                    std::string_view rule) {
  exact(op, std::move(part), written, {all_rows(written.rows), all_rows(written.cols)}, want, rule);
}

void Checker::bounded(std::string_view op, std::string part, AnyMatrix written,
                      const Sample& sample, const Reference& reference, std::string rule) {
  compare_sample({op, std::move(part), written.dtype, {}, std::move(rule)}, written, sample,
                 [&](AnyMatrix got) {
                   const Rows all = all_rows(got.rows);
                   Comparison comparison = compare_bounded(got, all, reference);
                   add_accuracy(comparison, got, all, reference);
                   return comparison;
                 });
}

void Checker::like_the_first(std::string_view op, std::string part, AnyMatrix written,
                             std::int64_t most_rows, Matrix& kept) {
  if (!passes()) return;
  const AnyMatrix spread = spread_rows(written, most_rows);
  if (kept.empty())
    kept = host_copy(context_, spread);
  else
    add(op, std::move(part) + ", rows from all over", written.dtype, spread.rows * spread.cols,
        "equal to those of the first configuration", difference(context_, spread, kept.any()));
}

void Checker::add(std::string_view op, std::string part, DType output, std::int64_t compared,
                  std::string_view rule, const std::string& fault) {
  Finding finding{op, std::move(part), output, {}, fault.empty() ? std::string(rule) : fault};
  finding.comparison.compared = compared;
  finding.comparison.wrong = fault.empty() ? 0 : 1;
  found_.push_back(std::move(finding));
}

bool Checker::passes() const noexcept {
  return std::all_of(found_.begin(), found_.end(),
                     [](const Finding& finding) { return finding.comparison.pass(); });
}

}  // namespace switchback::measure
