// SPDX-License-Identifier: Apache-2.0
#include "measure/data.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "core/context_state.hpp"
#include "core/unaligned.hpp"
#include "measure/matrix.hpp"

namespace switchback::measure {

namespace {

// The output function of SplitMix64 (Steele, Lea, Flood 2014).
std::uint64_t mix(std::uint64_t z) noexcept {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

constexpr std::uint64_t gamma = 0x9E3779B97F4A7C15ull;

// A number in (0, 1), from the upper 53 bits.
double unit(std::uint64_t bits) noexcept {
  return (static_cast<double>(bits >> 11) + 0.5) * 0x1p-53;
}

// The ziggurat method for normal random numbers (Marsaglia and Tsang 2000), with 256 layers of
// equal area under exp(-x²/2). Layer i spans |x| < edge[i]. A point left of edge[i + 1] lies under
// the curve for certain, which settles 99 % of the draws with one multiplication. Layer 0 is the
// base strip with the tail beyond `tail`.
struct Ziggurat {
  static constexpr int layers = 256;
  static constexpr double tail = 3.6541528853610088;
  static constexpr double area = 0.00492867323399;
  std::array<double, layers + 1> edge{};
  std::array<double, layers + 1> density{};

  Ziggurat() {
    const auto curve = [](double x) { return std::exp(-0.5 * x * x); };
    edge[0] = area / curve(tail);
    edge[1] = tail;
    for (int i = 2; i < layers; ++i)
      edge[i] = std::sqrt(-2.0 * std::log(area / edge[i - 1] + curve(edge[i - 1])));
    edge[layers] = 0;
    for (int i = 0; i <= layers; ++i)
      density[i] = curve(edge[i]);
  }

  [[nodiscard]] double draw(std::uint64_t seed, std::uint64_t counter) const noexcept {
    std::uint64_t bits = random_bits(seed, counter);
    for (;;) {
      const auto layer = static_cast<std::size_t>(bits & 0xFF);
      const double sign = (bits & 0x100) != 0 ? -1.0 : 1.0;
      const double x = unit(bits) * edge[layer];
      if (x < edge[layer + 1]) return sign * x;
      // The rare other draws need more random numbers; each is a function of the previous one.
      bits = mix(bits + gamma);
      if (layer == 0) {
        double beyond = 0;
        double y = 0;
        do {
          beyond = -std::log(unit(bits)) / tail;
          bits = mix(bits + gamma);
          y = -std::log(unit(bits));
          bits = mix(bits + gamma);
        } while (2 * y < beyond * beyond);
        return sign * (tail + beyond);
      }
      const double height = density[layer] + unit(bits) * (density[layer + 1] - density[layer]);
      if (height < std::exp(-0.5 * x * x)) return sign * x;
      bits = mix(bits + gamma);
    }
  }
};

// One task fills this many elements of the matrix, counted across rows.
constexpr std::int64_t grain = 1 << 15;

// Calls f(index, offset) for every element of a matrix. The index counts elements row by row; the
// offset is the element's position in memory.
template <class F>
void for_elements(Context& context, std::int64_t rows, std::int64_t cols, std::int64_t stride,
                  const F& f) {
  if (rows == 0 || cols == 0) return;
  context.state().threads.for_ranges(rows * cols, grain,
                                     [&](std::int64_t begin, std::int64_t end, int /*worker*/) {
                                       std::int64_t row = begin / cols;
                                       std::int64_t col = begin % cols;
                                       for (std::int64_t index = begin; index < end; ++index) {
                                         f(index, row * stride + col);
                                         if (++col == cols) {
                                           col = 0;
                                           ++row;
                                         }
                                       }
                                     });
}

// Calls fill(context, matrix) with a host matrix: m itself, or one that is then copied to m.
template <class Fill>
void fill_from_host(Context& context, AnyMatrix m, const Fill& fill) {
  if (context.state().runtime == nullptr) return fill(context, m);
  ContextOptions options;
  options.device = "cpu";
  Context host(options);
  host.set_config_source(nullptr);
  const Matrix image(m.dtype, m.rows, m.cols);
  fill(host, image.any());
  copy(context, image.any(), m);
}

void fill_normal_on_host(Context& context, AnyMatrix m, std::uint64_t seed, float scale) {
  static const Ziggurat ziggurat;
  const auto fill = [&](auto* data) {
    using T = std::remove_pointer_t<decltype(data)>;
    for_elements(context, m.rows, m.cols, m.stride, [&](std::int64_t index, std::int64_t offset) {
      const auto value = static_cast<float>(ziggurat.draw(seed, static_cast<std::uint64_t>(index)));
      core::store(data, offset, T(value * scale));
    });
  };
  switch (m.dtype) {
    case DType::f16:
      return fill(static_cast<half*>(m.data));
    case DType::bf16:
      return fill(static_cast<bfloat16*>(m.data));
    default:
      return fill(static_cast<float*>(m.data));
  }
}

void fill_codes_on_host(Context& context, AnyMatrix m, std::uint64_t seed) {
  auto* const codes = static_cast<std::int8_t*>(m.data);
  for_elements(context, m.rows, m.cols, m.stride, [&](std::int64_t index, std::int64_t offset) {
    const std::uint64_t bits = random_bits(seed, static_cast<std::uint64_t>(index)) >> 32;
    codes[offset] = static_cast<std::int8_t>(static_cast<std::int64_t>((bits * 255) >> 32) - 127);
  });
}

}  // namespace

std::uint64_t random_bits(std::uint64_t seed, std::uint64_t counter) noexcept {
  return mix(mix(seed + gamma) + (counter + 1) * gamma);
}

void fill_normal(Context& context, AnyMatrix m, std::uint64_t seed, float scale) {
  fill_from_host(context, m,
                 [&](Context& host, AnyMatrix to) { fill_normal_on_host(host, to, seed, scale); });
}

void fill_codes(Context& context, MatrixView<std::int8_t> m, std::uint64_t seed) {
  fill_from_host(context, m,
                 [&](Context& host, AnyMatrix to) { fill_codes_on_host(host, to, seed); });
}

namespace {

// Fills a contiguous matrix by repeating its first elements. They are copied within the matrix's
// memory in pieces of growing size.
void repeat(Context& context, AnyMatrix m, std::int64_t first) {
  const std::int64_t all = m.rows * m.cols;
  const std::size_t element = dtype_size_bytes(m.dtype);
  for (std::int64_t done = first; done < all; done += std::min(done, all - done)) {
    const std::int64_t count = std::min(done, all - done);
    copy(context, {m.data, m.dtype, 1, count, count},
         {static_cast<std::byte*>(m.data) + static_cast<std::size_t>(done) * element, m.dtype, 1,
          count, count});
  }
}

}  // namespace

void fill_random(Context& context, AnyMatrix m, std::uint64_t seed) {
  if (m.rows == 0 || m.cols == 0) return;
  const std::int64_t values = std::min<std::int64_t>(m.rows * m.cols, (1 << 20) + 7);
  const auto fill_block = [&](Context& host, AnyMatrix block) {
    if (block.dtype == DType::s8)
      fill_codes_on_host(host, block, seed);
    else
      fill_normal_on_host(host, block, seed, 1.0f);
  };
  // On a device, a block of values is sent once and then repeated in the device's memory.
  if (context.state().runtime != nullptr && m.stride == m.cols) {
    fill_from_host(context, {m.data, m.dtype, 1, values, values}, fill_block);
    return repeat(context, m, values);
  }
  fill_from_host(context, m, [&](Context& host, AnyMatrix to) {
    const Matrix block(to.dtype, 1, values);
    fill_block(host, block.any());
    const std::size_t element = dtype_size_bytes(to.dtype);
    const auto* const from = static_cast<const std::byte*>(block.data());
    std::int64_t at = 0;
    for (std::int64_t r = 0; r < to.rows; ++r) {
      std::byte* const row =
          static_cast<std::byte*>(to.data) + static_cast<std::size_t>(r * to.stride) * element;
      for (std::int64_t done = 0; done < to.cols;) {
        const std::int64_t count = std::min(to.cols - done, values - at);
        std::memcpy(row + static_cast<std::size_t>(done) * element,
                    from + static_cast<std::size_t>(at) * element,
                    static_cast<std::size_t>(count) * element);
        done += count;
        at = (at + count) % values;
      }
    }
  });
}

void fill_scales(Context& context, std::span<float> values, std::uint64_t seed) {
  if (values.empty()) return;
  const auto count = static_cast<std::int64_t>(values.size());
  fill_from_host(
      context, {values.data(), DType::f32, 1, count, count}, [&](Context&, AnyMatrix to) {
        for (std::int64_t i = 0; i < count; ++i) {
          const std::uint64_t bits = random_bits(seed, static_cast<std::uint64_t>(i)) >> 40;
          static_cast<float*>(to.data)[i] = 0.5f + static_cast<float>(bits) * 0x1p-24f;
        }
      });
}

}  // namespace switchback::measure
