// SPDX-License-Identifier: Apache-2.0
#include "measure/data_kinds.hpp"

#include <limits>

#include "core/context_state.hpp"
#include "core/unaligned.hpp"
#include "measure/data.hpp"
#include "measure/matrix.hpp"

namespace switchback::measure {

namespace {

constexpr float inf = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

struct Writer {
  AnyMatrix m;
  [[nodiscard]] float get(std::int64_t r, std::int64_t c) const {
    return core::load_float(m.data, m.dtype, r * m.stride + c);
  }
  void set(std::int64_t r, std::int64_t c, float value) const {
    core::store_float(m.data, m.dtype, r * m.stride + c, value);
  }
  template <class F>
  void each_in_row(std::int64_t r, const F& f) const {
    for (std::int64_t c = 0; c < m.cols; ++c)
      set(r, c, f(get(r, c), c));
  }
};

void saturate(AnyMatrix codes) {
  for (std::int64_t r = 0; r < codes.rows; ++r) {
    auto* row = static_cast<std::int8_t*>(codes.data) + r * codes.stride;
    for (std::int64_t c = 0; c < codes.cols; ++c)
      row[c] = row[c] % 4 == 1 ? std::int8_t{-127} : std::int8_t{127};
  }
}

void outliers(const Writer& w, std::uint64_t seed) {
  for (std::int64_t r = 0; r < w.m.rows; ++r) {
    if (r % 7 == 3) w.each_in_row(r, [](float x, std::int64_t) { return 100.0f * x; });
    const auto bits = random_bits(seed, static_cast<std::uint64_t>(r));
    if (r % 5 == 1)
      w.set(r, static_cast<std::int64_t>(bits % static_cast<std::uint64_t>(w.m.cols)),
            (bits >> 63) != 0 ? -1000.0f : 1000.0f);
  }
}

void zeros(const Writer& w) {
  for (std::int64_t r = 0; r < w.m.rows; ++r)
    w.each_in_row(r, [&](float x, std::int64_t c) {
      if (r % 3 == 0) return 0.0f;
      if (c % 5 == 2) return c % 2 == 0 ? 0.0f : -0.0f;
      return x;
    });
}

// Values half way between two codes. absmax is 127 · 2^e exactly and the values are (k + 1/2) ·
// 2^e. So 127 · (x / absmax) is a tie, or one rounding away from it. Both 127 and 126.5 fit into
// eight bits, hence into bf16.
void ties(const Writer& w, std::uint64_t seed) {
  for (std::int64_t r = 0; r < w.m.rows; ++r) {
    const float unit = r % 4 == 3 ? 0.125f : r % 4 == 2 ? 4.0f : 1.0f;
    w.each_in_row(r, [&](float, std::int64_t c) {
      if (c == r % w.m.cols) return 127.0f * unit;
      const std::uint64_t bits = random_bits(seed, static_cast<std::uint64_t>(r * w.m.cols + c));
      return (static_cast<float>(bits % 253) - 125.5f) * unit;
    });
  }
}

void subnormal(const Writer& w) {
  // The factor that scales normal data below the smallest normal number of the type.
  const float scale = w.m.dtype == DType::f16 ? 0x1p-17f : 0x1p-130f;
  for (std::int64_t r = 0; r < w.m.rows; ++r)
    w.each_in_row(r, [&](float x, std::int64_t c) {
      const bool small = r % 3 == 0 || (r % 3 == 1 && c % 2 == 0);
      return small ? x * scale : x;
    });
}

void nonfinite(const Writer& w, std::uint64_t seed) {
  for (std::int64_t r = 0; r < w.m.rows; ++r) {
    const auto place = [&](int which, float value) {
      const auto bits =
          random_bits(seed + static_cast<std::uint64_t>(which), static_cast<std::uint64_t>(r));
      w.set(r, static_cast<std::int64_t>(bits % static_cast<std::uint64_t>(w.m.cols)), value);
    };
    const auto kind = r % 6;
    if (kind == 1 || kind == 4) place(0, inf);
    if (kind == 2 || kind == 4) place(1, -inf);
    // Set last: a NaN must win over infinities before it.
    if (kind == 3 || kind == 4) place(2, nan);
  }
}

}  // namespace

std::string_view data_name(Data data) noexcept {
  switch (data) {
    case Data::normal:
      return "normal";
    case Data::outliers:
      return "outliers";
    case Data::zeros:
      return "zeros";
    case Data::ties:
      return "ties";
    case Data::subnormal:
      return "subnormal";
    case Data::nonfinite:
      return "nonfinite";
  }
  return "unknown";
}

namespace {

void change(AnyMatrix m, Data data, std::uint64_t seed) {
  if (m.dtype == DType::s8) return saturate(m);
  const Writer writer{m};
  switch (data) {
    case Data::normal:
      return;
    case Data::outliers:
      return outliers(writer, seed);
    case Data::zeros:
      return zeros(writer);
    case Data::ties:
      return ties(writer, seed);
    case Data::subnormal:
      return subnormal(writer);
    case Data::nonfinite:
      return nonfinite(writer, seed);
  }
}

// Calls change() with m in memory of the host, and copies the changes back if m is on a device.
template <class Change>
void on_host(Context& context, AnyMatrix m, const Change& change) {
  if (context.state().on_cpu()) return change(m);
  const Matrix changed = host_copy(context, m);
  change(changed.any());
  copy(context, changed.any(), m);
}

}  // namespace

void fill(Context& context, AnyMatrix m, Data data, std::uint64_t seed) {
  fill_random(context, m, seed);
  if (m.rows == 0 || m.cols == 0 || data == Data::normal) return;
  on_host(context, m, [&](AnyMatrix host) { change(host, data, seed); });
}

void fill_scales(Context& context, std::span<float> scales, Data data, std::uint64_t seed) {
  fill_scales(context, scales, seed);
  const auto count = static_cast<std::int64_t>(scales.size());
  if (count < 3 || data != Data::nonfinite) return;
  on_host(context, {scales.data(), DType::f32, 1, count, count}, [&](AnyMatrix host) {
    auto* values = static_cast<float*>(host.data);
    values[1] = 0;
    values[2] = seed % 2 == 0 ? nan : inf;
  });
}

}  // namespace switchback::measure
