// SPDX-License-Identifier: Apache-2.0
#include "quant/config.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/context_state.hpp"
#include "core/cpu/isa.hpp"
#include "quant/cpu/engine.hpp"
#include "quant/device_engine.hpp"
#include "quant/reference.hpp"

namespace switchback::quant {

std::string_view engine_name(Engine engine) noexcept {
  switch (engine) {
    case Engine::highway:
      return "highway";
    case Engine::cuda:
      return "cuda";
    default:
      return "reference";
  }
}

std::string describe(const Config& c) {
  if (c.engine == Engine::cuda) return fmt::format("cuda block {}", c.block_threads);
  return fmt::format("{} task {}{} tile {}x{} panel {}", engine_name(c.engine), c.task_elements,
                     c.stream ? " stream" : "", c.tile_rows, c.tile_cols, c.panel_cols);
}

namespace {

constexpr std::int64_t largest_tile = Config::largest_tile;

std::int64_t bytes_moved(const Problem& p) {
  const std::int64_t read = static_cast<std::int64_t>(dtype_size_bytes(p.dtype));
  return p.rows * p.cols * (read + 1);
}

// The width of a panel: the columns for which one thread computes absmax and then codes. It is 0 if
// all threads should work on all columns: because the second read would not find a panel in the
// caches, or because some threads would get no panel.
std::int64_t panel_columns(const Problem& p) {
  constexpr std::int64_t stays_in_l3_bytes = std::int64_t{6} << 20;
  const auto element_bytes = static_cast<std::int64_t>(dtype_size_bytes(p.dtype));
  // Bytes of a row in a panel; shorter chunks are too slow to read from memory.
  for (const std::int64_t bytes : {1024, 512}) {
    const std::int64_t panel = bytes / element_bytes;
    if (p.rows * bytes <= stays_in_l3_bytes && p.cols >= 2 * panel * p.threads) return panel;
  }
  return 0;
}

// Whether a tile is computed fast enough that the next one should be prefetched meanwhile.
bool asks_ahead(const Problem& p) {
  return core::covers(p.isa, core::Isa::avx512);
}

// Chooses how many columns of a block of rows a thread reads twice, for absmax and then for codes.
// They fill half of the second-level cache until the second read. If the next columns are
// prefetched meanwhile, both together fill only a quarter, because rows that are a power of two
// apart do not find room in all sets of the cache. Zen 4, 4096 columns, two threads, f32: 0.66 to
// 0.81 of the speed of a copy; with panels twice as wide 0.57.
void choose_block_panel(const Problem& p, Config& c) {
  const auto l2 = static_cast<std::int64_t>(core::cpu_caches().l2_bytes);
  const std::int64_t room =
      (l2 > 0 ? l2 : std::int64_t{1} << 20) / (c.stream && asks_ahead(p) ? 8 : 2);
  const std::int64_t column = p.block_rows * static_cast<std::int64_t>(dtype_size_bytes(p.dtype));
  c.tile_cols = c.panel_cols = std::clamp<std::int64_t>(room / column / 64 * 64, 64, 1024);
  c.tile_rows = std::min<std::int64_t>(p.block_rows, 256);
}

// Chooses the tile of an operation that transposes. Measured on Zen 5, 4096², f32, one thread, as a
// share of the speed of a copy: tiles as wide as the matrix read memory fastest (a page of each
// row: columnwise 0.33, global 0.38; whole rows: global 0.42). But the scales of more than 1024
// columns do not stay in the first-level cache (columnwise 0.26). Panels: columnwise 0.40. Zen 4,
// 7808 · 4096, f32: if tiles prefetch the next one, tiles of 256 · 256 are the fastest (a pass over
// a tile takes 5.2 ns for 16 elements; 128 · 4096: 5.8, 256 · 512: 6.4, 512 · 256: 7.0; a copy
// 3.5).
void choose_tile(const Problem& p, Config& c) {
  if (p.block_rows > 0) return choose_block_panel(p, c);
  if (p.op == Op::columnwise_transpose) c.panel_cols = panel_columns(p);
  if (c.panel_cols > 0) {
    c.tile_rows = 512;
    c.tile_cols = c.panel_cols;
    return;
  }
  const auto l2 = static_cast<std::int64_t>(core::cpu_caches().l2_bytes);
  const std::int64_t room = (l2 > 0 ? l2 : std::int64_t{1} << 20) / 2;
  const bool by_column = parts_of(p.op).q_t == Scales::per_column;
  const auto element_bytes = static_cast<std::int64_t>(dtype_size_bytes(p.dtype));
  c.tile_cols = by_column ? 1024 : largest_tile;
  c.tile_rows = !c.stream ? 64 : by_column ? 256 : 128;
  if (c.stream && asks_ahead(p) && (by_column || p.dtype == DType::f32)) {
    // A tile of 256 rows and the next tile, which is prefetched, fill half of the second-level
    // cache.
    c.tile_rows = 256;
    c.tile_cols = std::clamp<std::int64_t>(room / 2 / (256 * element_bytes) / 64 * 64, 64, 1024);
  }
  while (c.tile_cols > 256 && c.tile_rows * c.tile_cols > room)
    c.tile_cols /= 2;
  const auto tiles = [&] {
    return ((p.rows + c.tile_rows - 1) / c.tile_rows) * ((p.cols + c.tile_cols - 1) / c.tile_cols);
  };
  while (tiles() < 4 * p.threads && c.tile_cols > 128)
    c.tile_cols /= 2;
  while (tiles() < 4 * p.threads && c.tile_rows > 64)
    c.tile_rows /= 2;
}

}  // namespace

std::string check_config(const Problem& problem, const Config& config, const ContextState&) {
  const bool runs = problem.device != DeviceKind::cpu
                        ? config.engine == Engine::cuda
                        : config.engine == Engine::reference || (config.engine == Engine::highway &&
                                                                 problem.isa != core::Isa::scalar);
  return runs ? "" : "its engine is not available on this device with this isa";
}

Config default_config(const Problem& p, const ContextState&) {
  Config c;
  if (p.device != DeviceKind::cpu) {
    c.engine = Engine::cuda;
    return c;
  }
  if (p.isa == core::Isa::scalar) return c;
  c.engine = Engine::highway;
  c.task_elements = 65536;
  // Codes are stored past the caches if they would not stay in them. Systems report the last-level
  // cache of all sockets, and to virtual machines that of the whole host; one process rarely has
  // more than 32 MiB of it. 8192², two threads of Zen 5: storing codes past the caches is 1.14
  // (f32) and 1.18 (bf16) times as fast as storing through them.
  c.stream = bytes_moved(p) > (std::int64_t{32} << 20);
  c.tile_rows = 64;
  c.tile_cols = 64;
  if (parts_of(p.op).transposes()) choose_tile(p, c);
  return c;
}

namespace {
constexpr std::int64_t least_streamed_bytes = std::int64_t{8} << 20;
}

std::vector<Config> candidates(const Problem& p, const ContextState& state) {
  const Config base = default_config(p, state);
  std::vector<Config> list = {base};
  if (base.engine == Engine::reference) return list;
  if (base.engine == Engine::cuda) {
    for (const std::int64_t threads : {128, 256, 512, 1024}) {
      list.push_back(base);
      list.back().block_threads = threads;
    }
    return list;
  }
  const auto add = [&](const Config& c) {
    for (const Config& known : list)
      if (known == c) return;
    list.push_back(c);
  };
  for (const bool stream : {base.stream, !base.stream}) {
    // In a loop that times only this operation, storing past the caches is always faster. But the
    // product that comes next would find small codes in a cache, and reads them more slowly from
    // memory.
    if (stream && !base.stream && bytes_moved(p) < least_streamed_bytes) continue;
    Config c = base;
    c.stream = stream;
    add(c);
    if (parts_of(p.op).transposes()) {
      for (const auto& [rows, cols] : {std::pair<std::int64_t, std::int64_t>{64, 256},
                                       {64, 1024},
                                       {64, largest_tile},
                                       {128, largest_tile},
                                       {256, 64},
                                       {256, 256},
                                       {256, 1024}}) {
        c.tile_rows = rows;
        c.tile_cols = cols;
        c.panel_cols = 0;
        add(c);
      }
      if (p.op != Op::columnwise_transpose) continue;
      for (const std::int64_t panel : {64, 128, 256, 512, 1024}) {
        if (panel >= p.cols) continue;
        c.panel_cols = panel;
        c.tile_cols = panel;
        c.tile_rows = 512;
        add(c);
      }
    } else {
      for (const std::int64_t elements : {16384, 65536, 262144}) {
        c.task_elements = elements;
        add(c);
      }
    }
  }
  return list;
}

void run(ContextState& state, const Problem& p, const Config& c, const Request& o) {
  if (c.engine == Engine::cuda) return device_engines().of(p.device)->run(state, p, c, o);
  if (c.engine == Engine::reference || p.rows == 0 || p.cols == 0) {
    state.threads.for_each(1, [&](std::int64_t, int) { reference::run(o); });
    return;
  }
  switch (p.op) {
    case Op::rowwise:
      return cpu::rowwise(state, c, o);
    case Op::rowwise_column_sums:
      return cpu::rowwise_column_sums(state, c, o);
    case Op::column_sums:
      return cpu::column_sums(state, c, o);
    case Op::global:
      return cpu::global(state, c, o);
    case Op::columnwise_transpose:
    case Op::global_transpose:
    case Op::rowwise_and_columnwise_transpose:
    case Op::global_and_transpose:
      return cpu::transpose(state, c, o);
    case Op::dequantize_rowwise:
      return cpu::dequantize_rowwise(state, c, o);
    case Op::cast_to_int8:
      return cpu::cast_to_int8(state, c, o);
    case Op::blockwise_transpose:
    case Op::rowwise_and_blockwise_transpose:
    case Op::blockwise_stochastic:
      return cpu::blockwise(state, c, o);
    case Op::activation_forward:
    case Op::activation_backward:
      return cpu::activation(state, c, o);
    case Op::activation_forward_quantize:
    case Op::activation_backward_quantize:
    case Op::activation_rotate_quantize:
      return cpu::activation_quantize(state, c, o);
    case Op::rotate:
      return cpu::rotate(state, c, o);
    case Op::rotate_quantize:
      return cpu::rotate_quantize(state, c, o);
    case Op::rowwise_stochastic:
      return cpu::rowwise_stochastic(state, c, o);
    case Op::rowwise_scaled:
      return cpu::rowwise_scaled(state, c, o);
  }
}

}  // namespace switchback::quant
