// SPDX-License-Identifier: Apache-2.0
#include "quant/config.hpp"

#include <fmt/format.h>

#include "core/context_state.hpp"
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

std::string to_string(const Config& c) {
  if (c.engine == Engine::cuda) return fmt::format("cuda block {}", c.block_threads);
  return fmt::format("{} task {}{} tile {}x{} panel {}", engine_name(c.engine), c.task_elements,
                     c.stream ? " stream" : "", c.tile_rows, c.tile_cols, c.panel_cols);
}

ConfigChoice to_choice(const Config& c) noexcept {
  ConfigChoice choice;
  choice.words = {static_cast<std::int64_t>(c.engine),
                  c.task_elements,
                  c.stream ? 1 : 0,
                  c.tile_rows,
                  c.tile_cols,
                  c.panel_cols,
                  c.block_threads};
  return choice;
}

bool from_choice(const ConfigChoice& choice, Config& c) noexcept {
  const auto& w = choice.words;
  if (w[0] == static_cast<std::int64_t>(Engine::cuda)) {
    if (w[6] < 0 || w[6] > 1024 || w[6] % 32 != 0) return false;
    c = {};
    c.engine = Engine::cuda;
    c.block_threads = w[6];
    return true;
  }
  constexpr std::int64_t largest_tile = 4096;
  const auto is_tile = [](std::int64_t n) { return n > 0 && n <= largest_tile && n % 64 == 0; };
  if (w[0] != static_cast<std::int64_t>(Engine::reference) &&
      w[0] != static_cast<std::int64_t>(Engine::highway))
    return false;
  if (w[1] < 0 || (w[2] != 0 && w[2] != 1) || w[5] < 0) return false;
  if (static_cast<Engine>(w[0]) == Engine::highway &&
      (!is_tile(w[3]) || !is_tile(w[4]) || w[5] % w[4] != 0))
    return false;
  c = {static_cast<Engine>(w[0]), w[1], w[2] == 1, w[3], w[4], w[5], 0};
  return true;
}

namespace {

std::int64_t bytes_moved(const Problem& p) {
  const std::int64_t read = static_cast<std::int64_t>(dtype_size_bytes(p.dtype));
  return p.rows * p.cols * (read + 1);
}

}  // namespace

bool accepts(const Config& config, const Problem& problem) noexcept {
  if (problem.device != DeviceKind::cpu) return config.engine == Engine::cuda;
  return config.engine == Engine::reference ||
         (config.engine == Engine::highway && problem.isa > core::Isa::scalar);
}

Config default_config(const Problem& p) {
  Config c;
  if (p.device != DeviceKind::cpu) {
    c.engine = Engine::cuda;
    return c;
  }
  if (p.isa == core::Isa::scalar) return c;
  c.engine = Engine::highway;
  c.task_elements = 65536;
  // Systems report the last-level cache of all sockets and, to virtual machines, of all the host;
  // what one process finds there is rarely more than 32 MiB. 8192², two threads of Zen 5, codes
  // around the caches over codes through them: f32 1.14, bf16 1.18 times as fast.
  c.stream = bytes_moved(p) > (std::int64_t{32} << 20);
  c.tile_rows = 256;
  c.tile_cols = 64;
  c.panel_cols = 0;
  return c;
}

std::vector<Config> candidates(const Problem& p) {
  const Config base = default_config(p);
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
  const bool tiled = p.op == Op::columnwise_transpose || p.op == Op::global_transpose ||
                     p.op == Op::rowwise_and_columnwise_transpose ||
                     p.op == Op::global_and_transpose;
  for (const bool stream : {base.stream, !base.stream}) {
    Config c = base;
    c.stream = stream;
    add(c);
    if (tiled) {
      for (const auto& [rows, cols] : {std::pair{64, 256}, {128, 128}, {256, 64}, {256, 256}}) {
        c.tile_rows = rows;
        c.tile_cols = cols;
        for (const std::int64_t panel : {0, 256, 1024, 4096}) {
          if (panel != 0 && (p.op != Op::columnwise_transpose || panel >= p.cols)) continue;
          c.panel_cols = panel;
          add(c);
        }
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

void run(ContextState& state, const Problem& p, const Config& c, const Operands& o) {
  if (c.engine == Engine::cuda) return device_engine(p.device)->run(state, p, c, o);
  if (c.engine == Engine::reference || p.rows == 0 || p.cols == 0) {
    state.threads.for_each(1, [&](std::int64_t, int) { reference::run(p.op, o); });
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
      return cpu::transpose(state, p, c, o);
    case Op::dequantize_rowwise:
      return cpu::dequantize_rowwise(state, c, o);
    case Op::cast_to_int8:
      return cpu::cast_to_int8(state, c, o);
  }
}

}  // namespace switchback::quant
