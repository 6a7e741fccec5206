// SPDX-License-Identifier: Apache-2.0
// Models, engine zone: prefetches rows of attention operands while a core computes products.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "core/cpu/isa.hpp"
#include "switchback/matrix.hpp"

namespace switchback::models {

inline std::int64_t l2_bytes() {
  constexpr std::int64_t by_default = std::int64_t{1} << 20;
  const auto bytes = static_cast<std::int64_t>(core::cpu_caches().l2_bytes);
  return bytes > 0 ? bytes : by_default;
}

// Prefetches the rows that the next attention task reads, line by line, while this task computes
// products. The rows of a head have some hundred bytes each and are far apart, so the prefetchers
// of a core do not find them. Waiting for them would take a fifth of the time of the products. A
// burst of requests would use the resources that the products' own cache misses need.
class Ahead {
 public:
  explicit Ahead(std::int64_t row_bytes) : lines_((row_bytes + line_bytes - 1) / line_bytes) {
    find();
  }
  Ahead(const Ahead&) = delete;
  Ahead& operator=(const Ahead&) = delete;

  // Adds rows [begin, end) of m, from a column on, to the rows to prefetch. Rows that do not fit
  // into half of the second-level cache are ignored.
  void add(const ConstAnyMatrix& m, std::int64_t begin, std::int64_t end, std::int64_t column) {
    const auto element = static_cast<std::int64_t>(dtype_size_bytes(m.dtype));
    bytes_ += (end - begin) * lines_ * line_bytes;
    if (bytes_ > l2_bytes() / 2) return;
    parts_[static_cast<std::size_t>(count_++)] = {
        static_cast<const std::byte*>(m.data) + (begin * m.stride + column) * element,
        m.stride * element, end - begin};
    most_rows_ = std::max(most_rows_, end - begin);
    find();
  }
  // The next line to prefetch; the lines to prefetch after it follow at a constant stride.
  [[nodiscard]] const std::byte* line() const { return at_; }
  [[nodiscard]] std::int64_t stride_bytes() const { return stride_bytes_; }
  void asked(std::int64_t lines) {
    at_ += lines * stride_bytes_;
    left_ -= lines;
    if (left_ <= 0 && stride_bytes_ != 0) after_run();
  }

 private:
  struct Part {
    const std::byte* first;
    std::int64_t stride_bytes, rows;
  };
  // Goes on to the next run: one line of each of `rows_of_run` rows. All runs of these rows, in all
  // matrices, come before the runs of the next rows.
  void after_run() {
    if (++line_ == lines_) {
      line_ = 0;
      ++part_;
    }
    find();
  }
  void find() {
    for (; row_ < most_rows_; row_ += rows_of_run, part_ = 0)
      for (; part_ < count_; ++part_) {
        const Part& part = parts_[static_cast<std::size_t>(part_)];
        if (row_ >= part.rows) continue;
        at_ = part.first + row_ * part.stride_bytes + line_ * line_bytes;
        stride_bytes_ = part.stride_bytes;
        left_ = std::min(rows_of_run, part.rows - row_);
        return;
      }
    // Nothing is left: prefetches the same line again.
    at_ = reinterpret_cast<const std::byte*>(this);
    stride_bytes_ = 0;
  }
  static constexpr std::int64_t line_bytes = 64;
  static constexpr std::int64_t rows_of_run = 64;
  std::array<Part, 5> parts_ = {};
  std::int64_t lines_, count_ = 0, most_rows_ = 0, bytes_ = 0;
  std::int64_t part_ = 0, row_ = 0, line_ = 0;
  const std::byte* at_ = nullptr;
  std::int64_t stride_bytes_ = 0, left_ = 0;
};

}  // namespace switchback::models
